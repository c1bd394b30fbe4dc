"""Each widget alone, in the states that tell something."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from textual.app import App
from textual.widget import Widget

import tui
from gptoss_local.api.gptoss import GpuMemory
from gptoss_local.api.models import LoadStatus
from gptoss_local.talk.answer import Answer
from tests.tui.snapshots.values import (
    CALL,
    GIB,
    MARKDOWN,
    STATS,
    answered,
    saying,
    streaming,
    thinking,
    turn,
)
from tui.actions import REGISTRY
from tui.widgets.line_block import LineBlock
from tui.widgets.message_queue import MessageQueue
from tui.widgets.prompt import Completion, CompletionMenu, Prompt
from tui.widgets.speed_panel import SpeedPanel
from tui.widgets.status_line import Status, StatusLine
from tui.widgets.transcript import Transcript
from tui.widgets.turn_view import AssistantTurnView, TurnView, view_of

Act = Callable[[Any], object]
"""What is done to a widget once it is there; awaited if it can be."""

THEME = "nord"
"""Here no two of the colours with a meaning are the same."""

WidgetCase = tuple[Callable[[], Widget], Act | None]


class Stage(App[None]):
    """One widget below the rules of the chat."""

    CSS_PATH = Path(tui.__file__).with_name("chat.tcss")
    ENABLE_COMMAND_PALETTE = False

    def __init__(self) -> None:
        super().__init__()
        self.theme = THEME


def _view(*turns: Any, place: tuple[int, int] = (1, 1)) -> Callable[[], Widget]:
    return lambda: view_of(*turns, place)


def _live(answer: Answer) -> WidgetCase:
    return _view(turn("assistant", "", state="streaming")), lambda view: view.show(answer)


def _reasoning(n_cycles: int) -> WidgetCase:
    def act(view: AssistantTurnView) -> None:
        for _ in range(n_cycles):
            view.action_reasoning()

    return _view(answered()), act


def _status(status: Status) -> WidgetCase:
    return StatusLine, lambda line: line.show(status)


def _lines(text: str, width: int) -> WidgetCase:
    def make() -> LineBlock:
        block = LineBlock()
        block.styles.width = width
        block.show(text)
        return block

    return make, None


def _speed(stats: dict[str, Any]) -> WidgetCase:
    def act(panel: SpeedPanel) -> None:
        panel.display = True
        panel.show(stats)

    return SpeedPanel, act


def _live_speed(panel: SpeedPanel) -> None:
    panel.display = True
    panel.show_live(streaming(*saying(*"abcdefgh"), step_s=1 / 32))


def _queue(*texts: str) -> WidgetCase:
    def act(queue: MessageQueue) -> None:
        for text in texts:
            queue.add(text)

    return MessageQueue, act


def _prompt(text: str, is_editing: bool = False) -> WidgetCase:
    def act(prompt: Prompt) -> None:
        prompt.set_editing(is_editing)
        prompt.fill(text)

    return lambda: Prompt(REGISTRY), act


def _complete(menu: CompletionMenu) -> None:
    lines = [("/set [NAME VALUE]", "An option"), ("/stats [on|off]", "Speed \x1b[2J")]
    menu.show([Completion(*line, lambda: None) for line in lines], "a note", marks=True)


def _transcript() -> Widget:
    return Transcript(lambda _id: (1, 1))


async def _long(transcript: Transcript) -> None:
    """More turns than fit: the end is seen."""
    await transcript.open([_numbered(n, role) for n in range(20) for role in ("user", "assistant")])


def _numbered(n: int, role: str) -> Any:
    ident = 2 * n + (role == "assistant")
    words = f"{'Question' if role == 'user' else 'Answer'} {n}"
    return msgspec.structs.replace(turn(role, words), id=ident)


_FENCE = "Look:\n\n```python\nfor n in range(3):\n    print(n)  # and"
_TABLE = "| model | size |\n|---|---:|\n| 20b | 12 |\n| 120"
_MATHEMATICS = r"""The roots of \( ax^2 + bx + c \), for $5 or $6:

\[
x = \frac{-b \pm \sqrt{b^2-4ac}}{2a}
\]

As it was typed: \( \overline{AB} \).
"""
_WIDE = f"""```js
const text = "{"a long line " * 8}";
```

| name | year | what it is | 説明 |
|---|---:|---|---|
| first | 2024 | {"words of a long cell " * 4}| 日本語の長い説明文です |
| second | 2025 | short | 短い |
"""
_HTML = """Press <kbd>Ctrl</kbd>.

<details>
  <summary>More</summary>

- [x] inside

</details>
"""
_WAITING = {"processed": 12_000, "total": 60_000, "cache": 1000}
_LEFT_OUT = _WAITING | {"left_out": 4}
_LOAD = LoadStatus("", "loading", completed=8 * 10**9, total=12 * 10**9)
_GPUS = (GpuMemory("", 16 * GIB, 5 * GIB), GpuMemory("", 12 * GIB, 10 * GIB))
_ANSWERING = streaming(*thinking("so", " it is"), *saying("Pa", "ris"))
_DONE = streaming(*saying("Pa", "ris"), {"done": True, **STATS})
_FAILED = "the engine stopped unexpectedly. Ask again; the log says more"

WIDGETS: dict[str, WidgetCase] = {
    "turn-user": (_view(turn("user", "Where is *Paris*?\n[bold]And[/bold] Rome?")), None),
    "turn-system": (_view(turn("system", "Be brief.")), None),
    "turn-version": (_view(turn("user", "Again"), place=(2, 3)), None),
    "turn-focused": (_view(answered(), place=(1, 2)), TurnView.focus),
    "answer-markdown": (_view(answered(MARKDOWN, reasoning="", stats={})), None),
    "answer-mathematics": (_view(answered(_MATHEMATICS, reasoning="", stats={})), None),
    "answer-wide": (_view(answered(_WIDE, reasoning="", stats={})), None),
    "answer-html": (_view(answered(_HTML, reasoning="", stats={})), None),
    "answer-waiting": _live(streaming()),
    "answer-reasons": _live(streaming(*thinking(*(f"Thought {n}\n" for n in range(8))))),
    "answer-open-paragraph": _live(streaming(*saying("# Title\n\nSome **bold** and `co"))),
    "answer-open-fence": _live(streaming(*saying(_FENCE))),
    "answer-open-table": _live(streaming(*saying(_TABLE))),
    "answer-stopped": (_view(answered("Pa", state="stopped", stats={})), None),
    "answer-failed": (_view(answered("Pa", state="failed", stats={"error": _FAILED})), None),
    "answer-failed-version": (_view(answered("", state="failed"), place=(3, 3)), None),
    "answer-calls": (_view(answered("", tool_calls=(CALL,))), None),
    "answer-calls-open": (
        _view(answered("", tool_calls=(CALL,), reasoning="")),
        AssistantTurnView.action_reasoning,
    ),
    "reasoning-folded": _reasoning(0),
    "reasoning-tail": _reasoning(1),
    "reasoning-full": _reasoning(2),
    "tool-result": (_view(_result := turn("tool", '{"celsius": 21}\nsunny', tool_name="get_weather",
                                          stats={"seconds": 0.25})), None),
    "tool-result-open": (_view(_result), lambda view: view.action_fold()),
    "tool-denied": (_view(turn("tool", "The user denied this call. Not today",
                               tool_name="get_weather", stats={"is_error": True})), None),
    "lines-wrapped": _lines("Some words that wrap, 日本語の長い文字列です, and\na tab\tend",
                            width=20),
    "transcript-end": (_transcript, _long),
    "prompt-empty": _prompt(""),
    "prompt-lines": _prompt("\n".join(f"line {n}" for n in range(14))),
    "prompt-editing": _prompt("What is the capital of Italy?", is_editing=True),
    "completions": (lambda: CompletionMenu(lambda: None), _complete),
    "queue": _queue("What is\nthe capital?", "and " * 40),
    "queue-many": _queue(*(f"message {n}" for n in range(5))),
    "speed": _speed(STATS),
    "speed-none": _speed({}),
    "speed-live": (SpeedPanel, _live_speed),
    "status": _status(Status("nano", "medium")),
    "status-loaded": _status(Status("nano", "high", n_used=1250, n_ctx=32_768, gpus=_GPUS)),
    "status-loading": _status(Status("gpt-oss:20b", "low", streaming(), load=_LOAD)),
    "status-reading": _status(Status("nano", "low", streaming(progress=_WAITING), n_ctx=65_536)),
    "status-answering": _status(Status("nano", "low", _ANSWERING, n_used=100, n_ctx=8192)),
    "status-done": _status(Status("nano", "low", _DONE, n_used=1250, n_ctx=8192)),
    "status-left-out": _status(Status("nano", "low", streaming(progress=_LEFT_OUT))),
    "status-note": _status(Status("nano", "low", _DONE, note="may it run get_weather?")),
}  # fmt: skip


async def act_on(widget: Widget, act: Act | None) -> None:
    """Do what the case says."""
    done = act(widget) if act is not None else None
    if isinstance(done, Awaitable):
        await done
