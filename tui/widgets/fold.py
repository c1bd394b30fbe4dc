"""A label, and below it a text that is folded away: arguments of a call, its result."""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.events import Click
from textual.widgets import Static

from gptoss_local.printable import printable
from tui.widgets.line_block import LineBlock


class Fold(Vertical):
    """Folded at first; a click on the label opens it."""

    BLANK = True  # PERF: as in AnswerView
    DEFAULT_CSS = """
    Fold {
        height: auto;
        color: $text-muted;
        Static { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
        LineBlock { padding: 0 0 0 2; display: none; }
        &.-open LineBlock { display: block; }
    }
    """

    def __init__(self, label: str, text: str) -> None:
        super().__init__()
        self._facts = printable(label)
        self._label = Static(markup=False)
        self._lines = LineBlock()
        self._lines.show(printable(text))

    def compose(self) -> ComposeResult:
        yield self._label
        yield self._lines

    def on_mount(self) -> None:
        self.set_open(False)

    @property
    def is_open(self) -> bool:
        return self.has_class("-open")

    def set_open(self, is_open: bool) -> None:
        self.set_class(is_open, "-open")
        self._label.update(f"{'▾' if is_open else '▸'} {self._facts}")

    def on_click(self, event: Click) -> None:
        if event.widget is self._label:  # below it text can be selected
            self.set_open(not self.is_open)
