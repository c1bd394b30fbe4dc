"""The base of all dialogs, and two small ones: a line of text, and a confirmation."""

import asyncio
import time
from typing import ClassVar, TypeVar

from rich.markup import escape
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Input, Static

_T = TypeVar("_T")

QUIET_S = 0.5  # without a key, before a dialog that the user did not ask for takes the keyboard
_MOVES = ("up", "down", "left", "right", "pageup", "pagedown", "home", "end", "tab", "shift+tab")


class Typing:
    """Knows when keys came, so that no dialog takes the keyboard from a user who types."""

    def __init__(self) -> None:
        self.n_keys = 0
        self._last_s = 0.0

    def note(self) -> None:
        self.n_keys += 1
        self._last_s = time.monotonic()

    async def pause(self) -> None:
        """Wait until no key has come for half a second."""
        while (left_s := self._last_s + QUIET_S - time.monotonic()) > 0:
            await asyncio.sleep(left_s)


class Dialog(ModalScreen[_T]):
    """The base of all dialogs: a frame with a title. Ctrl-C copies the selection, or leaves as Esc.

    Attributes:
        LOOK: Further classes of the frame.
        KEYS: Shown below the content.
        comes_unasked: It appears without a key that asks for it, so a key decides only after half a
            second without one. Esc, and keys that move, count always.
    """

    LOOK: ClassVar[str] = ""
    KEYS: ClassVar[str] = ""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c,ctrl+q", "copy_or_leave", show=False, priority=True)
    ]

    comes_unasked = False
    _last_key_s = 0.0

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
        """Called once the widgets are there."""

    def on_screen_resume(self) -> None:
        self._last_key_s = time.monotonic()

    def on_key(self, event: Key) -> None:
        """Let keys of a message that is being typed decide nothing."""
        if not self.comes_unasked or event.key in _MOVES or isinstance(self.focused, Input):
            return
        now_s = time.monotonic()
        is_typing = now_s - self._last_key_s < QUIET_S
        self._last_key_s = now_s
        if is_typing and event.key != "escape":
            event.stop()

    def action_copy_or_leave(self) -> None:
        focused = self.focused
        selected = focused.selected_text if isinstance(focused, Input) else ""
        selected = selected or self.get_selected_text() or ""
        if selected:
            self.app.copy_to_clipboard(selected)
        else:
            self.dismiss(None)


class LineDialog(Dialog[str | None]):
    """Ask for one line; None when the user leaves it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Leave")]
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
