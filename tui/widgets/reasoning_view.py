"""The model's reasoning: a label that counts, and its text folded, as a tail, or in full."""

from typing import Literal

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.events import Click
from textual.widgets import Static

from gptoss_local.quantities import counted
from tui.widgets.line_block import LineBlock

Shown = Literal["folded", "tail", "full"]

_TAIL_ROWS = 5
_NEXT: dict[Shown, Shown] = {"folded": "tail", "tail": "full", "full": "folded"}


class ReasoningView(Vertical):
    """Tail while the model reasons, folded when the answer starts, unless the user chose."""

    BLANK = True  # PERF: as in AnswerView
    DEFAULT_CSS = """
    ReasoningView {
        height: auto;
        display: none;
        color: $text-muted;
        Static { height: 1; text-style: italic; }
        LineBlock { padding: 0 0 1 2; max-width: 102; }  /* as prose */
        &:ansi LineBlock { text-style: dim; }
    }
    """

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self._label = Static(markup=False)
        self._lines = LineBlock(tail_rows=_TAIL_ROWS)
        self._shown: Shown = "folded" if text else "tail"
        self._is_chosen = False
        self._facts = ""
        self._text = text

    def compose(self) -> ComposeResult:
        yield self._label
        yield self._lines

    def on_mount(self) -> None:
        if self._text:
            self.display = True
            self._lines.show(self._text)
        self._apply()

    @property
    def shown(self) -> Shown:
        return self._shown

    @property
    def label(self) -> str:
        mark = {"folded": "▸", "tail": "▾", "full": "▾"}[self._shown]
        state = {"folded": "", "tail": " (tail)", "full": " (full)"}[self._shown]
        return f"{mark} {self._facts or 'reasoning'}{state}"

    def show(self, text: str, *, n_tokens: int, seconds: float, is_live: bool) -> None:
        if not text:
            return
        self.display = True
        verb, about = ("reasoning", "~") if is_live else ("reasoned", "")
        self._facts = f"{verb} {about}{counted(n_tokens, 'token')} · {seconds:.1f} s"
        self._lines.show(text)
        if not is_live and not self._is_chosen:
            self._shown = "folded"
        self._apply()

    def cycle(self) -> None:
        self._shown, self._is_chosen = _NEXT[self._shown], True
        self._apply()

    def on_click(self, event: Click) -> None:
        if event.widget is self._label:  # below it text can be selected
            self.cycle()

    def _apply(self) -> None:
        self._label.update(self.label)
        self._lines.display = self._shown != "folded"
        self._lines.set_tail(_TAIL_ROWS if self._shown == "tail" else None)
