"""Commands that choose what the next answers are made with, and how the chat looks."""

import json
from typing import TYPE_CHECKING

from gptoss_local.catalog import canonical_name
from gptoss_local.errors import UsageError
from gptoss_local.types import Effort
from tui.mouse import set_mouse
from tui.screens.errors import telling
from tui.screens.models import ModelsDialog
from tui.screens.tools import ToolsDialog

if TYPE_CHECKING:
    from tui.screens.chat import ChatScreen

_EFFORTS: tuple[Effort, ...] = ("low", "medium", "high")
_OPTIONS: dict[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "top_k": (0, 1000),
    "min_p": (0, 1),
    "seed": (0, 2**31 - 1),
    "num_predict": (1, 2**31 - 1),
    "num_ctx": (1, 131_072),
    "repeat_penalty": (0.1, 10),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
}
_WHOLE = ("top_k", "seed", "num_predict", "num_ctx")


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
    dialog = ModelsDialog(tags, loaded, screen.conversation.model, screen.server.fits)
    screen.app.push_screen(dialog, lambda name: set_model(screen, name))


def set_model(screen: "ChatScreen", name: str | None) -> None:
    """Use a model from the next answer on; None changes nothing."""
    if name:
        with telling(screen):
            screen.conversation.set_model(name, screen.conversation.effort)
        screen.model_changed()


async def effort(screen: "ChatScreen", argument: str) -> None:
    """Set how long the model reasons; `next`, as the key does, cycles."""
    conversation = screen.conversation
    if argument in ("", "next"):
        level = next_effort(conversation.effort)
    elif argument in _EFFORTS:
        level = argument
    else:
        raise UsageError(
            f"there is no effort '{argument}'",
            hint="low, medium or high: gpt-oss always reasons, so there is no off.",
        )
    conversation.set_model(conversation.model, level)


def next_effort(effort: Effort) -> Effort:
    """The one that follows, round and round."""
    return _EFFORTS[(_EFFORTS.index(effort) + 1) % len(_EFFORTS)]


async def set_option(screen: "ChatScreen", argument: str) -> None:
    """Set an option of this chat's requests; without a value, back to the model's own."""
    conversation = screen.conversation
    name, _, text = argument.partition(" ")
    if name and name != "truncate":
        conversation.set_option(name, _option(name, text.strip()) if text.strip() else None)
    elif name:
        conversation.set_option(name, True if text.strip() == "on" else None)
    now = "\n".join(f"{key} {json.dumps(value)}" for key, value in conversation.options.items())
    screen.notify(now or "All as the model has it.", title="Options of this chat", markup=False)


def _option(name: str, text: str) -> float:
    if name not in _OPTIONS:
        raise UsageError(f"there is no option '{name}'", hint=f"There are {', '.join(_OPTIONS)}.")
    low, high = _OPTIONS[name]
    try:
        value = int(text) if name in _WHOLE else float(text)
    except ValueError:
        value = high + 1
    if not low <= value <= high:
        raise UsageError(f"{name} is a {'whole ' * (name in _WHOLE)}number from {low} to {high}")
    return value


async def tools(screen: "ChatScreen", argument: str) -> None:
    """Turn a tool on or off, by name or from a list."""
    if not argument:
        screen.app.push_screen(ToolsDialog(screen.toolbox))
        return
    is_on = screen.toolbox.switch(argument)
    screen.notify(f"{argument} is {'on' if is_on else 'off'}.", markup=False)


async def mouse(screen: "ChatScreen", argument: str) -> None:
    """Give the mouse to the app, or to the terminal, which selects text with it."""
    if argument not in ("on", "off"):
        raise UsageError("/mouse is on or off")
    set_mouse(screen.app, argument == "on")
    where = "the app" if argument == "on" else "the terminal, to select text with it"
    screen.notify(f"The mouse is for {where}.")


async def theme(screen: "ChatScreen", argument: str) -> None:
    """Choose colours; without a name, from a list."""
    if not argument:
        screen.app.action_change_theme()
    elif argument in screen.app.available_themes:
        screen.app.theme = argument
    else:
        names = ", ".join(sorted(screen.app.available_themes))
        raise UsageError(f"there is no theme '{argument}'", hint=f"There are {names}.")
