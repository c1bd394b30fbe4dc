"""The base of all dialogs, and small ones: a line of text, one of several lines, a yes or no."""

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, ClassVar, TypeVar

from rich.markup import escape
from textual import on
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static, TextArea
from textual.widgets.option_list import Option

from gptoss_local.base.printable import printable

_T = TypeVar("_T")
_MAX_SHOWN = 100


def copy_selection(screen: Screen[Any], field: Widget | None) -> bool:
    """Copy what is selected, in a field or else on the screen, and forget it, if there is any."""
    selected = getattr(field, "selected_text", "") or screen.get_selected_text()
    if selected:
        screen.app.copy_to_clipboard(selected)
        screen.clear_selection()
        if isinstance(field, Input):
            field.cursor_position = field.cursor_position
        elif isinstance(field, TextArea):
            field.move_cursor(field.cursor_location)
    return bool(selected)


class Typing:
    def __init__(self) -> None:
        self.n_keys = 0
        self._last_s = 0.0

    def note(self) -> float:
        pause_s = (now_s := time.monotonic()) - self._last_s
        self.n_keys, self._last_s = self.n_keys + 1, now_s
        return pause_s


class Dialog(ModalScreen[_T]):
    """The base of all dialogs: a frame with a title. Ctrl-C copies the selection, or leaves as Esc.

    `LOOK` has further classes of the frame; `KEYS` is shown below the content.
    """

    LOOK: ClassVar[str] = ""
    KEYS: ClassVar[str] = ""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Leave"),
        Binding("ctrl+c,ctrl+q", "copy_or_leave", show=False, priority=True),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.is_open = asyncio.Event()  # it has the focus for the next key

    def on_screen_resume(self) -> None:
        self.call_next(self.is_open.set)

    def compose(self) -> ComposeResult:
        with Vertical(classes=f"dialog {self.LOOK}") as frame:
            frame.border_title = escape(self.title or "")
            frame.border_subtitle = escape(self.sub_title or "")
            yield from self.content()
            if self.KEYS:
                yield Static(self.KEYS, classes="keys", markup=False)

    def content(self) -> ComposeResult:
        yield from ()

    def on_mount(self) -> None:
        if self in self.app.screen_stack:  # Esc may come while it opens
            self.opened()

    def opened(self) -> None:
        pass

    def action_copy_or_leave(self) -> None:
        if not copy_selection(self, self.focused):
            self.action_leave()

    def dismiss(self, result: _T | None = None) -> AwaitComplete:
        """Close it once, and none above it: two keys may have come, or a double click."""
        is_top = self.app.screen is self
        return super().dismiss(result) if is_top else AwaitComplete()

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_move(self, step: int) -> None:
        """Move in the list below a line that has the focus."""
        options = self.query_one(OptionList)
        (options.action_cursor_down if step > 0 else options.action_cursor_up)()


class LineDialog(Dialog[str | None]):
    LOOK = "-small"

    def __init__(self, title: str, text: str = "") -> None:
        super().__init__()
        self.title = title
        self._text = text

    def content(self) -> ComposeResult:
        yield Input(self._text)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(event.value.strip() or None)


class PickDialog(Dialog[int | None]):
    """Asks for one of several lines, which words search; returns its index.

    `shown` says how a line is written in the list.
    """

    LOOK = "-question"
    KEYS = "Enter choose   Esc leave"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,ctrl+r", "move(1)", show=False, priority=True),
        Binding("up", "move(-1)", show=False, priority=True),
    ]

    def __init__(
        self, title: str, lines: Sequence[str], shown: Callable[[str], str] = printable
    ) -> None:
        super().__init__()
        self.title = title
        self._lines = lines
        self._shown = shown
        self._found: list[int] = []

    def content(self) -> ComposeResult:
        yield Input(placeholder="Search")
        yield OptionList(markup=False)

    def opened(self) -> None:
        self.search()

    @on(Input.Changed)
    def search(self) -> None:
        words = self.query_one(Input).value.casefold().split()
        lines = enumerate(map(str.casefold, self._lines))
        found = (n for n, line in lines if all(word in line for word in words))
        self._found = list(islice(found, _MAX_SHOWN))
        options = self.query_one(OptionList)
        options.set_options(Option(self._shown(self._lines[n])) for n in self._found)
        options.highlighted = 0 if self._found else None

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def choose(self) -> None:
        if (n := self.query_one(OptionList).highlighted) is not None:
            self.dismiss(self._found[n])


class ConfirmDialog(Dialog[bool | None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "Yes"),
        Binding("n,escape", "dismiss(False)", "No"),
    ]
    LOOK = "-small"

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def content(self) -> ComposeResult:
        yield Static(f"{self._question}\n\ny yes   n no", markup=False)
