"""Commands that choose model, effort, options and tools, and the look of the chat."""

import json
from typing import Any

from rich.filesize import decimal
from textual.app import App

from gptoss_local.base.errors import UsageError
from gptoss_local.base.quantities import parse_option
from gptoss_local.base.types import Effort
from gptoss_local.models.catalog import CatalogModel, canonical_name, known_model
from gptoss_local.talk.conversation import without_tools
from gptoss_local.talk.tools import ToolResult
from gptoss_local.talk.tools.work import PATCH
from tui.chat_parts import ChatParts
from tui.screens.dialog import ConfirmDialog, PickDialog
from tui.screens.errors import errors_shown
from tui.screens.models import DownloadDialog, ModelsDialog
from tui.screens.tools import ToolsDialog

EFFORTS: tuple[Effort, ...] = ("low", "medium", "high")


async def model(chat: ChatParts, argument: str) -> None:
    n_keys = chat.view.typing.n_keys
    tags = await chat.server.installed_models()
    names = {tag.name for tag in tags}
    if argument:
        name = canonical_name(argument)
        if name in names:
            set_model(chat, name)
        elif (known := known_model(name)) is not None and known.repo:
            offer_download(chat, known, "")
        else:
            raise UsageError(f"model '{name}' is not on this machine", hint="/model lists them.")
        return
    loaded, downloads = await chat.server.running_models(), chat.downloads
    current = chat.conversation.model
    dialog = ModelsDialog(tags, loaded, current, chat.server.fits, downloads.running)

    def chosen(name: str | None) -> None:
        if name in names:
            set_model(chat, name)
        elif name and (known := known_model(name)) is not None:
            offer_download(chat, known, dialog.chosen_place)

    chat.open_dialog(dialog, chosen, since=n_keys)


def offer_download(chat: ChatParts, model: CatalogModel, place: str) -> None:
    """Show the download of a model; ask first, naming its place, if it does not run yet."""
    name = model.name

    def begin(is_sure: bool | None) -> None:
        if is_sure:
            chat.app.push_screen(DownloadDialog(chat.downloads.start(name)))

    if chat.downloads.running(name):
        begin(True)
        return
    size = f" ({decimal(model.download_bytes)})" if model.download_bytes else ""
    lines = [f"Download {name}{size} to this machine?", place]
    chat.app.push_screen(ConfirmDialog("\n".join(filter(None, lines))), begin)


def set_model(chat: ChatParts, name: str | None) -> None:
    """Use a model from the next answer on; None changes nothing."""
    if name:
        with errors_shown(chat.app):
            chat.conversation.set_model(name, chat.conversation.effort)
        chat.view.model_changed()


async def effort(chat: ChatParts, argument: str) -> None:
    """Set how long the model reasons; `next`, as the key does, cycles."""
    conversation = chat.conversation
    if argument in ("", "next"):
        level = next_effort(conversation.effort)
    elif argument in EFFORTS:
        level = argument
    else:
        raise UsageError(
            f"there is no effort '{argument}'",
            hint="low, medium or high: gpt-oss always reasons, so there is no off.",
        )
    conversation.set_model(conversation.model, level)


def next_effort(effort: Effort) -> Effort:
    return EFFORTS[(EFFORTS.index(effort) + 1) % len(EFFORTS)]


async def set_(chat: ChatParts, argument: str) -> None:
    conversation = chat.conversation
    name, _, text = argument.partition(" ")
    if name:
        value = parse_option(name, text.strip()) if text.strip() else None
        conversation.set_option(name, None if value is False else value)
    options = without_tools(conversation.options)
    now = "\n".join(f"{key} {json.dumps(value)}" for key, value in options.items())
    chat.app.notify(now or "All as the model has it.", title="Options of this chat", markup=False)


async def tools(chat: ChatParts, argument: str) -> None:
    is_in_use = chat.dialogue.is_busy
    if not argument:
        dialog = ToolsDialog(chat.toolbox, chat.keep_tools, is_in_use=is_in_use)
        chat.app.push_screen(dialog)
        return
    is_on = chat.toolbox.switch(argument)
    chat.keep_tools()
    since = " from your next message on" if is_in_use else ""
    chat.app.notify(f"{argument} is {'on' if is_on else 'off'}{since}.", markup=False)


async def undo(chat: ChatParts, _argument: str) -> None:
    """Take back the last patch, in the transcript and for the model, too."""
    result = ToolResult(chat.toolbox.undo())
    if any(turn.tool_name == PATCH for turn in chat.conversation.turns):  # else of another chat
        await chat.view.add_turn(chat.conversation.add_result(PATCH, result))
    chat.app.notify(result.text, markup=False)


async def mouse(chat: ChatParts, argument: str) -> None:
    if argument not in ("on", "off"):
        raise UsageError("/mouse is on or off")
    set_mouse(chat.app, argument == "on")
    where = "the app" if argument == "on" else "the terminal, to select text with it"
    chat.app.notify(f"The mouse is for {where}.")


async def theme(chat: ChatParts, argument: str) -> None:
    names = sorted(chat.app.available_themes)

    def chosen(n: int | None) -> None:
        if n is not None:
            use_theme(chat.app, names[n])

    if argument:
        use_theme(chat.app, argument)
    else:
        chat.app.push_screen(PickDialog("Theme", names), chosen)


def use_theme(app: App[Any], name: str) -> None:
    if name not in app.available_themes:
        names = ", ".join(sorted(app.available_themes))
        raise UsageError(f"there is no theme '{name}'", hint=f"There are {names}.")
    app.theme = name


def set_mouse(app: App[Any], is_on: bool) -> None:
    driver: Any = app._driver  # Textual decides it at the start and has no call for later
    if hasattr(driver, "_disable_mouse_support"):
        driver._disable_mouse_support()
        driver._mouse = is_on  # for when the app comes back from the background
        driver._enable_mouse_support()
