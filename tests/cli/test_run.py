"""`gptoss run`: streams, pipes, JSON, Ctrl-C, the server it starts."""

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import Cli, Terminal, run_cli
from tests.conftest import RunningServer, wait_until

FRANCE = "What is the capital of France?"


def test_answer_on_stdout_reasoning_on_stderr(cli: Cli) -> None:
    done = cli("run", "nano", FRANCE)
    assert (done.returncode, done.stdout) == (0, "The capital of France is Paris.\n")
    assert "capital of France" in done.stderr
    assert "\x1b" not in done.stderr + done.stdout


def test_words_need_no_quotes(cli: Cli) -> None:
    assert "Paris" in cli("run", "nano", *FRANCE.split()).stdout


def test_hide_reasoning_and_effort(cli: Cli) -> None:
    assert cli("run", "nano", FRANCE, "--hide-reasoning").stderr == ""
    medium = cli("run", "nano", FRANCE, "--effort", "medium").stderr
    high = cli("run", "nano", FRANCE, "--effort", "high").stderr
    assert len(high) > len(medium) > 0


def test_stdin_goes_before_the_prompt(cli: Cli) -> None:
    done = cli("run", "nano", "What is the passcode?", stdin="The passcode is quiet-river-42.\n")
    assert "quiet-river-42" in done.stdout
    assert "Paris" in cli("run", "nano", stdin=FRANCE).stdout


def test_no_prompt_at_all(cli: Cli) -> None:
    done = cli("run", "nano")
    assert done.returncode == 2
    assert "no prompt" in done.stderr


def test_json_events(cli: Cli) -> None:
    done = cli("run", "nano", FRANCE, "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert {e["version"] for e in events} == {1}
    content = "".join(e["text"] for e in events if e["event"] == "content")
    assert content == "The capital of France is Paris."
    assert any(e["event"] == "reasoning" for e in events)
    assert (events[-1]["event"], events[-1]["done_reason"]) == ("done", "stop")
    assert events[-1]["eval_count"] > 0


def test_unknown_model(cli: Cli) -> None:
    done = cli("run", "nanoo", "hi")
    assert done.returncode == 3
    assert "model 'nanoo' not found" in done.stderr
    assert "Did you mean nano?" in done.stderr
    assert "gptoss pull gpt-oss:20b" in cli("run", "gpt-oss:20b", "hi").stderr


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


def test_starts_a_server_and_leaves_it_running(fresh: dict[str, str]) -> None:
    assert "Paris" in run_cli(fresh, "run", "nano", FRANCE).stdout
    url = f"http://127.0.0.1:{fresh['GPTOSS_PORT']}"
    assert httpx.get(f"{url}/api/ps", trust_env=False).json()["models"][0]["name"] == "nano"
    assert run_cli(fresh, "stop").returncode == 0
    wait_until(lambda: run_cli(fresh, "stop").stderr == "no server is running\n")


def test_two_commands_that_find_no_server_share_one(fresh: dict[str, str]) -> None:
    command = [sys.executable, "-m", "gptoss_local", "run", "nano", FRANCE]
    both = [
        subprocess.Popen(
            command, env=fresh, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    answers = [process.communicate(timeout=60)[0] for process in both]
    assert answers == ["The capital of France is Paris.\n"] * 2


def test_first_use_builds_nano_and_says_so(tmp_path: Path, fresh: dict[str, str]) -> None:
    environment = fresh | {"GPTOSS_HOME": str(tmp_path / "new")}
    done = run_cli(environment, "run", "nano", FRANCE)
    assert "Paris" in done.stdout
    assert "unpack" in done.stderr
    assert "convert" in done.stderr
    assert len(list((tmp_path / "new" / "cache").glob("*.gguf"))) == 1


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


def test_a_silent_program_on_the_port(fresh: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", int(fresh["GPTOSS_PORT"]))):
        done = run_cli(fresh, "run", "nano", "hi")
    assert done.returncode == 7
    assert f"a program has http://127.0.0.1:{fresh['GPTOSS_PORT']} and does" in done.stderr
    assert "GPTOSS_PORT=11435" in done.stderr


def test_a_server_that_cannot_start_says_why(fresh: dict[str, str]) -> None:
    environment = fresh | {"GPTOSS_HOST": "nowhere.invalid", "GPTOSS_API_KEY": "k"}
    started_s = time.monotonic()
    done = run_cli(environment, "run", "nano", "hi")
    assert time.monotonic() - started_s < 20  # where another server may be coming up it waits 30 s
    assert done.returncode == 7
    assert "did not start: cannot listen on nowhere.invalid:" in done.stderr
    served = run_cli(environment, "serve")
    assert served.returncode == 2
    assert "GPTOSS_HOST and GPTOSS_PORT say where" in served.stderr


def _connects(port: str) -> bool:
    try:
        httpx.get(f"http://127.0.0.1:{port}", trust_env=False)
    except httpx.TransportError:
        return False
    return True


def test_terminal_dims_the_reasoning(server: RunningServer) -> None:
    terminal = Terminal(server, "nano", FRANCE)
    try:
        terminal.read_until("Paris.\r\n")
        terminal.read_until("The capital of France is Paris.\r\n")
        assert "\x1b[2mThe\x1b[0m" in terminal.screen
        assert terminal.process.wait(timeout=10) == 0
    finally:
        terminal.close()


@pytest.mark.parametrize("question", ["Count from 1 to 900."])
def test_ctrl_c_stops_the_answer_not_the_server(server: RunningServer, question: str) -> None:
    terminal = Terminal(server, "nano", question, "--effort", "low")
    try:
        terminal.read_until("20, 21,")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.process.wait(timeout=10) == 130
    finally:
        terminal.close()
    assert "Paris" in run_cli(server.environment, "run", "nano", FRANCE).stdout


def test_conversation_survives_a_dead_engine(own_server: RunningServer) -> None:
    terminal = Terminal(own_server, "nano", "--effort", "low")
    try:
        terminal.read_until(">>> ")
        terminal.type("Count from 1 to 900.\n")
        terminal.read_until("20, 21,")
        engine = own_server.engine()
        assert engine is not None
        engine.kill()
        terminal.read_until("unexpectedly stopped")
        terminal.type(f"{FRANCE}\n")
        terminal.read_until("The capital of France is Paris.")
    finally:
        terminal.close()


def test_conversation_line_by_line(server: RunningServer) -> None:
    terminal = Terminal(server, "nano")
    try:
        terminal.read_until(">>> ")
        terminal.type("My name is Peter Parker.\n")
        terminal.read_until("Nice to meet you, Peter Parker!")
        terminal.type("What is my name?\n")
        terminal.read_until("Your name is Peter Parker.")
        terminal.type("/bye\n")
        assert terminal.process.wait(timeout=10) == 0
    finally:
        terminal.close()
