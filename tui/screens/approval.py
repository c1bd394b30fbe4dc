"""Whether a call of a tool may run: the question is put with all arguments."""

import shlex
import time
from typing import Any, ClassVar, NamedTuple

import msgspec
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.events import Key
from textual.widgets import Input, Static

from tui.printable import printable
from tui.screens.dialog import Dialog
from tui.tools import Tool

_KEYS = "y once   a always in this chat   n no   r no, because   Esc stop"
_QUIET_S = 0.5  # without a key, before one counts


class Decision(NamedTuple):
    """What the user said; `reason` is for the model."""

    is_allowed: bool
    is_for_chat: bool = False
    reason: str = ""


class ApprovalDialog(Dialog[Decision | None]):
    """Ask about one call; None stops the whole answer. No other key than these allows it.

    Args:
        tool: What is called.
        arguments: As the model wrote them.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "allow(False)", "Once"),
        Binding("a", "allow(True)", "Always in this chat"),
        Binding("n", "deny", "No"),
        Binding("r", "reason", "No, with a reason"),
        Binding("escape", "leave", "Stop"),
    ]

    def __init__(self, tool: Tool, arguments: dict[str, Any]) -> None:
        super().__init__()
        self._tool = tool
        self._arguments = arguments

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -question") as dialog:
            dialog.border_title = f"The model asks to run {self._tool.name}"
            yield Static(f"It {self._tool.about}.", markup=False)
            with VerticalScroll():
                if self._tool.argv is not None:
                    command = shlex.join(self._tool.argv(self._arguments))
                    yield Static(printable(f"$ {command}\n"), markup=False)
                yield Static(pretty(self._arguments), markup=False)
            yield Input(placeholder="Why not? Enter tells the model", classes="-hidden")
            yield Static(_KEYS, classes="keys", markup=False)

    def on_mount(self) -> None:
        self._last_key_s = time.monotonic()
        self.query_one(VerticalScroll).focus()

    def on_key(self, event: Key) -> None:
        """Letters of a message that is being typed when the question appears decide nothing."""
        now_s = time.monotonic()
        is_typing = now_s - self._last_key_s < _QUIET_S
        self._last_key_s = now_s
        if is_typing and event.key != "escape" and not isinstance(self.focused, Input):
            event.stop()

    def action_allow(self, is_for_chat: bool) -> None:
        self.dismiss(Decision(True, is_for_chat))

    def action_deny(self) -> None:
        self.dismiss(Decision(False))

    def action_reason(self) -> None:
        reason = self.query_one(Input)
        reason.remove_class("-hidden")
        reason.focus()

    def action_leave(self) -> None:
        self.dismiss(None)

    @on(Input.Submitted)
    def tell(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(Decision(False, reason=event.value.strip()))


def pretty(arguments: object) -> str:
    """JSON for reading, without control characters."""
    return printable(msgspec.json.format(msgspec.json.encode(arguments), indent=2).decode())
