"""`gptoss run --tools`: asks on the terminal, runs nothing in a pipe that was not allowed."""

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gptoss_local.cli.run import with_values
from gptoss_local.harmony import Vocabulary
from tests.cli.conftest import Terminal, run_cli
from tests.conftest import RunningServer, give_nano, wait_until
from tests.scripted_engine import Script, answer, calls, run_scripted_server

LINES = "\n".join(f"line {n}" for n in range(30))
PRINTS = f"import sys; print('sunny in', sys.argv[1]); print({LINES!r})"
SLEEPS = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(90)"
DICE = """
import os, random, sys
from mcp.server import MCPServer

server = MCPServer("dice")
open(sys.argv[1], "a").write(f"{os.getpid()} ")

@server.tool()
def roll(sides: int = 6) -> str:
    return f"rolled {random.randint(1, sides)}"

server.run()
"""
CALLED = "weather → sunny in Tokyo"


@pytest.fixture(scope="module")
def script(vocabulary: Vocabulary) -> Script:
    script = Script(vocabulary)
    city = {"city": "Tokyo"}
    script.say("Weather?", calls("weather", city, "Let me see."), answer("It is sunny."))
    script.say("Twice?", *[calls("weather", city)] * 2, answer("It is sunny twice."))
    script.say("Sleep?", calls("sleep", {}), answer("I slept."))
    script.say("Roll?", *[calls("roll", {"sides": 1})] * 2, answer("Two ones."))
    script.say("Undeclared?", calls("nothing", {}), answer("I see."))
    script.say("Held?", calls("weather", city, "Let me see.", holds_at=5), answer("Well."))
    script.otherwise(answer("As you say."))
    return script


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, nano_home: Path, script: Script
) -> Iterator[RunningServer]:
    home = tmp_path_factory.mktemp("run")
    give_nano(nano_home, home / "cache")
    with run_scripted_server(home, script) as server:
        yield server


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """Two programs, in a configuration of this test's own."""
    (tmp_path / "gptoss").mkdir()
    schema = '{ type = "object", properties = { city = { type = "string" } } }'
    (tmp_path / "gptoss" / "config.toml").write_text(
        f"""
[tools.weather]
command = {json.dumps([sys.executable, "-c", PRINTS, "{city}"])}
description = "Gets the weather."
parameters = {schema}
[tools.sleep]
command = {json.dumps([sys.executable, "-c", SLEEPS, str(tmp_path / "pid")])}
"""
    )
    return {"XDG_CONFIG_HOME": str(tmp_path), "GPTOSS_TOOL_ROUNDS": "3"}


def test_it_asks_shows_all_of_it_and_does_as_it_is_told(
    served: RunningServer, variables: dict[str, str], tmp_path: Path
) -> None:
    with Terminal(served, "nano", "Twice?", "--tools", **variables) as chat:
        chat.type("y\n")  # typed before the question is there, so it is no answer to it
        chat.read_until("Enter for No: ")
        assert "The model asks to run weather. It runs " in chat.screen
        assert "print('\"'\"'sunny in'\"'\"'" in chat.screen
        assert '"city": "Tokyo"' in chat.screen
        assert "  5 Always allow this tool" in chat.screen
        assert CALLED not in chat.screen
        for typed in ("yes", "always", "9"):
            chat.screen = ""
            chat.type(f"{typed}\n")
            chat.read_until(f"{typed}\r\nA number, or Enter for No: ")
        chat.type("2\n")
        chat.read_until("Why not? ")
        chat.screen = ""
        chat.await_input()
        chat.type("not now\n")
        chat.read_until("The user denied this call. not now")
        chat.read_until("Enter for No: ")
        for sure, then in (("\n", "Enter for No: "), ("2\n", "It is sunny twice.")):
            chat.await_input()
            chat.screen = ""
            chat.type("5\n")
            chat.read_until("Are you sure?")
            chat.read_until("Enter for No: ")
            chat.await_input()
            chat.screen = ""
            chat.type(sure)
            chat.read_until(then)
        chat.process.wait()
        assert "weather → sunny in Tokyo" in chat.screen
        assert "(19 more lines)" in chat.screen
    assert json.loads((tmp_path / "gptoss" / "allowed-tools.json").read_text())["allowed"]
    environment = served.environment | variables
    done = run_cli(environment, "run", "nano", "Weather?", "--tools", "--hide-reasoning")
    assert done.stdout == "It is sunny.\n"  # which was allowed for good
    assert CALLED in done.stderr


def test_in_a_pipe_only_what_was_allowed_runs(
    served: RunningServer, variables: dict[str, str]
) -> None:
    environment = served.environment | variables
    done = run_cli(environment, "run", "nano", "Weather?", "--tools")
    assert (done.returncode, done.stdout) == (0, "It is sunny.\n")
    assert "Not run: weather. Without a terminal, --allow weather lets it run." in done.stderr
    assert CALLED not in done.stderr
    options = ("--tools", "weather", "--allow", "weather", "--json")
    done = run_cli(environment, "run", "nano", "Weather?", *options)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [event["event"] for event in events if event["event"] not in ("reasoning", "content")]
    assert kinds == ["tool_call", "tool_result", "done"]
    call, result = (e for e in events if e["event"].startswith("tool_"))
    assert (call["name"], call["arguments"]) == ("weather", {"city": "Tokyo"})
    assert (result["name"], result["is_error"]) == ("weather", False)
    assert result["content"].startswith("sunny in Tokyo\n")
    assert "".join(e["text"] for e in events if e["event"] == "content") == "It is sunny."


def test_an_mcp_server_lives_as_long_as_the_command(
    served: RunningServer, variables: dict[str, str]
) -> None:
    folder = Path(variables["XDG_CONFIG_HOME"]) / "gptoss"
    (folder / "dice.py").write_text(DICE)
    entry = {"command": sys.executable, "args": [str(folder / "dice.py"), str(folder / "log")]}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"dice": entry}}))
    environment = served.environment | variables
    done = run_cli(environment, "run", "nano", "Roll?", "--tools", "--allow", "dice")
    assert (done.returncode, done.stdout) == (0, "Two ones.\n")
    assert done.stderr.count("roll → rolled 1") == 2
    (pid,) = (folder / "log").read_text().split()  # one process for both calls
    wait_until(lambda: not psutil.pid_exists(int(pid)))


def test_what_is_not_there(served: RunningServer, variables: dict[str, str]) -> None:
    environment = served.environment | variables
    done = run_cli(environment, "run", "nano", "Undeclared?", "--tools")
    assert done.stdout == "I see.\n"
    for options, message in (
        (("--tools", "weather,nothing"), "there is no tool 'nothing'"),
        (("--tools", "nothing"), "there is no tool 'nothing'"),
        (("--tools", "--allow", "nothing"), "--allow: there is no tool 'nothing'"),
        (("--allow", "weather"), "--allow needs --tools"),
    ):
        done = run_cli(environment, "run", "nano", "Weather?", *options)
        assert done.returncode == 2
        assert message in done.stderr


def test_ctrl_c_ends_a_tool(
    served: RunningServer, variables: dict[str, str], tmp_path: Path
) -> None:
    options = ("--tools", "-i", "--allow", "sleep")
    with Terminal(served, "nano", "Sleep?", *options, **variables) as chat:
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        pid = int((tmp_path / "pid").read_text())
        chat.process.send_signal(signal.SIGINT)
        wait_until(lambda: not psutil.pid_exists(pid))
        assert chat.process.wait() == 130


def test_ctrl_c_at_the_question_and_tools_in_the_conversation(
    served: RunningServer, variables: dict[str, str]
) -> None:
    with Terminal(served, "nano", "--tools", TERM="dumb", **variables) as chat:
        chat.read_until(">>> ")
        chat.type("Weather?\n")
        chat.read_until("Enter for No: ")
        chat.screen = ""
        chat.await_input()
        chat.process.send_signal(signal.SIGINT)
        chat.read_until(">>> ")
        for typed, then in (
            ("/tools", "on  weather"),
            ("/tools weather", "weather is off."),
            ("And now?", "As you say."),
        ):
            chat.type(f"{typed}\n")
            chat.read_until(then)
        chat.type("/bye\n")
        assert chat.process.wait() == 0


def test_what_is_typed_before_a_question_is_the_next_message(
    served: RunningServer, script: Script, variables: dict[str, str]
) -> None:
    with Terminal(served, "nano", "--tools", TERM="xterm", **variables) as chat:
        chat.read_until("Send a message")
        chat.type("Held?\r")
        wait_until(lambda: any(reply.is_held for part in script.parts for reply in part.replies))
        chat.type("2\nGood nught\x7f\x7f\x7f\x7fight")  # 2 would allow the call
        script.go_on()
        chat.read_until("Enter for No: ")
        assert "nught" not in chat.screen
        chat.screen = ""
        chat.type("\n")
        chat.read_until("Well.")
        assert CALLED not in chat.screen
        chat.read_until("As you say.")  # to 2
        chat.read_until("Good night")
        chat.screen = ""
        chat.type("\r")
        chat.read_until("As you say.")
        chat.read_until("Send a message")
        chat.screen = ""
        chat.type("\x12as\x07\x12")  # Ctrl-G leaves Ctrl-R, and starts no editor
        chat.read_until("search")
        chat.type("\x07/bye\r")
        assert chat.process.wait() == 0


def test_a_word_after_tools_is_its_value_unless_it_is_a_model(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", variables["XDG_CONFIG_HOME"])
    for given, meant in (
        (["--tools"], ["--tools="]),
        (["--tools", "nano", "Hi"], ["--tools=", "nano", "Hi"]),
        (["nano", "--tools", "Tell me, please"], ["nano", "--tools=", "Tell me, please"]),
        (["nano", "Hi", "--tools", "weather"], ["nano", "Hi", "--tools", "weather"]),
        (["--tools", "wether,sleep"], ["--tools", "wether,sleep"]),
        (["nano", "Hi", "--tools", "wether"], ["nano", "Hi", "--tools", "wether"]),
        (["--tools", "gpt-oss:20b", "Hi"], ["--tools=", "gpt-oss:20b", "Hi"]),
        (["--tools", "./my.gguf", "Hi"], ["--tools=", "./my.gguf", "Hi"]),
        (["--", "--tools"], ["--", "--tools"]),
        (["--tools=x"], ["--tools=x"]),
    ):
        assert with_values(given) == meant
