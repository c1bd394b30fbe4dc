"""What the commands do, and the registry of them all."""

import os
import re
import shlex
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import SuspendNotSupported

from gptoss_local.catalog import canonical_name
from gptoss_local.errors import UsageError
from gptoss_local.types import Effort
from tui.commands import Command, Registry
from tui.history import Turn
from tui.markdown_blocks import code_blocks
from tui.printable import printable
from tui.screens.chats import ChatsDialog, Place
from tui.screens.help import HelpDialog
from tui.screens.models import ModelsDialog

if TYPE_CHECKING:
    from tui.screens.chat import ChatScreen

_EFFORTS: tuple[Effort, ...] = ("low", "medium", "high")


async def model(screen: "ChatScreen", argument: str) -> None:
    """Choose the model of the next answers, by name or from a list."""
    tags = await screen.server.installed_models()
    if argument:
        name = canonical_name(argument)
        if name not in {tag["name"] for tag in tags}:
            raise UsageError(f"model '{name}' is not on this machine", hint="/model lists them.")
        set_model(screen, name)
        return
    loaded = await screen.server.running_models()
    dialog = ModelsDialog(tags, loaded, screen.conversation.model)
    screen.app.push_screen(dialog, lambda name: set_model(screen, name))


def set_model(screen: "ChatScreen", name: str | None) -> None:
    """Use a model from the next answer on; None changes nothing."""
    if name:
        screen.conversation.set_model(name, screen.conversation.effort)
        screen.model_changed()


async def effort(screen: "ChatScreen", argument: str) -> None:
    """Set how long the model reasons; `next`, as the key does, cycles."""
    conversation = screen.conversation
    if argument in ("", "next"):
        level = _EFFORTS[(_EFFORTS.index(conversation.effort) + 1) % len(_EFFORTS)]
    elif argument in _EFFORTS:
        level = argument
    else:
        raise UsageError(
            f"there is no effort '{argument}'",
            hint="low, medium or high: gpt-oss always reasons, so there is no off.",
        )
    conversation.set_model(conversation.model, level)


async def new(screen: "ChatScreen", _argument: str) -> None:
    """Begin an empty chat."""
    await screen.open_chat(None)


async def system(screen: "ChatScreen", argument: str) -> None:
    """Begin an empty chat with instructions."""
    if not argument:
        raise UsageError("/system needs a text", hint="/system Answer in one sentence.")
    await screen.open_chat(None, system=argument)
    screen.notify("A new chat begins with these instructions.", markup=False)


async def resume(screen: "ChatScreen", argument: str) -> None:
    """Choose a chat to go on with; words search all chats."""

    async def chosen(place: Place | None) -> None:
        if place is not None:
            await screen.open_chat(place)

    dialog = ChatsDialog(screen.history, partial(write_export, screen), argument)
    screen.app.push_screen(dialog, chosen)


async def edit(screen: "ChatScreen", argument: str) -> None:
    """Edit the last message, or the n-th last; what is sent becomes another version of it."""
    n = _number(argument)
    turns = [turn for turn in screen.conversation.turns if turn.role == "user"]
    if n > len(turns):
        raise UsageError(f"there are {len(turns)} messages to edit")
    screen.edit(turns[-n])


async def edit_turn(screen: "ChatScreen", turn: Turn) -> None:
    """Edit a message, or answer anew."""
    if turn.role == "user":
        screen.edit(turn)
    elif turn.role == "assistant":
        await _answer_anew(screen, turn)


async def retry(screen: "ChatScreen", _argument: str) -> None:
    """Answer the last message anew; the old answer stays as another version."""
    turns = screen.conversation.turns
    if turns and turns[-1].role == "assistant":
        await _answer_anew(screen, turns[-1])
    elif turns and turns[-1].role == "user":  # its answer was never begun
        await screen.begin(screen.conversation.begin_answer(), is_new=True)
    else:
        raise UsageError("there is no answer to repeat")


async def copy(screen: "ChatScreen", argument: str) -> None:
    """Copy the last answer, or its n-th code block."""
    turn = screen.conversation.last("assistant")
    if turn is None or not turn.content:
        raise UsageError("there is no answer to copy")
    if not argument:
        copy_text(screen, turn.content)
        return
    blocks = code_blocks(turn.content)
    n = _number(argument)
    if n > len(blocks):
        raise UsageError(f"the last answer has {len(blocks)} code blocks")
    copy_text(screen, blocks[n - 1])


def copy_text(screen: "ChatScreen", text: str) -> None:
    """Copy by OSC 52, which the terminal must allow."""
    screen.app.copy_to_clipboard(printable(text))
    screen.notify(f"Copied {len(text):,} characters.")


async def export(screen: "ChatScreen", argument: str) -> None:
    """Write the chat to a file, as JSON if its name ends so, else as Markdown."""
    chat = screen.conversation.summary
    if chat is None:
        raise UsageError("there is nothing to export yet")
    write_export(screen, chat.id, argument)


def write_export(screen: "ChatScreen", chat_id: int, argument: str = "") -> None:
    """Write a chat to a new file; one that exists is never overwritten."""
    title = screen.history.chat(chat_id).title
    name = re.sub(r"[^\w-]+", "-", title).strip("-").lower()[:50] or "chat"
    path = Path(argument or f"{name}.md").expanduser()
    is_json = path.suffix == ".json"
    history = screen.history
    text = history.export_json(chat_id) if is_json else history.export_markdown(chat_id)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise UsageError(f"{path} exists already", hint="/export OTHER-NAME.md") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    screen.notify(f"Wrote {path.resolve()}", markup=False)


async def stats(screen: "ChatScreen", _argument: str) -> None:
    """Show the engine's figures of the last answer."""
    turn = screen.conversation.last("assistant")
    if turn is None or not turn.stats.get("eval_count"):
        raise UsageError("no answer is finished yet")
    screen.notify("\n".join(_stats_lines(turn)), title="Last answer", timeout=20, markup=False)


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


async def theme(screen: "ChatScreen", argument: str) -> None:
    """Choose colours; without a name, from a list."""
    if not argument:
        screen.app.action_change_theme()
    elif argument in screen.app.available_themes:
        screen.app.theme = argument
    else:
        names = ", ".join(sorted(screen.app.available_themes))
        raise UsageError(f"there is no theme '{argument}'", hint=f"There are {names}.")


async def show_help(screen: "ChatScreen", _argument: str) -> None:
    """Show what the focused part does, all keys and all commands."""
    about = getattr(screen.focused, "HELP", None) or ""
    bindings = [active.binding for active in screen.active_bindings.values() if active.binding.id]
    keys = {b.id: (screen.app.get_key_display(b), b.description) for b in bindings}
    screen.app.push_screen(HelpDialog(about, keys.values(), REGISTRY))


async def quit_chat(screen: "ChatScreen", _argument: str) -> None:
    """Leave; everything is saved."""
    screen.app.exit()


async def _answer_anew(screen: "ChatScreen", turn: Turn) -> None:
    await screen.begin(screen.conversation.begin_answer(instead_of=turn), is_new=False)


def _number(argument: str) -> int:
    if argument and not (argument.isdecimal() and int(argument)):
        raise UsageError(f"'{argument}' is no number from 1")
    return int(argument or 1)


def _stats_lines(turn: Turn) -> list[str]:
    stats = turn.stats
    n_prompt, n_cached = stats.get("prompt_eval_count", 0), stats.get("prompt_cached_count", 0)
    prefill_s = stats.get("prompt_eval_duration", 0) / 1e9
    decode_s = stats.get("eval_duration", 0) / 1e9
    lines = [
        f"model {turn.model}, effort {turn.effort}",
        f"prompt {n_prompt:,} tokens, {n_cached:,} of them from the cache",
    ]
    if prefill_s > 0:
        speed = (n_prompt - n_cached) / prefill_s
        lines.append(f"prefill {prefill_s:.2f} s, {speed:,.0f} tok/s")
    if decode_s > 0:
        speed = stats["eval_count"] / decode_s
        lines.append(
            f"answer {stats['eval_count']:,} tokens in {decode_s:.2f} s, {speed:.0f} tok/s"
        )
    if stats.get("ttft_s") is not None:
        lines.append(f"first token after {stats['ttft_s']:.2f} s")
    if load_s := stats.get("load_duration", 0) / 1e9:
        lines.append(f"waited {load_s:.2f} s for the model")
    return lines


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
        Command("stats", "Figures of the last answer", stats, "", "", True),
        Command("editor", "Write the message in $EDITOR", editor, "", "ctrl+g", True),
        Command("theme", "Choose colours", theme, "[NAME]", "", True),
        Command("quit", "Leave; everything is saved", quit_chat, "", "", True,
                aliases=("bye", "exit")),
    ]
)  # fmt: skip
