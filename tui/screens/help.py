"""F1: what the focused part does, all keys and all commands, made from what is there."""

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from tui.commands import Registry
from tui.screens.dialog import Dialog


class HelpDialog(Dialog[None]):
    """Args: about: help of the focused widget; keys: pairs of a key and what it does."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,f1,q", "dismiss(None)", "Leave")]

    def __init__(self, about: str, keys: Iterable[tuple[str, str]], registry: Registry) -> None:
        super().__init__()
        self._about = about
        self._keys = tuple(keys)
        self._registry = registry

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog") as dialog:
            dialog.border_title = "Help"
            dialog.border_subtitle = "Esc leave"
            yield Static(self._content(), markup=False)

    def _content(self) -> Content:
        commands = [
            (command.usage, command.summary + ("" if command.available_during_turn else " *"))
            for command in self._registry.commands
        ]
        width = max(len(name) for name, _ in (*commands, *self._keys)) + 2
        lines = [Content(self._about), Content("")]
        for title, rows in (("Keys", self._keys), ("Commands", commands)):
            lines.append(Content.styled(title, "bold"))
            lines += [Content(f"  {name.ljust(width)}{text}") for name, text in rows]
            lines.append(Content(""))
        lines.append(Content.styled("* not while an answer streams", "dim"))
        return Content("\n").join(lines)
