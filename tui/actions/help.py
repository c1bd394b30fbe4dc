"""The page of F1: every key of every mode, with the user's own keys in place of ours."""

from collections.abc import Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from tui.chat_parts import ChatParts
from tui.commands import Registry
from tui.screens.chats import ChatsDialog
from tui.screens.dialog import Dialog
from tui.screens.models import DownloadDialog
from tui.screens.presets import PresetForm, PresetsDialog
from tui.widgets.prompt import Prompt
from tui.widgets.turn_view import AssistantTurnView, TurnView, UserTurnView

Section = tuple[str, Sequence[tuple[str, str]]]
"""A title, and keys or commands with their descriptions."""


class HelpDialog(Dialog[None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("f1,alt+h,q", "leave", "Leave")]

    def __init__(self, about: str, sections: Sequence[Section]) -> None:
        super().__init__()
        self._about = about
        self._sections = sections

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog") as dialog:
            dialog.border_title = "Help"
            dialog.border_subtitle = "Esc leave"
            yield Static(self._content(), markup=False)

    def _content(self) -> Content:
        width = max(len(name) for _, rows in self._sections for name, _ in rows) + 2
        is_narrow = self.app.size.width < 2 * width
        lines = [Content(self._about), Content("")]
        for title, rows in self._sections:
            lines.append(Content.styled(title, "bold"))
            for name, text in rows:
                name = f"{name}\n   " if is_narrow else name.ljust(width)
                lines.append(Content(f"  {name}{text}"))
            lines.append(Content(""))
        lines.append(Content.styled("* not while an answer streams", "dim"))
        return Content("\n").join(lines)


_ANYWHERE = [("Ctrl-P", "All commands in a palette"), ("Ctrl-Q", "As Ctrl-C")]
MODES: dict[str, tuple[Any, ...]] = {
    "In the input": (Prompt,),
    "On a message": (TurnView, UserTurnView, AssistantTurnView),
    "In the list of chats": (ChatsDialog,),
    "In the list of presets": (PresetsDialog,),
    "In a preset": (PresetForm,),
    "While a model downloads": (DownloadDialog,),
}
"""Widgets with keys besides the screen's, by the titles of the help."""
_MORE = {
    "In the input": [
        ("Enter", "Send; while an answer streams, the message waits"),
        ("Shift-Enter, Alt-Enter, \\ Enter", "New line, where the terminal sends it"),
        ("Up, Down", "In an empty input: what you sent before"),
        ("! COMMAND", "Run it in the shell; its output may go with the next message"),
    ],
    "On a message": [("Up, Down", "Walk")],
}


def show_help(chat: ChatParts, registry: Registry) -> None:
    about = getattr(chat.view.focused, "HELP", None) or ""
    modes = [
        (title, [*_MORE.get(title, ()), *_keys(chat, *owners)]) for title, owners in MODES.items()
    ]
    commands = [
        (command.all_usages, command.summary + ("" if command.available_during_turn else " *"))
        for command in registry.commands
    ]
    keys = ("Keys", [*_keys(chat, chat.view), *_ANYWHERE])
    chat.app.push_screen(HelpDialog(about, [keys, *modes, ("Commands", commands)]))


def bindings_of(*owners: Any) -> list[Binding]:
    return [each for owner in owners for each in owner.BINDINGS if isinstance(each, Binding)]


def _keys(chat: ChatParts, *owners: Any) -> list[tuple[str, str]]:
    return [
        (", ".join(_keys_of(chat, each)), each.description)
        for each in bindings_of(*owners)
        if each.description
    ]


def _keys_of(chat: ChatParts, binding: Binding) -> list[str]:
    keys = chat.keys.get(binding.id or "", binding.key)
    own = (key.strip() for key in keys.split(",") if key.strip() != "ctrl+q")
    return [chat.app.get_key_display(Binding(key, "")) for key in own]
