"""What all dialogs share; and small ones: one line of text, and a question to confirm."""

from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

_T = TypeVar("_T")


class Dialog(ModalScreen[_T]):
    """What all dialogs share: Ctrl-C copies what is selected, and else leaves as Esc does."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "copy_or_leave", show=False, priority=True)
    ]

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

    def __init__(self, title: str, text: str = "") -> None:
        super().__init__()
        self._title = title
        self._text = text

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -small") as dialog:
            dialog.border_title = self._title
            yield Input(self._text)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(event.value.strip() or None)


class ConfirmDialog(Dialog[bool | None]):
    """Ask whether to do what cannot be undone."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "Yes"),
        Binding("n,escape", "dismiss(False)", "No"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -small"):
            yield Static(f"{self._question}\n\ny yes   n no", markup=False)
