"""Asks whether a call of a tool may run, and shows all of it."""

from typing import ClassVar, Literal

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.errors import NoWidget
from textual.events import Resize
from textual.widgets import Input, Static

from gptoss_local.talk.conversation import Decision, what_runs
from gptoss_local.talk.conversation.what_runs import CallPart, about_text, always_text
from gptoss_local.talk.tools import Arguments, RunnableTool
from tui.screens.dialog import Dialog

_N_ROWS_AROUND = 7  # of the dialog: frame, purpose, margins, keys
_NARROW = 70  # columns; below that the keys take another row
_KEYS = "y once   a always in this chat   A always for {}\nn no   r no, because   Esc stop"
_UNSEEN_KEYS = "End shows the rest, then y, a or A\nn no   r no, because   Esc stop"


class ApprovalDialog(Dialog[Decision | None]):
    """Ask about one call; None stops the whole answer. No other key than these allows it.

    It can be allowed once its end has been on the screen.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "allow('once')", "Once"),
        Binding("a", "allow('chat')", "Always in this chat"),
        Binding("A", "allow('always')", "Always, in all chats"),
        Binding("n", "deny", "No"),
        Binding("r", "reason", "No, with a reason"),
        Binding("escape", "leave", "Stop"),
    ]
    LOOK = "-question"

    def __init__(self, tool: RunnableTool, arguments: Arguments) -> None:
        super().__init__()
        self.title = f"The model asks to run {tool.name}"
        self.comes_unasked = True
        self._tool = tool
        self._arguments = arguments
        self._has_shown_end = False

    def content(self) -> ComposeResult:
        yield Static(f"It {about_text(self._tool)}.", markup=False)
        with VerticalScroll():
            yield from map(_shown, what_runs(self._tool, self._arguments))
        yield Input(placeholder="Why not? Enter sends it to the model", classes="-hidden")
        yield Static(self._keys, classes="keys", markup=False)

    @property
    def _keys(self) -> str:
        return _KEYS.format(always_text(self._tool)) if self._has_shown_end else _UNSEEN_KEYS

    def opened(self) -> None:
        scroll = self.query_one(VerticalScroll)
        scroll.focus()
        self.watch(scroll, "scroll_y", self._look_later)

    def on_resize(self, event: Resize) -> None:
        is_narrow = event.size.width < _NARROW
        n_rows = event.size.height * 85 // 100 - _N_ROWS_AROUND - is_narrow
        for scroll in self.query(VerticalScroll):
            scroll.styles.max_height = max(1, n_rows)
        self._look_later()

    def _look_later(self) -> None:
        self.call_after_refresh(self._look)

    def _look(self) -> None:
        """Say how many lines are below the screen, and note when the last one is on it."""
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
        self.query_one(".keys", Static).update(self._keys)

    def action_allow(self, scope: Literal["once", "chat", "always"]) -> None:
        if self._has_shown_end:
            self.dismiss(Decision(scope))
        else:
            self.app.bell()

    def action_deny(self) -> None:
        self.dismiss(Decision(None))

    def action_reason(self) -> None:
        reason = self.query_one(Input)
        reason.remove_class("-hidden")
        reason.focus()

    def action_leave(self) -> None:
        self.dismiss(None)

    @on(Input.Submitted)
    def tell(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(Decision(None, event.value.strip()))


def _shown(part: CallPart) -> Static:
    if part.kind == "code":
        from textual.highlight import highlight  # PERF: the first prompt comes before it

        return Static(highlight(part.text, language="python"), markup=False)
    end = "\n" if part.kind == "command" else ""  # its input comes after a blank row
    return Static(f"{part.text}{end}", markup=False)
