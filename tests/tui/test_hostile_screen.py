"""Nothing from a server, a chat or a tool drives the terminal of the chat: the bytes it gets."""

import os
import sqlite3
import sys
from pathlib import Path

import pytest

from gptoss_local.talk.history import History
from tests.cli.conftest import PseudoTerminal
from tests.cli.hostile import EVIL, hostile_server
from tests.conftest import free_port

pytestmark = pytest.mark.skipif(os.name != "posix", reason="no pty on Windows")

_CONFIG = """
[tools.sh]
description = "%s"
command = ["printf", "%%b", "{cmd}"]
parameters = { type = "object", properties = { cmd = { type = "string" } } }
"""
_PAYLOADS = ("\x1b]52;c;cHduZWQ=", "\x1b]0;pwned", "\x1b[8m", "\x1bP+q", "\x9b", "\x9d", "\x90",
             "\x0e", "\x05", "\x7f", "\u202e", "\u2066")  # fmt: skip


class Screen(PseudoTerminal):
    """The chat in a terminal of 100 columns."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        command = [sys.executable, "-m", "gptoss_local", "chat", "nano"]
        size = {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40", "LC_ALL": "C.UTF-8"}
        super().__init__(command, environment | size, folder)

    def press(self, keys: str, until: str) -> None:
        """Press keys, and wait for their effect."""
        self.written = getattr(self, "written", "") + self.screen
        self.screen = ""
        self.type(keys)
        self.read_until(until)


@pytest.fixture
def environment(empty_home: Path, tmp_path: Path) -> dict[str, str]:
    """A user with a hostile chat and a tool."""
    history = History(empty_home / "chats.sqlite3")
    chat_id = history.new_chat("nano", "low")
    turn = history.add(chat_id, None, "user", f"needle {EVIL}")
    call = {"function": {"name": EVIL, "arguments": {"x": EVIL}}}
    stats = {"error": EVIL}
    turn = history.add(chat_id, turn.id, "assistant", EVIL, reasoning=EVIL, tool_calls=(call,),
                       state="failed", stats=stats)  # fmt: skip
    history.add(chat_id, turn.id, "tool", EVIL, tool_name=EVIL)
    history.close()
    with sqlite3.connect(empty_home / "chats.sqlite3") as store:
        store.execute("UPDATE chat SET title = ?", (EVIL,))
    store.close()
    (tmp_path / "gptoss").mkdir()
    (tmp_path / "gptoss" / "config.toml").write_text(_CONFIG % "evil \\u001b]52;c;cHduZWQ=\\u0007")
    home = {"GPTOSS_HOME": str(empty_home), "XDG_CONFIG_HOME": str(tmp_path)}
    return os.environ | home | {"GPTOSS_PORT": str(free_port())}


def test_every_screen(environment: dict[str, str], tmp_path: Path) -> None:
    with hostile_server() as port:
        screen = Screen(environment | {"GPTOSS_PORT": str(port)}, tmp_path)
        try:
            screen.press("", "Message")
            screen.press("\x1bOR", "Models")  # F3
            screen.press("\x1b", "Message")
            screen.press("\x1bOQ", "Chats")  # F2
            screen.press("needle", "needle")
            screen.press("\r", "1 line")
            screen.press("/tools\r", "evil")
            screen.press("\x1b", "Message")
            screen.press("hi\r", "asks to run sh")
            screen.press("\x1b", "F1 help")
            screen.press("\x1b[20~", "Harmony")  # F9
            screen.press("\x1b", "F1 help")
            screen.press("/model pwned\r", "not on this machine")
            screen.press("/copy\r", "Copied")
        finally:
            screen.close()
    assert "evil" in screen.written
    assert [payload for payload in _PAYLOADS if payload in screen.written] == []


def test_errors(environment: dict[str, str], tmp_path: Path) -> None:
    """A server's refusals are shown in toasts and in the failed answer."""
    with hostile_server(refuses=True) as port:
        screen = Screen(environment | {"GPTOSS_PORT": str(port)}, tmp_path)
        try:
            screen.press("", "evil")
            screen.press("hi\r", "failed")
            screen.press("/model\r", "evil")
        finally:
            screen.close()
    screen.written += screen.screen
    assert [payload for payload in _PAYLOADS if payload in screen.written] == []
