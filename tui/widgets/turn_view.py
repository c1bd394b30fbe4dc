"""Turns of the transcript: what the user said, and what the model answered.

They can be focused; keys on them are sent up as `Wanted` messages, for the screen to act on.
"""

from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.strip import Strip
from textual.widgets import Static

from tui.answer import Answer
from tui.history import Turn
from tui.printable import printable
from tui.widgets.answer_view import AnswerView
from tui.widgets.reasoning_view import ReasoningView

Wish = Literal["edit", "retry", "copy", "previous", "next"]
_STATES = {"stopped": "■ stopped", "failed": "✗ failed", "streaming": "…"}


class TurnView(Vertical, can_focus=True):
    """What the two kinds share: focus, keys, and the marker of siblings.

    Args:
        turn: As it is stored.
        place: Which of how many siblings it is, from 1.
    """

    HELP = "Keys on a message: e edits or retries it, left and right walk its versions, c copies."
    DEFAULT_CSS = """
    TurnView {
        height: auto;
        margin: 0 0 1 0;
        padding: 0 1;
        border-left: blank;
        &:focus { border-left: outer $accent; }
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
        """The user wants something of this turn."""

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
        """The line below: which version it is, and what else is to say."""
        k, n = self._place
        return f"‹ {k}/{n} ›" if n > 1 else ""

    def render_line(self, y: int) -> Strip:
        """PERF: the base class renders all rows before it takes one of them."""
        return Strip.blank(self.size.width, self.visual_style.rich_style)

    def action_wish(self, wish: Wish) -> None:
        self.post_message(self.Wanted(self.turn, wish))

    def _show_meta(self) -> None:
        self._meta.update(self.meta)
        self._meta.display = bool(self.meta)


class UserTurnView(TurnView):
    """A message of the user, or the system message."""

    DEFAULT_CSS = """
    UserTurnView {
        background: $boost;
        Static { height: auto; }
        &:ansi { background: transparent; text-style: bold; }
    }
    """

    def compose(self) -> ComposeResult:
        mark = "❯" if self.turn.role == "user" else f"[{self.turn.role}]"
        yield Static(f"{mark} {printable(self.turn.content)}", markup=False)
        yield self._meta


class AssistantTurnView(TurnView):
    """An answer with its reasoning, stored or streaming."""

    DEFAULT_CSS = """
    AssistantTurnView {
        margin: 0;
        .meta { margin: 0 0 1 0; }
    }
    """  # Markdown ends in a blank row
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space,enter", "reasoning", "Reasoning", id="turn.reasoning"),
    ]

    def __init__(self, turn: Turn, place: tuple[int, int] = (1, 1)) -> None:
        super().__init__(turn, place)
        is_live = turn.state == "streaming"
        self.reasoning = ReasoningView(printable(turn.reasoning))
        self._answer = AnswerView(printable(turn.content), is_complete=not is_live)
        self._state: str = turn.state
        self._error = str(turn.stats.get("error", ""))

    def compose(self) -> ComposeResult:
        yield self.reasoning
        yield self._answer
        yield self._meta

    def on_mount(self) -> None:
        stats = self.turn.stats
        if n_tokens := stats.get("n_reasoning_frames"):
            self.reasoning.show(
                printable(self.turn.reasoning),
                n_tokens=n_tokens,
                seconds=stats["reasoning_s"],
                is_live=False,
            )

    @property
    def meta(self) -> str:
        state = _STATES.get(self._state, "")
        calls = [_signature(call) for call in self.turn.tool_calls]
        return "  ".join(filter(None, (*calls, state, self._error, super().meta)))

    async def show(self, answer: Answer) -> None:
        """Paint an answer as far as it is."""
        self.reasoning.show(
            answer.reasoning,
            n_tokens=answer.n_reasoning_frames,
            seconds=answer.reasoning_s,
            is_live=answer.phase == "reasoning",
        )
        await self._answer.show(answer.content, is_complete=not answer.is_live)
        self._state = "streaming" if answer.phase == "waiting" else answer.phase
        self._error = answer.error
        self._show_meta()

    def action_reasoning(self) -> None:
        self.reasoning.cycle()


def _signature(call: dict[str, object]) -> str:
    function = call.get("function", {})
    assert isinstance(function, dict)
    return f"→ {function.get('name')}({function.get('arguments')})"


def view_of(turn: Turn, place: tuple[int, int]) -> TurnView:
    """The widget for a turn of the history."""
    kind = AssistantTurnView if turn.role == "assistant" else UserTurnView
    return kind(turn, place)
