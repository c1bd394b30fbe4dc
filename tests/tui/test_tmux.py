"""The chat in a terminal of its own: keys go in through tmux, and its screen is read back."""

import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import RunningServer, wait_until
from tests.tui.running_chat import FRANCE, PARIS

pytestmark = pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not installed")


class Tmux:
    """A terminal, on a tmux server of its own."""

    def __init__(self, size: tuple[int, int]) -> None:
        self._name = f"gptoss-{secrets.token_hex(4)}"
        self._size = size

    def start(self, command: list[str], environment: dict[str, str]) -> None:
        width, height = map(str, self._size)
        self._tmux("new-session", "-d", "-x", width, "-y", height, *command, env=environment)
        self._tmux("set", "-g", "window-size", "manual")

    def press(self, *keys: str) -> None:
        """Names as tmux has them, `Enter` or `F1`."""
        self._tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)

    def paste(self, text: str) -> None:
        self._tmux("set-buffer", text)
        self._tmux("paste-buffer", "-p")  # bracketed, where the program asked for it

    def resize(self, size: tuple[int, int]) -> None:
        self._tmux("resize-window", "-x", str(size[0]), "-y", str(size[1]))

    def rows(self) -> list[str]:
        return self._tmux("capture-pane", "-p").splitlines()

    def wait_for(self, text: str) -> list[str]:
        """The rows of the screen, once `text` is on it."""
        deadline_s = time.monotonic() + 30
        while text not in "\n".join(rows := self.rows()):
            assert time.monotonic() < deadline_s, "\n".join(rows)
            time.sleep(0.05)
        return rows

    @property
    def is_running(self) -> bool:
        return self._run("has-session").returncode == 0

    @property
    def has_mouse(self) -> bool:
        """Whether the program asked for the mouse."""
        return self._tmux("display-message", "-p", "#{mouse_any_flag}").strip() == "1"

    def close(self) -> None:
        self._run("kill-server")

    def _tmux(self, *arguments: str, env: dict[str, str] | None = None) -> str:
        done = self._run(*arguments, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _run(
        self, *arguments: str, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        command = ["tmux", "-L", self._name, "-f", "/dev/null", *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True)


@pytest.fixture(params=[(80, 24), (120, 40)], ids=["80x24", "120x40"])
def terminal(request: pytest.FixtureRequest) -> Iterator[Tmux]:
    tmux = Tmux(request.param)
    yield tmux
    tmux.close()


def test_a_chat_in_a_terminal(terminal: Tmux, server: RunningServer, tmp_path: Path) -> None:
    environment = server.environment | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    environment |= {"HOME": str(tmp_path)}
    command = [sys.executable, "-m", "gptoss_local", "chat", "nano", "--effort", "low"]
    terminal.start(command, environment)
    width, height = terminal._size
    rows = terminal.wait_for("Message, /command or @file")
    assert "Nothing you type leaves it." in "\n".join(rows)
    assert max(map(len, rows)) <= width
    assert len(rows) == height
    assert rows[-1].strip().startswith("nano │ low")
    assert rows[-1].strip().endswith("F1 help")

    terminal.type(FRANCE)
    terminal.press("Enter")
    rows = terminal.wait_for(PARIS)
    assert any(row.strip().startswith(f"❯ {FRANCE}") for row in rows)
    rows = terminal.wait_for("tok/s")
    assert "/32,768" in rows[-1]

    terminal.paste("one\ntwo\n")  # waits to be sent
    rows = terminal.wait_for("two")
    assert any("one" in row for row in rows)
    assert "❯ one" not in "\n".join(rows)
    terminal.press("C-c")

    terminal.press("F1")
    terminal.wait_for("─ Help ─")
    terminal.press("Escape")
    terminal.resize((width - 20, height - 4))
    rows = terminal.wait_for("Message, /command or @file")
    assert len(rows) == height - 4
    assert max(map(len, rows)) <= width - 20

    assert terminal.has_mouse
    for word in ("off", "on"):
        terminal.type(f"/mouse {word}")
        terminal.press("Enter")
        wait_until(lambda is_on=word == "on": terminal.has_mouse == is_on)

    terminal.type("/quit")
    terminal.press("Enter")
    wait_until(lambda: not terminal.is_running)
