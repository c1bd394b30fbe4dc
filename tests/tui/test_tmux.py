"""The chat in a terminal of its own: keys go in through tmux, and its screen is read back."""

import re
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from gptoss_local.harmony import Vocabulary
from tests.conftest import RunningServer, wait_until
from tests.scripted_engine import Script, answer, run_scripted_server
from tests.tui.running_chat import FRANCE, PARIS
from tests.tui.test_work import WRONG, patch_of, raw

SIZE = (80, 24)
_COMMAND = [sys.executable, "-m", "gptoss_local", "chat", "nano", "--effort", "low"]

pytestmark = pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not installed")


def _has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class Tmux:
    """A terminal, on a tmux server of its own."""

    def __init__(self, size: tuple[int, int]) -> None:
        self._name = f"gptoss-{secrets.token_hex(4)}"
        self._size = size

    def start(self, command: list[str], environment: dict[str, str]) -> None:
        width, height = map(str, self._size)
        self._tmux("new-session", "-d", "-x", width, "-y", height, *command, env=environment)

    def press(self, *keys: str) -> None:
        """Names as tmux has them, `Enter` or `F1`."""
        self._tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)

    def enter(self, text: str) -> None:
        self.type(text)
        self.press("Enter")

    def paste(self, text: str) -> None:
        self._tmux("set-buffer", text)
        self._tmux("paste-buffer", "-p")  # bracketed, where the program asked for it

    def write(self, text: str) -> None:
        """Send it, with keys as bytes, in one write."""
        self.press("-H", *text.encode().hex(" ").split())

    def resize(self, size: tuple[int, int]) -> None:
        self._tmux("resize-window", "-x", str(size[0]), "-y", str(size[1]))

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p")

    def wait_for(self, pattern: str) -> None:
        """Wait until the screen has the text."""
        try:
            wait_until(lambda: re.search(pattern, self.screen()))
        except AssertionError as error:
            raise AssertionError(f"no {pattern!r} on\n{self.screen()}") from error

    def wait_for_size(self, size: tuple[int, int]) -> None:
        """Wait until the app has drawn all of a screen of this size, and no more."""

        def is_drawn() -> bool:
            rows = self.screen().rstrip("\n").split("\n")
            widest = max(map(len, rows))
            return len(rows) == size[1] and size[0] - 3 <= widest <= size[0]

        wait_until(is_drawn)  # tmux tells a program of its size with a delay

    @property
    def is_running(self) -> bool:
        return self._run("has-session").returncode == 0

    @property
    def has_mouse(self) -> bool:
        """Whether the program asked for the mouse."""
        return self._tmux("display-message", "-p", "#{mouse_any_flag}").strip() == "1"

    @property
    def has_rung(self) -> bool:
        return self._tmux("display-message", "-p", "#{window_bell_flag}").strip() == "1"

    def close(self) -> None:
        """End the server, and wait for that: a new one would find the old one's socket."""
        server = self._run("display-message", "-p", "#{pid}").stdout.strip()
        self._run("kill-server")
        if server:
            wait_until(lambda: _has_ended(int(server)))

    def _tmux(self, *arguments: str, env: dict[str, str] | None = None) -> str:
        done = self._run(*arguments, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _run(
        self, *arguments: str, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        command = ["tmux", "-L", self._name, "-f", "/dev/null", *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True)


@pytest.fixture
def terminal() -> Iterator[Tmux]:
    tmux = Tmux(SIZE)
    yield tmux
    tmux.close()


@pytest.fixture
def start_chat(terminal: Tmux, server: RunningServer, tmp_path: Path) -> Callable[..., None]:
    """Starts a chat on nano, in a shell if wanted."""

    def start(*, in_shell: bool = False) -> None:
        variables = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "HOME": str(tmp_path),
                     "PS1": "shell> ", "CHAT": shlex.join(_COMMAND)}  # fmt: skip
        environment = server.environment | variables
        terminal.start(["bash", "--norc", "-i"] if in_shell else _COMMAND, environment)
        if in_shell:
            terminal.enter("$CHAT")
        terminal.wait_for("Message, /command or @file")

    return start


def test_a_draft_outlives_a_pause_and_a_kill(
    terminal: Tmux, start_chat: Callable[..., None]
) -> None:
    start_chat(in_shell=True)
    terminal.type("a long draft")
    terminal.press("C-z")
    terminal.wait_for("Stopped")
    terminal.enter("fg")
    terminal.wait_for("│ a long draft")
    terminal.type(", to its end")
    terminal.wait_for("│ a long draft, to its end")
    time.sleep(3)  # it is stored once a second
    terminal.press("C-z")
    terminal.wait_for("Stopped(.|\n)*Stopped")
    terminal.enter("kill -9 %1; clear; $CHAT")
    terminal.wait_for("Message, /command or @file")
    terminal.press("Up")
    terminal.wait_for("│ a long draft, to its end")


def test_a_chat_in_a_terminal(terminal: Tmux, start_chat: Callable[..., None]) -> None:
    start_chat()
    terminal.wait_for_size(SIZE)
    terminal.wait_for(r" nano │ low .* F1 help *\n$")
    terminal.wait_for("Nothing you type leaves it.")
    terminal.wait_for("Message, /command or @file")

    terminal.type(FRANCE)
    terminal.press("Enter")
    terminal.wait_for(f"❯ {re.escape(FRANCE)}")
    terminal.wait_for(re.escape(PARIS))
    terminal.wait_for(r"tok/s .*│ ctx \d+/\d")
    assert not terminal.has_rung

    terminal.write(f"{FRANCE}\r\x1b[O")  # and the window is left
    wait_until(lambda: terminal.has_rung)
    terminal.write("\x1b[I")
    wait_until(lambda: terminal.screen().count(PARIS) == 2)

    terminal.write("one\x1b\rtwo\x1b.\x1b5\x1bx\x1b[D!")  # Alt keys among others
    terminal.wait_for(r"│ one *│\n.*│ tw!o ")
    terminal.press("C-c")
    terminal.paste("\x1b]0;\x07\rone\ntwo\n")  # waits to be sent, and none of it is a key
    terminal.wait_for(r"│ one *│\n.*│ two")
    assert "❯ one" not in terminal.screen()
    terminal.press("-H", "ff")  # a byte that is no text
    terminal.wait_for("\ufffd")
    terminal.press("C-c")

    terminal.press("F1")
    terminal.wait_for("─ Help ─")
    terminal.press("Escape")
    smaller = SIZE[0] - 20, SIZE[1] - 4
    terminal.resize(smaller)
    terminal.wait_for_size(smaller)
    terminal.wait_for("Message, /command or @file")

    for word in ("off", "on"):
        assert terminal.has_mouse == (word == "off")
        terminal.type(f"/mouse {word}")
        terminal.press("Enter")
        wait_until(lambda is_on=word == "on": terminal.has_mouse == is_on)

    terminal.type("/quit")
    terminal.press("Enter")
    wait_until(lambda: not terminal.is_running)


def test_keys_in_one_write_answer_a_question_and_go_on(
    terminal: Tmux, nano_home: Path, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    folder, script, down = tmp_path / "work", Script(vocabulary), "\x1b[B"
    folder.mkdir()
    sums = folder / "sums.py"
    sums.write_text(WRONG)
    patch = raw(patch_of("a - b", "a + b"))
    script.say("one", patch, answer("Denied."))
    script.say("two", patch, answer("Done."))
    script.otherwise(answer("Heard."))
    with run_scripted_server(nano_home, script) as server:
        environment = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "HOME": str(tmp_path)}
        command = [*_COMMAND, "--work", str(folder)]
        terminal.start(command, server.environment | environment)
        terminal.wait_for("Message, /command or @file")
        terminal.enter("!basename $PWD")  # of the work, wherever the chat was started
        terminal.wait_for(r"! basename \$PWD\n +work\n")
        terminal.press("Escape")
        terminal.wait_for(r"exit status 0\s+╭")
        for question, answers, outcome in (
            ("one", f"{down}\rtoo slov\x7fw", "denied this call. too slow"),
            ("two", f"{down}{down}", "Done: sums.py"),
        ):
            terminal.enter(question)
            terminal.wait_for("Allow once")
            time.sleep(1)  # keys that come sooner were not meant for the question
            assert sums.read_text() == WRONG
            terminal.write(f"{answers}\rafter {question}x\x7f\rdrafx\x7ft")
            terminal.wait_for(rf"{outcome}(.|\n)*❯ after {question}\s(.|\n)*Heard.(.|\n)*│ draft ")
            terminal.press("C-c")
            terminal.wait_for("Message, /command or @file")
    assert sums.read_text() == WRONG.replace("-", "+")
