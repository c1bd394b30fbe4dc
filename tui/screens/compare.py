"""Shows versions of an answer side by side, or below each other on a narrow terminal."""

from collections.abc import Sequence
from typing import ClassVar

from rich.markup import escape
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.events import Resize
from textual.widgets import Static

from gptoss_local.base.printable import shown
from gptoss_local.talk.history import Turn
from tui.screens.dialog import Dialog
from tui.widgets.answer_view import AnswerView
from tui.widgets.turn_view import call_fold

_MIN_COLUMN = 45
_MAX_SHOWN = 3


class CompareDialog(Dialog[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "leave", "Leave"),
        Binding("tab,right", "app.focus_next", "Next", show=False),
        Binding("shift+tab,left", "app.focus_previous", "Previous", show=False),
    ]
    TITLE = "Versions of an answer"
    KEYS = "Tab next   Esc leave"
    DEFAULT_CSS = """
    CompareDialog {
        #versions { layout: vertical; height: 1fr; }
        #versions.-wide { layout: horizontal; }
        .version { width: 1fr; height: 1fr; border: round $text-primary; padding: 0 1; }
        .version:focus { border: round $text-accent; }
        .reasoning { color: $text-muted; margin: 0 0 1 0; }
        .error { color: $text-error; }
    }
    """

    def __init__(self, versions: Sequence[Turn]) -> None:
        super().__init__()
        first = max(0, len(versions) - _MAX_SHOWN)
        self._versions = [(n + 1, turn) for n, turn in enumerate(versions)][first:]

    def content(self) -> ComposeResult:
        with Container(id="versions"):
            for n, turn in self._versions:
                with VerticalScroll(classes="version") as column:
                    column.border_title = escape(f"{n}: {turn.model}, {turn.effort}")
                    column.border_subtitle = _figures(turn)
                    if turn.reasoning:
                        yield Static(shown(turn.reasoning), classes="reasoning", markup=False)
                    yield AnswerView(turn.content, is_complete=True)
                    yield from map(call_fold, turn.tool_calls)
                    if error := turn.stats.get("error"):
                        yield Static(shown(error), classes="error", markup=False)

    def opened(self) -> None:
        self.query(VerticalScroll).last().focus()

    def on_resize(self, event: Resize) -> None:
        is_wide = event.size.width >= _MIN_COLUMN * len(self._versions)
        self.query("#versions").set_class(is_wide, "-wide")


def _figures(turn: Turn) -> str:
    stats = turn.stats
    if not stats.get("eval_count"):
        return turn.state
    reasoned = f", {stats['n_reasoning_frames']:,} of reasoning" if turn.reasoning else ""
    return f"{stats['eval_count']:,} tokens{reasoned}, {stats.get('total_duration', 0) / 1e9:.1f} s"
