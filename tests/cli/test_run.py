"""`gptoss run`: streams, pipes, JSON, Ctrl-C, the server it starts."""

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import Cli, Terminal, run_cli
from tests.conftest import RunningServer, wait_until

FRANCE = "What is the capital of France?"
PARIS = "The capital of France is Paris.\n"
COUNT = ("Count from 1 to 900.", "--effort", "low")


def test_answer_on_stdout_reasoning_on_stderr(cli: Cli) -> None:
    done = cli("run", "nano", FRANCE, "--stats")
    assert (done.returncode, done.stdout) == (0, PARIS)
    assert "capital of France" in done.stderr
    assert "tokens/s" in done.stderr
    assert "\x1b" not in done.stderr + done.stdout
    assert cli("run", "nano", FRANCE, "--hide-reasoning").stderr == ""
    done = cli("run", "nano", "What is the passcode?", stdin="The passcode is quiet-river-42.\n")
    assert "quiet-river-42" in done.stdout
    assert cli("run", "nano", stdin=FRANCE).stdout == PARIS
    done = cli("run", "nano")
    assert (done.returncode, "no prompt" in done.stderr) == (2, True)
    assert "gptoss pull gpt-oss:20b" in cli("run", "gpt-oss:20b", "hi").stderr


def test_files_and_a_conversation_that_goes_on(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("The passcode is 4711.\n")
    for file in ("notes", "notes/*.md", "notes/a.md"):
        done = cli("run", "nano", "-f", str(tmp_path / file), "What is the passcode?")
        assert "4711" in done.stdout, done.stderr
    assert cli("run", "nano", "-f", "no-such-file", "hi").returncode == 2
    assert cli("run", "nano", "--save", FRANCE).stdout == PARIS
    assert cli("run", "-c", "What is 2 + 2?").stdout == "2 + 2 = 4\n"
    (chat, *_) = json.loads(cli("chats", "--json").stdout)["chats"]
    assert (chat["model"], chat["n_turns"]) == ("nano", 4)
    for other in ("--temporary", "--tools="):
        assert "cannot be saved" in cli("run", "nano", "-c", other, "hi").stderr


def test_json_events(cli: Cli) -> None:
    done = cli("run", "nano", FRANCE, "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert {e["version"] for e in events} == {1}
    content = "".join(e["text"] for e in events if e["event"] == "content")
    assert content == PARIS.strip()
    assert any(e["event"] == "reasoning" for e in events)
    assert (events[-1]["event"], events[-1]["done_reason"]) == ("done", "stop")
    assert events[-1]["eval_count"] > 0


def test_gguf_path_as_model(fresh: dict[str, str], nano_gguf: Path, tmp_path: Path) -> None:
    """It becomes a model where it lies."""
    file = tmp_path / "My.gguf"
    file.hardlink_to(nano_gguf)
    for model in (str(file), "my"):
        done = run_cli(fresh, "run", model, FRANCE)
        assert "Paris" in done.stdout, done.stderr
    models = Path(fresh["GPTOSS_HOME"]) / "models"
    assert [path.name for path in models.iterdir()] == ["my.json"]
    assert run_cli(fresh, "stop", str(file)).returncode == 0


def test_commands_that_find_no_server_share_one_and_leave_it_running(
    fresh: dict[str, str],
) -> None:
    command = [sys.executable, "-m", "gptoss_local", "run", "nano", FRANCE]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    both = [subprocess.Popen(command, env=fresh, **streams, text=True) for _ in range(2)]
    answers = [process.communicate()[0] for process in both]
    assert answers == [PARIS] * 2
    url = f"http://127.0.0.1:{fresh['GPTOSS_PORT']}"
    assert httpx.get(f"{url}/api/ps", trust_env=False).json()["models"][0]["name"] == "nano"
    assert run_cli(fresh, "stop").returncode == 0
    wait_until(lambda: run_cli(fresh, "stop").stderr == "no server is running\n")


def test_another_server_on_the_port(fresh: dict[str, str], tmp_path: Path) -> None:
    port = fresh["GPTOSS_PORT"]
    command = [sys.executable, "-m", "http.server", port, "--bind", "127.0.0.1"]
    other = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: _connects(port))
        done = run_cli(fresh, "run", "nano", "hi")
        assert done.returncode == 7
        assert "another server" in done.stderr
        served = run_cli(fresh, "serve")
        assert served.returncode == 7
        assert f"cannot listen on 127.0.0.1:{port}" in served.stderr
    finally:
        other.terminate()
        other.wait()


def _connects(port: str) -> bool:
    try:
        httpx.get(f"http://127.0.0.1:{port}", trust_env=False)
    except httpx.TransportError:
        return False
    return True


def test_a_silent_program_on_the_port(fresh: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", int(fresh["GPTOSS_PORT"]))):
        done = run_cli(fresh, "run", "nano", "hi")
    assert done.returncode == 7
    assert f"a program listens at http://127.0.0.1:{fresh['GPTOSS_PORT']} but does" in done.stderr
    assert "GPTOSS_PORT=11435" in done.stderr


@pytest.mark.timeout(25)  # it waits 30 s where another server may be coming up
def test_a_server_that_cannot_start_says_why(fresh: dict[str, str]) -> None:
    environment = fresh | {"GPTOSS_HOST": "nowhere.invalid", "GPTOSS_API_KEY": "k"}
    done = run_cli(environment, "run", "nano", "hi")
    assert done.returncode == 7
    assert "did not start: cannot listen on nowhere.invalid:" in done.stderr
    served = run_cli(environment, "serve")
    assert served.returncode == 2
    assert "GPTOSS_HOST and GPTOSS_PORT say where" in served.stderr


def test_terminal_dims_the_reasoning(server: RunningServer) -> None:
    with Terminal(server, "nano", FRANCE) as terminal:
        terminal.read_until("Paris.\r\n")
        terminal.read_until("The capital of France is Paris.\r\n")
        assert re.search(r"\x1b\[2mThe user asks[^\x1b]*\x1b\[0m", terminal.screen)
        assert terminal.process.wait() == 0


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_ctrl_c_stops_the_answer_not_the_server(server: RunningServer, flags: list[str]) -> None:
    with Terminal(server, "nano", *COUNT, *flags) as terminal:
        terminal.read_until('"text":"21"' if flags else "20, 21,")
        terminal.process.send_signal(signal.SIGINT)
        if flags:
            terminal.read_until('"done_reason":"interrupted"')
        assert terminal.process.wait() == 130
    assert "Paris" in run_cli(server.environment, "run", "nano", FRANCE).stdout


def test_options_of_an_answer(home_server: RunningServer, tmp_path: Path) -> None:
    """Each changes the answer or the output of `ps`."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        done = run_cli(home_server.environment, "run", "nano", *arguments)
        assert done.returncode == 0, done.stderr
        return done

    def loaded() -> dict[str, object]:
        answer = httpx.get(f"{home_server.url}/api/ps", trust_env=False).json()["models"]
        found: dict[str, object] = answer[0]
        return found

    run(FRANCE, "--ctx", "40000", "--keepalive", "2h")
    assert loaded()["context_length"] == 40_192  # rounded up to a multiple of 256
    assert "reads 131,072 tokens at most, not 200,000" in run(FRANCE, "--ctx", "200000").stderr
    run(FRANCE, "--keep-alive", "-1")
    assert str(loaded()["expires_at"]) > "2100"
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "integer", "minimum": 10000000, "maximum": 99999999}')
    free = ("Draw.", "--think=false", "--format", str(schema), "--temperature")
    assert run(*free, "2", "--seed", "7").stdout == run(*free, "2", "--seed", "7").stdout
    assert run(*free, "2", "--seed", "7").stdout != run(*free, "2", "--seed", "8").stdout
    assert run(*free, "0", "--seed", "7").stdout == run(*free, "0", "--seed", "8").stdout
    greedy = run(FRANCE, "--format", "json", "--temperature", "0")  # else it may never end
    assert isinstance(json.loads(greedy.stdout), dict)
    schema.write_text('{"type": "array", "items": {"const": 4}, "minItems": 2, "maxItems": 2}')
    assert json.loads(run(FRANCE, "--format", str(schema)).stdout) == [4, 4]
    assert run(FRANCE, "--think=false").stderr == ""
    assert len(run(FRANCE, "--effort", "high").stderr) > len(run(FRANCE, "--think").stderr) > 0
    assert run("--think", FRANCE).stdout == PARIS
    system = run(FRANCE, "--json", "--system", "You are a pirate who likes long sentences.")
    counts = [json.loads(run.stdout.splitlines()[-1]) for run in (run(FRANCE, "--json"), system)]
    assert counts[0]["prompt_eval_count"] < counts[1]["prompt_eval_count"]


def test_a_policy_judges_a_text(cli: Cli, tmp_path: Path) -> None:
    """It is the system message, as the same text after --system is."""
    policy, france = str(tmp_path / "policy.md"), ("run", "nano", FRANCE, "--hide-reasoning")
    Path(policy).write_text("You are a pirate.")
    by_preset = cli(*france, "--preset", "Policy", "--system-file", policy)
    by_hand = cli(*france, "--system", "You are a pirate.", "--temperature", "0")
    assert by_preset.returncode == 0, by_preset.stderr
    assert by_preset.stdout == by_hand.stdout
    for options, said in (
        (["--preset", "policy"], "needs a policy"),
        (["--system-file", policy, "--system", "Hi"], "two system messages"),
        (["--system-file", f"{policy}.none"], "there is no file"),
        (["--preset", "polcy"], "Did you mean policy?"),
    ):
        refused = cli(*france, *options)
        assert (refused.returncode, refused.stdout) in ((2, ""), (3, ""))
        assert said in refused.stderr


@pytest.mark.quick
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "yaml"], "there is no file yaml"),
        (["--format", "{]"], "the schema is not a JSON schema"),
        (["--keepalive", "soon"], "soon"),
        (["--ctx", "0"], "--ctx"),
        (["--temperature", "hot"], "--temperature"),
        (["--temperature", "nan"], "--temperature is a number from 0 to 2, not 'nan'"),
        (["--seed", "9" * 20], "--seed is a whole number from 0 to 2147483647, not '99999"),
        (["--effort", "huge"], "--effort: 'huge' is not one of"),
        (["--think=deep"], "--think"),
    ],
)
def test_options_that_cannot_be(fresh: dict[str, str], arguments: list[str], message: str) -> None:
    """They are refused before a server is started."""
    done = run_cli(fresh, "run", *arguments, "nano", "hi")
    assert done.returncode == 2
    assert message in done.stderr
    assert "$" not in done.stderr
    assert run_cli(fresh, "status").returncode == 7


def test_a_text_in_the_place_of_the_model(fresh: dict[str, str], nano_gguf: Path) -> None:
    """It is asked of the newest model, which is named."""
    done = run_cli(fresh, "run", FRANCE)
    assert done.returncode == 2
    assert "no model is on this machine yet" in done.stderr
    models = Path(fresh["GPTOSS_HOME"]) / "models"
    models.mkdir(exist_ok=True)
    (models / "mine.gguf").hardlink_to(nano_gguf)
    for arguments in ((FRANCE,), ("What is", "the capital", "of France?")):
        done = run_cli(fresh, "run", *arguments)
        assert done.stdout == PARIS, done.stderr
        assert done.stderr.startswith("No model is named: asking mine.\n")
    done = run_cli(fresh, "run", "hello")  # which could be a model
    assert done.returncode == 2
    assert "hello was taken as the model" in done.stderr


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_the_context_grows_for_a_long_prompt(
    own_server: RunningServer, tmp_path: Path, flags: list[str]
) -> None:
    """It says so before it loads: on stderr, or as an event."""
    (tmp_path / "prompt").write_text("word " * 33_000)
    with (tmp_path / "prompt").open() as prompt:
        process = subprocess.Popen(
            [sys.executable, "-m", "gptoss_local", "run", "nano", *flags],
            env=own_server.environment,
            stdin=prompt,
            stdout=subprocess.PIPE if flags else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL if flags else subprocess.PIPE,
            text=True,
        )
    with process:  # the prompt is not read to its end, which takes a minute
        stream = process.stdout or process.stderr
        assert stream is not None
        line = stream.readline()
        process.kill()
    if flags:
        event = json.loads(line)
        assert (event["event"], event["model"]) == ("context_growth", "nano")
        assert (event["from"], event["to"]) == (32_768, 65_536)
    else:
        assert line.endswith("the context of nano grows from 32,768 to 65,536.\n")
