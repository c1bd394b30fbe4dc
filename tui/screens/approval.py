"""Asks whether a call of a tool may run, and shows all that would."""

import re
import shlex
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import msgspec
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.errors import NoWidget
from textual.events import Resize
from textual.widgets import Input, Static

from gptoss_local.printable import visible
from gptoss_local.tools import Tool
from tui.screens.dialog import Dialog

_N_ROWS_AROUND = 6  # of the dialog: frame, what it is about, margins, keys
_KEYS = "y once   a always in this chat   n no   r no, because   Esc stop"
_UNSEEN_KEYS = "End shows the rest, then y or a   n no   r no, because   Esc stop"
_LINE_ENDS = re.compile(r"(\n+)")


class Decision(NamedTuple):
    """The user's answer; `reason` is for the model."""

    is_allowed: bool
    is_for_chat: bool = False
    reason: str = ""


class ApprovalDialog(Dialog[Decision | None]):
    """Ask about one call; None stops the whole answer. No other key than these allows it.

    It can be allowed once the end of what would run has been on the screen.

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
        self.comes_unasked = True
        self._tool = tool
        self._arguments = arguments
        self._has_shown_end = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -question") as dialog:
            dialog.border_title = f"The model asks to run {self._tool.name}"
            yield Static(f"It {self._tool.about}.", markup=False)
            with VerticalScroll():
                if self._tool.argv is not None:
                    command = shell_text(self._tool.argv(self._arguments))
                    yield Static(f"$ {command}\n", markup=False)
                yield Static(pretty(self._arguments), markup=False)
            yield Input(placeholder="Why not? Enter sends it to the model", classes="-hidden")
            yield Static(_KEYS, classes="keys", markup=False)

    def opened(self) -> None:
        scroll = self.query_one(VerticalScroll)
        scroll.focus()
        self.watch(scroll, "scroll_y", self._look_later)

    def on_resize(self, event: Resize) -> None:
        n_rows = event.size.height * 85 // 100 - _N_ROWS_AROUND
        for scroll in self.query(VerticalScroll):
            scroll.styles.max_height = max(1, n_rows)
        self._look_later()

    def _look_later(self) -> None:
        self.call_after_refresh(self._look)

    def _look(self) -> None:
        """Say how many lines are not on the screen, and note whether the last one was."""
        if self not in self.app.screen_stack:
            return
        try:
            on_screen = self.find_widget(self.query_one(VerticalScroll))
        except NoWidget:  # a terminal without room for it
            return
        scroll, n_shown = self.query_one(VerticalScroll), on_screen.visible_region.height
        n_below = max(0, scroll.virtual_size.height - scroll.scroll_offset.y - n_shown)
        self._has_shown_end |= n_shown > 0 and not n_below
        lines = "line" if n_below == 1 else "lines"
        more = f"{n_below:,} more {lines} below" if n_below else ""
        self.query_one(".dialog").border_subtitle = more
        keys = _KEYS if self._has_shown_end else _UNSEEN_KEYS
        self.query_one(".keys", Static).update(keys)

    def action_allow(self, is_for_chat: bool) -> None:
        if self._has_shown_end:
            self.dismiss(Decision(True, is_for_chat))
        else:
            self.app.bell()

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


def shell_text(argv: Sequence[str]) -> str:
    r"""Return a command line as a shell would take it, with every character that cannot be seen.

    These are escapes in a word such as `$'one\n'`; the rest of it begins a row of its own.
    """
    return " ".join(map(_word, argv))


def _word(word: str) -> str:
    if visible(word) == word:
        return shlex.quote(word)
    pieces = _LINE_ENDS.split(word)  # texts, and between them line ends
    texts = [visible(text.replace("\\", "\\\\").replace("'", "\\'")) for text in pieces[::2]]
    ends = [len(ends) * r"\n" for ends in pieces[1::2]]
    rows = [text + end for text, end in zip(texts, [*ends, ""], strict=True)]
    if not rows[-1]:
        rows.pop()
    return "$'" + "\n".join(rows) + "'"


def pretty(arguments: object) -> str:
    """Return JSON for reading, with escapes for what cannot be seen."""
    text = msgspec.json.format(msgspec.json.encode(arguments), indent=2).decode()
    return "\n".join(map(visible, text.split("\n")))
