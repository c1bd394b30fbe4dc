"""Searches sent messages, as a shell's Ctrl-R does."""

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from gptoss_local.talk.history.plain import one_line
from tui.screens.dialog import Dialog

_MAX_SHOWN = 100


class RecallDialog(Dialog[str | None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,ctrl+r", "move(1)", show=False, priority=True),
        Binding("up", "move(-1)", show=False, priority=True),
    ]
    TITLE = "Earlier messages"
    KEYS = "Enter take  Esc leave"

    def __init__(self, written: Sequence[str]) -> None:
        super().__init__()
        self._written = written
        self._found: list[str] = []

    def content(self) -> ComposeResult:
        yield Input(placeholder="Search what you wrote")
        yield OptionList(markup=False)

    def opened(self) -> None:
        self.search()

    @on(Input.Changed)
    def search(self) -> None:
        words = self.query_one(Input).value.casefold().split()
        found = (text for text in self._written if all(w in text.casefold() for w in words))
        self._found = [text for text, _ in zip(found, range(_MAX_SHOWN), strict=False)]
        options = self.query_one(OptionList)
        options.set_options(Option(one_line(text, 200)) for text in self._found)
        options.highlighted = 0 if self._found else None

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def choose(self) -> None:
        if (n := self.query_one(OptionList).highlighted) is not None:
            self.dismiss(self._found[n])
