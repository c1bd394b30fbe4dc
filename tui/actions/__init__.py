"""What the commands do, and the registry of them all."""

import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import SuspendNotSupported

from gptoss_local.errors import UsageError
from tui.actions.answers import (
    again,
    compare,
    copy,
    copy_text,
    edit,
    edit_turn,
    inspect,
    retry,
    stats,
)
from tui.actions.chats import branch, export, new, quit_chat, resume, system
from tui.actions.choices import effort, model, mouse, set_option, theme, tools
from tui.commands import Command, Registry
from tui.screens.help import HelpDialog

if TYPE_CHECKING:
    from tui.screens.chat import ChatScreen

__all__ = ["REGISTRY", "copy_text", "edit_turn"]


async def editor(screen: "ChatScreen", _argument: str) -> None:
    """Write the message in $VISUAL or $EDITOR."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "message.md"
        path.write_text(screen.prompt.text, encoding="utf-8")
        try:
            with screen.app.suspend():
                subprocess.run([*shlex.split(command), str(path)], check=False)
        except SuspendNotSupported as error:
            raise UsageError("this terminal cannot start an editor") from error
        except OSError as error:
            raise UsageError(f"'{command}' does not start", hint="Set EDITOR.") from error
        screen.prompt.fill(path.read_text(encoding="utf-8").rstrip("\n"))


async def show_help(screen: "ChatScreen", _argument: str) -> None:
    """Show what the focused part does, all keys and all commands."""
    about = getattr(screen.focused, "HELP", None) or ""
    bindings = [active.binding for active in screen.active_bindings.values() if active.binding.id]
    keys: dict[str | None, tuple[str, str]] = {}
    for binding in bindings:  # of several keys the first one is shown
        keys.setdefault(binding.id, (screen.app.get_key_display(binding), binding.description))
    screen.app.push_screen(HelpDialog(about, keys.values(), REGISTRY))


REGISTRY = Registry(
    [
        Command("help", "Keys and commands", show_help, "", "f1", True),
        Command("new", "Begin a new chat; this one stays saved", new, "", "ctrl+n",
                aliases=("clear",)),
        Command("resume", "Open, rename, delete or export a chat", resume, "", "f2"),
        Command("search", "Search all chats", resume, "WORDS"),
        Command("model", "Choose the model", model, "[NAME]", "f3"),
        Command("effort", "How long to reason: low, medium, high", effort, "[LEVEL]", "f4", True),
        Command("edit", "Edit your last message, or the n-th last", edit, "[N]"),
        Command("retry", "Answer anew; the old answer stays", retry, "", "ctrl+r"),
        Command("copy", "Copy the last answer, or its n-th code block", copy, "[N]", "", True),
        Command("export", "Write the chat to FILE.md or FILE.json", export, "[FILE]", "", True),
        Command("system", "Begin a chat with instructions", system, "TEXT"),
        Command("again", "Answer anew with the next effort; the old answer stays", again, "", "f5"),
        Command("compare", "The versions of an answer side by side", compare, "", "", True),
        Command("branch", "Go on from here in a new chat; this one stays", branch),
        Command("stats", "Speed of the answers: show or hide", stats, "", "f8", True),
        Command("inspect", "What the model saw and wrote, token by token", inspect, "", "f9"),
        Command("tools", "Functions that the model may ask for", tools, "[NAME]"),
        Command("set", "An option of this chat, as temperature 0.7", set_option, "[NAME VALUE]"),
        Command("editor", "Write the message in $EDITOR", editor, "", "ctrl+g", True),
        Command("theme", "Choose colours", theme, "[NAME]", "", True),
        Command("mouse", "Off: the terminal selects text with it", mouse, "on|off", "", True),
        Command("quit", "Leave; everything is saved", quit_chat, "", "", True,
                aliases=("bye", "exit")),
    ]
)  # fmt: skip
