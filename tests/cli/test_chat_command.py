"""`gptoss chat` as a process in a terminal: it starts the server, and a kill loses nothing."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gptoss_local.harmony import Vocabulary
from gptoss_local.talk.history import History
from tests.cli.conftest import PseudoTerminal, run_cli
from tests.conftest import RunningServer, wait_until
from tests.scripted_engine import Script, calls, run_scripted_server

READY = "essage, /command"  # the cursor stands on the first letter, which is written apart


class ChatTerminal(PseudoTerminal):
    """The chat in a terminal of 100 x 30."""

    def __init__(self, environment: dict[str, str], *arguments: str) -> None:
        command = [sys.executable, "-m", "gptoss_local", "chat", *arguments]
        super().__init__(command, environment | {"TERM": "xterm-256color"}, Path(), (30, 100))


@pytest.fixture
def terminals() -> Iterator[list[ChatTerminal]]:
    opened: list[ChatTerminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


def test_a_killed_chat_is_resumed(fresh: dict[str, str], terminals: list[ChatTerminal]) -> None:
    chats = Path(fresh["GPTOSS_HOME"]) / "chats.sqlite3"
    terminals.append(ChatTerminal(fresh, "nano", "--effort", "low"))
    terminals[0].read_until(READY)
    terminals[0].type("Count from 1 to 900.\r")
    terminals[0].read_until("20, 21,")

    def is_saved() -> bool:
        terminals[0].drain()
        history = History(chats)
        turns = history.branch(history.chats()[0].leaf_id)
        history.close()
        return "20, 21" in turns[-1].content

    wait_until(is_saved)
    terminals[0].process.send_signal(signal.SIGKILL)
    terminals[0].process.wait()
    terminals.append(ChatTerminal(fresh, "--resume"))
    terminals[1].read_until("20, 21,")
    terminals[1].read_until("stopped")
    terminals[1].type("What is the capital of France?\r")
    terminals[1].read_until("Paris")
    terminals[1].type("/bye\r")
    terminals[1].read_until("gptoss chat --chat 1")
    assert terminals[1].process.wait() == 0


def test_a_chat_that_is_asked_to_end(fresh: dict[str, str], terminals: list[ChatTerminal]) -> None:
    """It saves all there is, and gives the terminal back as it was."""
    terminals.append(ChatTerminal(fresh, "nano", "--effort", "low"))
    terminals[0].read_until(READY)
    terminals[0].type("Count from 1 to 900.\r")
    terminals[0].read_until("20, 21,")
    terminals[0].process.send_signal(signal.SIGTERM)
    terminals[0].read_until("gptoss chat --chat 1")
    assert terminals[0].process.wait() == 0
    assert terminals[0].screen.count("\x1b[?1049l") == 1
    history = History(Path(fresh["GPTOSS_HOME"]) / "chats.sqlite3")
    last = history.branch(history.chats()[0].leaf_id)[-1]
    history.close()
    assert (last.state, "20, 21" in last.content) == ("stopped", True)


def test_a_tool_that_runs_ends_with_the_chat(
    empty_home: Path, vocabulary: Vocabulary, terminals: list[ChatTerminal], tmp_path: Path
) -> None:
    code = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(90)"
    command = json.dumps([sys.executable, "-c", code, str(tmp_path / "pid")])
    (tmp_path / "gptoss").mkdir()
    (tmp_path / "gptoss" / "config.toml").write_text(
        f"[tools.sleep]\ncommand = {command}\ntimeout_s = 90\n"
    )
    script = Script(vocabulary)
    script.otherwise(calls("sleep", {}))
    with run_scripted_server(empty_home, script) as server:
        environment = server.environment | {"XDG_CONFIG_HOME": str(tmp_path)}
        terminals.append(ChatTerminal(environment, "nano"))
        chat = terminals[0]
        chat.read_until(READY)
        chat.type("Sleep\r")
        chat.read_until("Allow once")
        time.sleep(1)  # the question counts once no key was pressed for a while
        for key in ("\x1b[B", "\x1b[B", "\r"):  # from No to Allow once
            chat.type(key)
            time.sleep(0.2)
        wait_until(lambda: _pid_in(tmp_path / "pid", chat))
        chat.type("/quit\r")
        chat.read_until("gptoss chat --chat 1")
        assert chat.process.wait() == 0
        assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def _pid_in(path: Path, chat: ChatTerminal) -> str:
    chat.drain()
    return path.read_text() if path.exists() else ""


def test_a_server_that_was_stopped_is_started_again(
    fresh: dict[str, str], terminals: list[ChatTerminal]
) -> None:
    terminals.append(ChatTerminal(fresh, "nano", "--effort", "low"))
    terminals[0].read_until(READY)
    assert run_cli(fresh, "stop").returncode == 0
    wait_until(lambda: run_cli(fresh, "status").returncode == 7)
    terminals[0].type("What is the capital of France?\r")
    terminals[0].read_until("Paris")
    assert run_cli(fresh, "status").returncode == 0


def test_chat_needs_a_terminal(fresh: dict[str, str]) -> None:
    done = run_cli(fresh, "chat")
    assert done.returncode == 2
    assert "gptoss run" in done.stderr


@pytest.mark.timing
def test_cold_start(fresh: dict[str, str], terminals: list[ChatTerminal]) -> None:
    """CPU time to the first prompt, as wall time would measure other programs, too.

    0.6 s is the aim; 0.47 s passed, nearly all of it CPU time, on an idle machine with 2 cores.
    Processes that share the caches make it more.
    """
    seconds = []
    for _ in range(4):  # the first one starts the server, which compiles its imports
        terminals.append(ChatTerminal(fresh, "nano"))
        terminals[-1].read_until(READY)
        used = psutil.Process(terminals[-1].process.pid).cpu_times()
        seconds.append(used.user + used.system)
        terminals[-1].process.kill()
    print(f"first prompt after {min(seconds[1:]):.2f} s of CPU time")
    assert min(seconds[1:]) <= 1.2


def test_the_first_prompt_waits_for_no_import_of_what_it_does_not_need() -> None:
    script = "import sys, gptoss_local.cli.main, tui.app; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert "textual" in loaded
    assert not loaded & {"markdown_it", "psutil", "pydantic", "numpy", "llama_cpp"}


@pytest.mark.parametrize("variables", [{"TERM": "dumb"}, {"ACCESSIBLE": "1"}], ids=str)
def test_a_terminal_that_cannot_be_drawn_on(
    server: RunningServer, tmp_path: Path, nano_home: Path, variables: dict[str, str]
) -> None:
    """It gets the line-by-line chat, which continues a chat and is saved as any other."""
    home = tmp_path / "home"
    shutil.copytree(nano_home / "cache", home / "cache")
    history = History(home / "chats.sqlite3")
    chat_id = history.new_chat("nano", "low")
    turn = history.add(chat_id, None, "user", "My name is Peter Parker.")
    history.add(chat_id, turn.id, "assistant", "Nice to meet you, Peter Parker!", state="done")
    history.close()
    environment = server.environment | {"GPTOSS_HOME": str(home), "TERM": "xterm"} | variables
    command = [sys.executable, "-m", "gptoss_local", "chat", "--resume", "--effort", "low"]
    terminal = PseudoTerminal(command, environment, tmp_path)
    try:
        terminal.read_until("You: " if "ACCESSIBLE" in variables else ">>> ")
        terminal.type("What is my name?\n")
        terminal.read_until("Your name is Peter Parker.")
        written, terminal.screen = terminal.screen, ""
        terminal.type("/retry\n")
        terminal.read_until("Your name is Peter Parker.")
        terminal.type("/clear\n")
        terminal.read_until("Cleared")
        terminal.type("What is 2 + 3?\n")
        terminal.read_until("2 + 3 = 5")
        terminal.type("/bye\n")
        terminal.read_until("gptoss chat --chat ")
        assert terminal.process.wait() == 0
    finally:
        terminal.close()
    assert "\x1b" not in written + terminal.screen
    history = History(home / "chats.sqlite3")
    [latest, first] = history.chats()
    said = [turn.content for turn in history.tree(latest.id)]
    asked_again = [turn.content for turn in history.tree(first.id)]
    history.close()
    assert said[0] == "What is 2 + 3?"
    assert "2 + 3 = 5" in said[1]
    assert asked_again[2:] == 2 * ["What is my name?", "Your name is Peter Parker."]
