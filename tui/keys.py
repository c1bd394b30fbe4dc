"""The user's own keys, `[keys]` of config.toml. An unknown name or key is an error."""

from collections.abc import Mapping
from difflib import get_close_matches

from textual.binding import Binding

from gptoss_local.errors import UsageError
from tui.screens.chat import ChatScreen
from tui.screens.chats import ChatsDialog
from tui.screens.download import DownloadDialog
from tui.screens.presets import PresetForm, PresetsDialog
from tui.widgets.prompt import Prompt
from tui.widgets.turn_view import AssistantTurnView, TurnView, UserTurnView


def binding_names() -> list[str]:
    """Return the names of all bindings that can be changed."""
    views = (TurnView, UserTurnView, AssistantTurnView)
    dialogs = (ChatsDialog, DownloadDialog, PresetsDialog, PresetForm)
    owners = (ChatScreen, Prompt, *views, *dialogs)
    bindings = [binding for owner in owners for binding in owner.BINDINGS]
    return [each.id for each in bindings if isinstance(each, Binding) and each.id]


def check_keys(keys: Mapping[str, str]) -> None:
    """Raise UsageError for a name that no binding has, and for keys spelled otherwise than ours."""
    names = binding_names()
    for name, spelled in keys.items():
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(names)}."
            raise UsageError(f"[keys]: there is nothing named '{name}'", hint=hint)
        if any(not key.strip() or "-" in key for key in spelled.split(",")):
            hint = "As f9, ctrl+t or alt+left; several with commas."
            raise UsageError(f"[keys]: '{spelled}' for {name} is not a key", hint=hint)
