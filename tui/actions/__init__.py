"""Registers all commands, and says what each does."""

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from textual.app import SuspendNotSupported

from gptoss_local.errors import UsageError
from tui.actions.answers import (
    again,
    compare,
    continue_,
    continue_turn,
    copy,
    copy_text,
    edit,
    edit_turn,
    inspect,
    retry,
    stats,
)
from tui.actions.chats import branch, export, import_, new, quit_chat, resume, system
from tui.actions.choices import effort, model, mouse, set_option, theme, tools
from tui.actions.help import show_help
from tui.actions.input import attach
from tui.actions.presets import preset
from tui.chat_parts import ChatParts
from tui.commands import Command, Registry

__all__ = ["REGISTRY", "continue_turn", "copy_text", "edit_turn"]


async def editor(chat: ChatParts, _argument: str) -> None:
    """Write the message in $VISUAL or $EDITOR."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "message.md"
        path.write_text(chat.view.typed, encoding="utf-8")
        try:
            with chat.app.suspend():
                subprocess.run([*shlex.split(command), str(path)], check=False)
        except SuspendNotSupported as error:
            raise UsageError("this terminal cannot start an editor") from error
        except OSError as error:
            raise UsageError(f"'{command}' does not start", hint="Set EDITOR.") from error
        chat.view.fill(path.read_text(encoding="utf-8").rstrip("\n"))


async def help_(chat: ChatParts, _argument: str) -> None:
    """Show what the focused part does, all keys and all commands."""
    show_help(chat, REGISTRY)


REGISTRY = Registry(
    [
        Command("help", "Keys and commands", help_, "", "f1", True),
        Command("new", "Begin a new chat; this one stays saved", new, "", "ctrl+n",
                aliases=("clear",)),
        Command("resume", "Open, rename, delete or export a chat", resume, "", "f2"),
        Command("search", "Search all chats", resume, "WORDS"),
        Command("model", "Choose the model", model, "[NAME]", "f3"),
        Command("effort", "How long to reason: low, medium, high", effort, "[LEVEL]", "f4", True),
        Command("edit", "Edit your last message, or the n-th last", edit, "[N]"),
        Command("attach", "Attach a file, a PDF, a folder, or *.py", attach, "PATH", "", True),
        Command("continue", "Continue the last answer where it was cut", continue_),
        Command("retry", "Answer again; the old answer stays", retry, "", "ctrl+r"),
        Command("copy", "Copy the last answer, or its n-th code block", copy, "[N]", "", True),
        Command("export", "Write the chat to FILE.md or FILE.json", export, "[FILE]", "", True),
        Command("import", "Add a chat that was exported as JSON", import_, "FILE"),
        Command("system", "Begin a chat with instructions", system, "TEXT"),
        Command("again", "Answer again, with the next effort; the old one stays", again, "", "f5"),
        Command("compare", "The versions of an answer side by side", compare, "", "", True),
        Command("branch", "Continue from here in a new chat; this one stays", branch),
        Command("stats", "Speed of the answers: show or hide", stats, "", "f8", True),
        Command("inspect", "What the model saw and wrote, token by token", inspect, "", "f9"),
        Command("preset", "Begin a chat with a preset; make or edit one", preset, "[NAME]", "f12"),
        Command("tools", "Functions that the model may ask for", tools, "[NAME]"),
        Command("set", "An option of this chat, as temperature 0.7", set_option, "[NAME VALUE]"),
        Command("editor", "Write the message in $EDITOR", editor, "", "ctrl+g", True),
        Command("theme", "Choose colours", theme, "[NAME]", "", True),
        Command("mouse", "Off: the terminal selects text with it", mouse, "on|off", "", True),
        Command("quit", "Leave; everything is saved", quit_chat, "", "", True,
                aliases=("bye", "exit")),
    ]
)  # fmt: skip
