"""The commands of the terminal chat."""

import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from textual.app import SuspendNotSupported

from gptoss_local.base.errors import UsageError
from gptoss_local.base.quantities import OPTIONS
from gptoss_local.talk.presets import read_presets
from tui.actions import answers, chats, choices, places
from tui.actions.help import show_help
from tui.chat_parts import ChatParts
from tui.commands import Registry
from tui.paste import current_folder, expanded, find_files


async def attach(chat: ChatParts, argument: str) -> None:
    if not argument:
        raise UsageError("/attach needs a path", hint="/attach notes.md, /attach src, /attach *.py")
    chat.view.attach(str(expanded(argument)))


async def editor(chat: ChatParts, _argument: str) -> None:
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


def values_of(chat: ChatParts, name: str, typed: str) -> Iterable[tuple[str, str]]:
    """Return the arguments that a command may get, each with a description."""
    match name:
        case "model":
            current = chat.conversation.model
            return [(each, "in use" * (each == current)) for each in chat.view.model_names]
        case "effort":
            return [(each, "") for each in choices.EFFORTS]
        case "tools":
            groups = chat.toolbox.groups()
            return [(group.name, "on" if group.is_on else "off") for group in groups]
        case "preset":
            return [(each, preset.system) for each, preset in read_presets().items()]
        case "set":
            options = chat.conversation.options
            return [(each, str(options.get(each, ""))) for each in OPTIONS]
        case "theme":
            return [(each, "") for each in sorted(chat.app.available_themes)]
        case "copy" if turn := chat.conversation.last("assistant"):
            return answers.blocks_in(turn.content)
        case "open":
            return [(str(n), each) for n, each in enumerate(answers.links_in(chat), 1)]
        case "stats" | "mouse":
            return [("on", ""), ("off", "")]
        case "attach" | "import":
            return [(path, "") for path in find_files(typed, current_folder())]
        case _:
            return ()


async def help_(chat: ChatParts, _argument: str) -> None:
    show_help(chat, REGISTRY)


REGISTRY = Registry(
    {
        "help": help_,
        "new": chats.new,
        "resume": chats.resume,
        "search": chats.resume,
        "find": places.find,
        "recall": places.recall,
        "model": choices.model,
        "effort": choices.effort,
        "edit": answers.edit,
        "attach": attach,
        "continue": answers.continue_,
        "now": answers.now,
        "retry": answers.retry,
        "copy": answers.copy,
        "open": answers.open_,
        "export": chats.export,
        "import": chats.import_,
        "system": chats.system,
        "again": answers.again,
        "compare": answers.compare,
        "branch": chats.branch,
        "stats": answers.stats,
        "inspect": answers.inspect,
        "preset": chats.preset,
        "temporary": chats.temporary,
        "tools": choices.tools,
        "undo": choices.undo,
        "set": choices.set_,
        "editor": editor,
        "theme": choices.theme,
        "mouse": choices.mouse,
        "quit": chats.quit_,
    }
)
