"""`gptoss chat` as a process in a terminal: it starts the server, and a kill loses nothing."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from gptoss_local.base.settings import load_settings
from gptoss_local.cli.chat import with_values
from gptoss_local.harmony import Vocabulary
from gptoss_local.talk.history import History, Turn
from gptoss_local.talk.presets import Preset, save_preset
from gptoss_local.talk.tools import ToolSources
from tests.cli.conftest import READY, Terminal, chat_in_terminal, run_cli
from tests.conftest import RunningServer, give_nano, wait_until
from tests.scripted_engine import Script, calls, run_scripted_server
from tui.conversation import composed_of
from tui.paste import shown_parts


def last_turn(home: str, back: int = 1) -> Turn:
    history = History(Path(home) / "chats.sqlite3")
    turn = history.branch(history.chats()[0].leaf_id)[-back]
    history.close()
    return turn


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, None], ids=str)
def test_an_answer_that_streams_outlives_its_chat(
    fresh: dict[str, str], end: signal.Signals | None
) -> None:
    """SIGTERM also gives the terminal back as it was; a server that was stopped starts again.

    A terminal that goes away, None, ends the chat, too.
    """
    with chat_in_terminal(fresh, "nano", "Count from 1 to", "900.", "--effort", "low") as chat:
        chat.read_until("20, 21,")

        def is_saved() -> bool:
            chat.drain()
            return "20, 21" in last_turn(fresh["GPTOSS_HOME"]).content

        if end == signal.SIGKILL:
            wait_until(is_saved)
        if end is None:
            chat.hang_up()
            chat.process.wait(60)
            last = last_turn(fresh["GPTOSS_HOME"])
            assert (last.state, "20, 21" in last.content) == ("stopped", True)
            return
        chat.process.send_signal(end)
        if end == signal.SIGTERM:
            chat.read_until("gptoss chat --chat 1")
            assert chat.process.wait() == 0
            assert chat.screen.count("\x1b[?1049l") == 1
            last = last_turn(fresh["GPTOSS_HOME"])
            assert (last.state, "20, 21" in last.content) == ("stopped", True)
        chat.process.wait()
    with chat_in_terminal(fresh, "--resume") as chat:
        chat.read_until("20, 21,")
        chat.read_until("stopped")
        if end == signal.SIGTERM:
            assert run_cli(fresh, "stop").returncode == 0
            wait_until(lambda: run_cli(fresh, "status").returncode == 7)
        chat.type("What is the capital of France?\r")
        chat.read_until("Paris")
        chat.type("/bye\r")
        chat.read_until("gptoss chat --chat 1")
        assert chat.process.wait() == 0
    assert run_cli(fresh, "status").returncode == 0


def test_a_tool_that_runs_ends_with_the_chat(
    empty_home: Path, vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(90)"
    command = json.dumps([sys.executable, "-c", code, str(tmp_path / "pid")])
    (tmp_path / "gptoss").mkdir()
    (tmp_path / "gptoss" / "config.toml").write_text(
        f"[tools.sleep]\ncommand = {command}\ntimeout_s = 90\n"
    )
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    toolbox = ToolSources(load_settings(), Path()).toolbox()
    asyncio.run(toolbox.prepare())
    toolbox.allow(toolbox.tools["sleep"], "always")
    script = Script(vocabulary)
    script.otherwise(calls("sleep", {}))

    def is_running() -> bool:
        chat.drain()
        return (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text())

    with (
        run_scripted_server(empty_home, script) as server,
        chat_in_terminal(server, "nano") as chat,
    ):
        chat.read_until(READY)
        chat.type("Sleep\r")
        wait_until(is_running)
        chat.type("/quit\r")
        chat.read_until("gptoss chat --chat 1")
        assert chat.process.wait() == 0
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_chat_needs_a_terminal(fresh: dict[str, str]) -> None:
    done = run_cli(fresh, "chat")
    assert done.returncode == 2
    assert "gptoss run" in done.stderr


@pytest.mark.timing
def test_cold_start(fresh: dict[str, str]) -> None:
    """CPU time to the first prompt, as wall time would measure other programs, too.

    0.6 s is the aim; 0.47 s passed, nearly all of it CPU time, on an idle machine with 2 cores.
    Processes that share the caches make it more.
    """
    seconds = []
    for _ in range(4):  # the first one starts the server, which compiles its imports
        with chat_in_terminal(fresh, "nano") as chat:
            chat.read_until(READY)
            used = psutil.Process(chat.process.pid).cpu_times()
            seconds.append(used.user + used.system)
    assert min(seconds[1:]) <= 1.2


@pytest.mark.parametrize("variables", [{"TERM": "dumb"}, {"ACCESSIBLE": "1"}], ids=str)
def test_a_terminal_that_cannot_be_drawn_on(
    server: RunningServer,
    tmp_path: Path,
    nano_home: Path,
    variables: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It gets the line-by-line chat, which begins with a preset and is saved as any other."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    give_nano(nano_home, tmp_path / "cache")
    save_preset(
        "guard", Preset(system="The passcode is quiet-river-42.", options={"temperature": 0.0})
    )
    user = server.environment | {"GPTOSS_HOME": str(tmp_path), "TERM": "xterm"} | variables
    prompt = "You: " if "ACCESSIBLE" in variables else ">>> "

    def talk(*arguments: str, says: list[tuple[str, str]]) -> None:
        with Terminal(user, *arguments, "--effort", "low", command="chat") as terminal:
            terminal.read_until(prompt)
            for line, answer in [*says, ("/bye", "gptoss chat --chat ")]:
                terminal.type(f"{line}\n")
                terminal.read_until(answer)
                assert "\x1b" not in terminal.screen
                terminal.screen = ""
            assert terminal.process.wait() == 0

    passcode = ("What is the passcode?", "The passcode is quiet-river-42.")
    talk("nano", "--preset", "guard", says=[passcode])
    talk("--resume", says=[passcode, ("/retry", passcode[1]), ("/clear", "Cleared"),
                           ("What is 2 + 3?", "2 + 3 = 5"), ("!echo fi", "next message"),
                           ("Spell Paris.", "demo model")])  # fmt: skip
    history = History(tmp_path / "chats.sqlite3")
    latest, first = [
        [turn.content for turn in history.tree(chat.id) if turn.role != "system"]
        for chat in history.chats()
    ]
    roles = [turn.role for turn in history.tree(history.chats()[1].id)]
    with_output = history.tree(history.chats()[0].id)[-2]
    history.close()
    assert latest[0] == "What is 2 + 3?"
    assert "2 + 3 = 5" in latest[1]
    assert [part[:15] for part, _ in shown_parts(composed_of(with_output))] == [
        "output: echo fi", "",
    ]  # fmt: skip
    assert first == 3 * list(passcode)
    assert roles == ["system", *3 * ["user", "assistant"]]
    for number in (0, signal.SIGHUP, signal.SIGTERM):
        with Terminal(user, "Count from 1", f"to {900 + number}.", command="chat") as terminal:
            terminal.read_until("20, 21,")
            terminal.process.send_signal(number) if number else terminal.hang_up()
            terminal.process.wait(60)
        assert f"{900 + number}" in last_turn(str(tmp_path), 2).content
        assert "20, 21," in last_turn(str(tmp_path)).content


def test_the_first_prompt_waits_for_no_import_of_what_it_does_not_need() -> None:
    script = "import sys, gptoss_local.cli.main, tui.app; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert "textual" in loaded
    assert not loaded & {"markdown_it", "psutil", "pydantic", "numpy", "llama_cpp"}


@pytest.mark.parametrize(
    ("typed", "given"),
    [
        ("--work", "--work="),
        ("--work nano", "--work= nano"),
        ("nano --work in", "nano --work in"),
        ("--work ../gone", "--work ../gone"),
        ("nano --work --temporary", "nano --work= --temporary"),
        ("nano -- --work", "nano -- --work"),
    ],
)
def test_a_folder_after_work(
    typed: str, given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path)
    assert with_values(typed.split()) == given.split()


def test_a_chat_that_works_in_a_folder(fresh: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Be brief.")
    with chat_in_terminal(fresh, "nano", "--work", str(tmp_path)) as chat:
        chat.read_until("AGENTS.md")  # one word: a long folder wraps the line before it
        chat.read_until("work │ nano")
        chat.type("/quit\r")
        assert chat.process.wait() == 0
    with chat_in_terminal(fresh, "nano", "--work", str(tmp_path / "gone")) as chat:
        chat.read_until("there is no folder")
        assert chat.process.wait() == 2
    with chat_in_terminal(fresh | {"ACCESSIBLE": "1"}, "nano", "--work") as chat:
        chat.read_until("--work needs a terminal that can be drawn on")
        assert chat.process.wait() == 2
