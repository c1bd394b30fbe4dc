"""F1: what the focused part does, all keys and all commands."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from tui.screens.dialog import Dialog

Section = tuple[str, Sequence[tuple[str, str]]]
"""A title, and pairs of a key or command and what it does."""


class HelpDialog(Dialog[None]):
    """Args: about: help of the focused widget; sections: what there is."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,f1,q", "dismiss(None)", "Leave")]

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
        lines = [Content(self._about), Content("")]
        for title, rows in self._sections:
            lines.append(Content.styled(title, "bold"))
            lines += [Content(f"  {name.ljust(width)}{text}") for name, text in rows]
            lines.append(Content(""))
        lines.append(Content.styled("* not while an answer streams", "dim"))
        return Content("\n").join(lines)
