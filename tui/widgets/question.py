"""A question with a list of answers, between the transcript and the input."""

import asyncio
import time
from collections.abc import Callable, Sequence

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.errors import NoWidget
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from gptoss_local.talk.what_runs import CallPart

_KEYS = "↑ ↓ ⏎ answer   Esc stop   from a draft Shift-Tab first"
_HASTE_S = 0.5  # in which a key was meant for the input
_LOOK_S = 0.1


class _Answers(OptionList):
    FOCUS_ON_CLICK = False

    def __init__(self, take: Callable[[str], None]) -> None:
        super().__init__(markup=False)
        self._take = take

    def action_select(self) -> None:
        if self.highlighted_option is not None:  # now: a message would come after the next key
            self._take(str(self.highlighted_option.prompt))


class _Line(Input):
    def __init__(self, take: Callable[[str], None]) -> None:
        super().__init__(placeholder="Why not? Enter tells the model", select_on_focus=False)
        self._take = take

    async def action_submit(self) -> None:
        self._take(self.value.strip())


class Question(Vertical):
    """Never takes the keyboard; the screen gives it the keys that `wants` accepts."""

    DEFAULT_CSS = """
    Question {
        height: auto; display: none; padding: 0 1; border: round $text-warning;
        Static { height: auto; }
        OptionList, OptionList:focus {
            height: auto; border: none; background: transparent; padding: 0;
        }
        Input, Input:focus { border: none; background: $boost; height: 1; padding: 0 1; }
    }
    """

    def __init__(self, input: Widget) -> None:
        super().__init__()
        self._input = input
        self._text = Static(markup=False)
        self.answers = _Answers(self._take)
        self._line = _Line(self._take)
        self._answer: asyncio.Future[str]
        self._shown_s = 0.0
        self.border_subtitle = _KEYS

    def compose(self) -> ComposeResult:
        yield self._text
        yield self.answers
        yield self._line

    def wants(self, key: str, pause_s: float) -> bool:
        """Return whether a key of an empty input, after a pause, answers."""
        is_in_haste = min(pause_s, time.monotonic() - self._shown_s) < _HASTE_S
        if not self.display or is_in_haste or key not in ("up", "down", "enter"):
            return False
        try:
            shown = self.screen.find_widget(self.answers).visible_region
        except NoWidget:
            return False
        return shown.height == self.answers.outer_size.height  # else the terminal has no room

    async def choose(self, text: str, labels: Sequence[str]) -> int:
        """Return the number of the chosen answer; Enter takes the first one."""
        self.answers.set_options(Option(label) for label in labels)
        self.answers.highlighted = 0
        return labels.index(await self._ask(text, self.answers))

    async def reason(self) -> str:
        self._line.value = ""
        return await self._ask("No, because", self._line)

    @property
    def is_settling(self) -> bool:
        """True while an answer was given, and what follows it is not there yet."""
        return self.display and self._answer.done()

    def tell(self, note: str) -> None:
        self.border_subtitle = note or _KEYS

    async def _ask(self, text: str, widget: Widget) -> str:
        self._text.update(text)
        for each in (self.answers, self._line):
            each.display = each is widget
        self.display, self._shown_s = True, time.monotonic()
        self._answer = asyncio.get_running_loop().create_future()
        if widget is self._line:
            self.screen.set_focus(widget)
        return await self._answer

    def close(self) -> None:
        if self.display and self.is_attached:
            if self.screen.focused in (self.answers, self._line):
                self.screen.set_focus(self._input)
            self.display = False
            self.tell("")

    def _take(self, answer: str) -> None:
        if not self._answer.done():
            self._answer.set_result(answer)


class CallView(Vertical):
    """All of a call that would run; `tell` gets the number of lines that were never shown."""

    DEFAULT_CSS = (
        "CallView { height: auto; padding: 0 2; margin: 0 0 1 0; Static { height: auto; } }"
    )

    def __init__(self, parts: Sequence[CallPart], tell: Callable[[int], None]) -> None:
        super().__init__()
        self._parts = parts
        self._tell = tell
        self._width = 0
        self._seen: set[int] = set()
        self.n_unseen = len(parts)  # until it is looked at

    def compose(self) -> ComposeResult:
        yield from map(self._shown, self._parts)

    def begin(self) -> None:
        """Count the lines that are shown from now on; the first one must be at the top."""
        self.set_interval(_LOOK_S, self._look)

        def scrolled() -> None:  # pages of a held key come faster
            self._look()
            self.call_after_refresh(self._look)

        self.watch(self.query_ancestor(VerticalScroll), "scroll_y", scrolled, init=False)

    def _look(self) -> None:
        if not self.is_attached or self.app.screen is not self.screen or not self.size.height:
            return
        try:
            region, _, clip, *_ = self.screen.find_widget(self)
        except NoWidget:
            return
        if region.width != self._width:  # its lines are others
            self._width, self._seen = region.width, set()
        shown = clip.intersection(region)
        self._seen.update(range(shown.y - region.y, shown.bottom - region.y))
        if (n_unseen := region.height - len(self._seen)) != self.n_unseen:
            self.n_unseen = n_unseen
            self._tell(n_unseen)

    def _shown(self, part: CallPart) -> Static:
        if part.kind in ("code", "diff"):
            from textual.highlight import HighlightTheme, highlight  # PERF: after the first prompt

            from tui.code_rows import look_of

            is_diff = part.kind == "diff"
            look = look_of(self.app).tokens if is_diff else HighlightTheme
            language = "diff" if is_diff else "python"
            return Static(highlight(part.text, language=language, theme=look), markup=False)
        end = "\n" if part.kind == "command" else ""  # its input comes after a blank row
        return Static(f"{part.text}{end}", markup=False)
