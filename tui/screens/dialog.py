"""The base of all dialogs, and two small ones: a line of text, and a confirmation."""

import asyncio
import time
from collections.abc import Sequence
from typing import ClassVar, TypeVar

from rich.markup import escape
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static

from gptoss_local.base.printable import printable

_T = TypeVar("_T")


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
        selected = getattr(self.focused, "selected_text", "") or self.get_selected_text()
        if selected:
            self.app.copy_to_clipboard(selected)
        else:
            self.action_leave()

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_move(self, step: int) -> None:
        """Move in the list below a line that has the focus."""
        options = self.query_one(OptionList)
        (options.action_cursor_down if step > 0 else options.action_cursor_up)()


class LineDialog(Dialog[str | None]):
    """Asks for one line; None when the user leaves it."""

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


class ChoiceDialog(Dialog[int | None]):
    """Asks for one of several lines; returns its index."""

    LOOK = "-question"

    def __init__(self, title: str, lines: Sequence[str], enter: str) -> None:
        super().__init__()
        self.title = title
        self._lines = lines
        self._enter = enter

    def content(self) -> ComposeResult:
        yield OptionList(*map(printable, self._lines), markup=False)
        yield Static(f"Enter {self._enter}   Esc leave", classes="keys", markup=False)

    def opened(self) -> None:
        self.query_one(OptionList).highlighted = 0

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(event.option_index)


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
