"""The commands of the terminal chat."""

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
from tui.commands import Registry

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
    {
        "help": help_,
        "new": new,
        "resume": resume,
        "search": resume,
        "model": model,
        "effort": effort,
        "edit": edit,
        "attach": attach,
        "continue": continue_,
        "retry": retry,
        "copy": copy,
        "export": export,
        "import": import_,
        "system": system,
        "again": again,
        "compare": compare,
        "branch": branch,
        "stats": stats,
        "inspect": inspect,
        "preset": preset,
        "tools": tools,
        "set": set_option,
        "editor": editor,
        "theme": theme,
        "mouse": mouse,
        "quit": quit_chat,
    }
)
