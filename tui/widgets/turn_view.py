"""Turns of the transcript, which Shift-Tab focuses; keys send `Wanted` messages to the screen."""

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import msgspec
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.events import Click
from textual.message import Message
from textual.strip import Strip
from textual.widgets import Static

from gptoss_local.base.printable import printable, shown, visible
from gptoss_local.base.quantities import counted
from gptoss_local.talk.answer import Answer
from gptoss_local.talk.conversation import was_cut
from gptoss_local.talk.history import Turn
from gptoss_local.talk.tools import Page
from gptoss_local.talk.tools.work import PATCH
from gptoss_local.talk.what_runs import code_of
from tui.conversation import composed_of
from tui.paste import shown_parts
from tui.widgets.answer_view import AnswerView
from tui.widgets.line_block import DiffBlock, LineBlock

Shown = Literal["folded", "tail", "full"]

_TAIL_ROWS = 5
_NEXT: dict[Shown, Shown] = {"folded": "tail", "tail": "full", "full": "folded"}


class Fold(Vertical):
    """A label, and a text below it, folded at first; a click on the label opens it."""

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

    def __init__(
        self,
        label: str,
        text: str,
        block: type[LineBlock] = LineBlock,
        *,
        tail_rows: int | None = None,
    ) -> None:
        super().__init__()
        self._facts = printable(label)
        self._label = Static(markup=False)
        self._lines = block(tail_rows=tail_rows)
        self._lines.show(text)

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
            self.turn()

    def turn(self) -> None:
        self.set_open(not self.is_open)


class ReasoningView(Fold):
    """Tail while the model reasons, folded when the answer starts, unless the user chose."""

    DEFAULT_CSS = """
    ReasoningView {
        display: none;
        Static { text-style: italic; }
        LineBlock { padding: 0 0 1 2; max-width: 102; }  /* as prose */
        &:ansi LineBlock { text-style: dim; }
    }
    """

    def __init__(self, text: str = "") -> None:
        super().__init__("reasoning", text, tail_rows=_TAIL_ROWS)
        self._shown: Shown = "folded" if text else "tail"
        self._is_chosen = False
        self.display = bool(text)

    def on_mount(self) -> None:
        self._apply()

    @property
    def shown(self) -> Shown:
        return self._shown

    @property
    def label(self) -> str:
        is_folded = self._shown == "folded"
        return f"▸ {self._facts}" if is_folded else f"▾ {self._facts} ({self._shown})"

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

    def turn(self) -> None:
        self._shown, self._is_chosen = _NEXT[self._shown], True
        self._apply()

    def _apply(self) -> None:
        self._label.update(self.label)
        self._lines.display = self._shown != "folded"
        self._lines.set_tail(_TAIL_ROWS if self._shown == "tail" else None)


Wish = Literal["edit", "continue", "copy", "previous", "next"]
_STATES = {"stopped": "■ stopped", "failed": "✗ failed", "streaming": "…"}
_ENDS = {"length": "✂ reached its length limit", "repetition": "■ stopped: it went in circles"}
_NOTHING = "■ ended without an answer"
_CONTINUE = "/continue resumes it"
_LONGEST_CITATION = 60  # characters


class TurnView(Vertical, can_focus=True):
    """The base of all kinds; `place` is its number among its siblings, from 1, and their count."""

    FOCUS_ON_CLICK = False
    HELP = "Keys on a message: e edits or retries it, left and right walk its versions, c copies."
    DEFAULT_CSS = """
    TurnView {
        height: auto;
        margin: 0 0 1 0;
        padding: 0 1;
        border-left: blank;
        &:focus { border-left: outer $text-accent; }
        .meta { color: $text-muted; height: auto; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "wish('edit')", "Edit or retry", id="turn.edit"),
        Binding("left", "wish('previous')", "Version before", id="turn.previous"),
        Binding("right", "wish('next')", "Next version", id="turn.next"),
        Binding("c", "wish('copy')", "Copy", id="turn.copy"),
        Binding("up", "app.focus_previous", show=False),
        Binding("down", "app.focus_next", show=False),
    ]

    class Wanted(Message):
        def __init__(self, turn: Turn, wish: Wish) -> None:
            super().__init__()
            self.turn = turn
            self.wish = wish

    def __init__(self, turn: Turn, place: tuple[int, int] = (1, 1)) -> None:
        super().__init__(id=f"turn-{turn.id}")
        self.turn = turn
        self._place = place
        self._meta = Static(classes="meta", markup=False)

    def on_mount(self) -> None:
        self._show_meta()

    @property
    def meta(self) -> str:
        k, n = self._place
        return f"‹ {k}/{n} ›" if n > 1 else ""

    def set_place(self, place: tuple[int, int]) -> None:
        if place != self._place:
            self._place = place
            self._show_meta()

    def render_line(self, y: int) -> Strip:
        """PERF: the base class renders all rows before it takes one of them."""
        return Strip.blank(self.size.width, self.visual_style.rich_style)

    def action_wish(self, wish: Wish) -> None:
        self.post_message(self.Wanted(self.turn, wish))

    def _show_meta(self) -> None:
        self._meta.update(self.meta)
        self._meta.display = bool(self.meta)


class UserTurnView(TurnView):
    """A message of the user, or the system message; long pastes in it are folded."""

    HELP = (
        "A message. e edits it, left and right walk its versions, c copies it, "
        "Space opens and folds pastes and files."
    )
    DEFAULT_CSS = """
    UserTurnView {
        background: $boost;
        .text { height: auto; }
        &:ansi { background: transparent; text-style: bold; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space,enter", "fold", "Open or fold pastes and files", id="turn.unfold"),
    ]

    def compose(self) -> ComposeResult:
        mark = "❯" if self.turn.role == "user" else f"[{self.turn.role}]"
        self._folds: list[Fold] = []
        for n, (label, text) in enumerate(shown_parts(composed_of(self.turn))):
            if not n:
                first = mark if label else f"{mark} {shown(text)}"
                yield Static(first, classes="text", markup=False)
            elif not label:
                yield Static(shown(text), classes="text", markup=False)
            if label:
                self._folds.append(Fold(label, text))
                yield self._folds[-1]
        yield self._meta

    def action_fold(self) -> None:
        is_open = not any(fold.is_open for fold in self._folds)
        for fold in self._folds:
            fold.set_open(is_open)


class AssistantTurnView(TurnView):
    DEFAULT_CSS = """
    AssistantTurnView {
        margin: 0;
        .meta { margin: 0 0 1 0; }
        .meta.-failed { color: $text-error; }
    }
    """  # Markdown ends in a blank row
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("g", "wish('continue')", "Continue an answer that was cut", id="turn.continue"),
        Binding("space,enter", "reasoning", "Reasoning", id="turn.reasoning"),
    ]

    def __init__(
        self, turn: Turn, place: tuple[int, int] = (1, 1), pages: Sequence[Page] = ()
    ) -> None:
        super().__init__(turn, place)
        is_live = turn.state == "streaming"
        self.reasoning = ReasoningView(turn.reasoning)
        self._pages = pages
        cited = self._cited(turn.content, is_complete=not is_live)
        self._answer = AnswerView(cited, is_complete=not is_live)
        self._calls = [call_fold(call) for call in turn.tool_calls]
        self._is_last = False
        self._state: str = turn.state
        self._reason = turn.stats.get("done_reason", "")
        self._error = str(turn.stats.get("error", ""))

    def compose(self) -> ComposeResult:
        yield self.reasoning
        yield self._answer
        yield from self._calls
        yield self._meta

    def on_mount(self) -> None:
        stats = self.turn.stats
        if n_tokens := stats.get("n_reasoning_frames"):
            self.reasoning.show(
                self.turn.reasoning,
                n_tokens=n_tokens,
                seconds=stats.get("reasoning_s", 0.0),
                is_live=False,
            )

    @property
    def meta(self) -> str:
        is_done = self._state == "done"
        is_empty = not (self.turn.content or self.turn.tool_calls)
        ends = _ENDS.get(self._reason, _NOTHING if is_empty else "") if is_done else ""
        state = ends or _STATES.get(self._state, "")
        way = _CONTINUE if self._is_last and was_cut(self.turn) else ""
        return "  ".join(filter(None, (state, self._error, way, super().meta)))

    def set_last(self, is_last: bool) -> None:
        if is_last != self._is_last:
            self._is_last = is_last
            self._show_meta()

    def _show_meta(self) -> None:
        super()._show_meta()
        self._meta.set_class(self._state == "failed", "-failed")

    async def show(self, answer: Answer) -> None:
        self.reasoning.show(
            answer.reasoning,
            n_tokens=answer.n_reasoning_frames,
            seconds=answer.reasoning_s,
            is_live=answer.phase == "reasoning",
        )
        is_complete = not answer.is_live
        cited = self._cited(answer.content, is_complete=is_complete)
        await self._answer.show(cited, is_complete=is_complete)
        new = [call_fold(call) for call in answer.tool_calls[len(self._calls) :]]
        if new:
            self._calls += new
            await self.mount_all(new, before=self._meta)
        self._state = "streaming" if answer.phase == "waiting" else answer.phase
        self._error = answer.error
        self._reason = answer.stats.get("done_reason", "")
        self._show_meta()

    def _cited(self, text: str, *, is_complete: bool) -> str:
        """Return an answer with its citations as links, without an incomplete one at its end."""
        if not self._pages or "【" not in text:
            return text
        from gptoss_local.talk.citations import linked  # PERF: few answers cite

        start = text.rfind("【")
        if not is_complete and "】" not in text[start:] and len(text) - start < _LONGEST_CITATION:
            text = text[:start]
        return linked(text, self._pages)

    def can_grow_to(self, turn: Turn) -> bool:
        """Return whether `grow` can show a turn: it only has more text than now."""
        old = self.turn
        has_more = turn.content.startswith(old.content), turn.reasoning.startswith(old.reasoning)
        return old.state == "streaming" and all(has_more)

    async def grow(self, turn: Turn) -> None:
        answer = Answer(begun=turn)
        answer.stats = turn.stats
        if turn.state != "streaming":
            answer.end(turn.state, str(turn.stats.get("error", "")))
        self.turn = turn
        await self.show(answer)

    def action_reasoning(self) -> None:
        self.reasoning.turn()
        for call in self._calls:
            call.set_open(self.reasoning.shown != "folded")


class ToolTurnView(TurnView):
    HELP = "The result of a tool. Space opens and folds it, c copies it."
    BINDINGS: ClassVar[list[BindingType]] = [Binding("space,enter", "fold", "Open or fold")]

    def compose(self) -> ComposeResult:
        turn = self.turn
        what = (
            "failed"
            if turn.stats.get("is_error")
            else counted(len(turn.content.splitlines()), "line")
        )
        what = what if turn.content else _STATES.get(turn.state, what)
        if seconds := turn.stats.get("seconds"):  # a call that was denied took none
            what += f", {seconds:.1f} s"
        first = turn.content.strip().split("\n", 1)[0]
        label = f"{turn.tool_name} → {what}: {first}"
        self._fold = Fold(label, turn.content)
        yield self._fold

    def action_fold(self) -> None:
        self._fold.turn()


def call_fold(call: dict[str, Any]) -> Fold:
    """Return a call, as Ollama's API has it, as one line; its arguments, code or patch below."""
    function = call.get("function", {})
    arguments = function.get("arguments", {})
    if (code := code_of(function.get("name", ""), arguments)) is not None:
        first, _, _ = code.strip().partition("\n")
        return Fold(f"calls python: {visible(first)}", code)
    patch = next(iter(arguments.values()), None) if isinstance(arguments, dict) else arguments
    if function.get("name") == PATCH and isinstance(patch, str) and "***" in patch:
        files = re.findall(r"^\*\*\* \w+ File: (.*)", patch, re.MULTILINE)
        return Fold(f"calls {PATCH}: {visible(', '.join(files))}", patch, DiffBlock)
    if isinstance(arguments, dict):
        inline = ", ".join(f"{name}: {value!r}" for name, value in arguments.items())
    else:  # of a chat from elsewhere
        inline = str(arguments)
    text = msgspec.json.format(msgspec.json.encode(arguments), indent=2).decode()
    return Fold(visible(f"calls {function.get('name')}({inline})"), text)


def view_of(turn: Turn, place: tuple[int, int], pages: Sequence[Page] = ()) -> TurnView:
    if turn.role == "assistant":
        return AssistantTurnView(turn, place, pages)
    return (ToolTurnView if turn.role == "tool" else UserTurnView)(turn, place)
