"""One answer as it comes, also from `/api/chat`: its texts, its phase, its figures."""

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from gptoss_local.api.answers import call_of, metrics_of
from gptoss_local.base.errors import GptOssError
from gptoss_local.base.events import (
    ChatEvent,
    ContentDelta,
    Done,
    Growing,
    Prefilling,
    ReasoningDelta,
    Started,
    ToolCall,
    WholeAnswer,
)

if TYPE_CHECKING:
    from gptoss_local.talk.history import Turn, TurnState

Phase = Literal["waiting", "reasoning", "answering", "done", "stopped", "failed"]

_SUMS = ("eval_count", "eval_duration", "total_duration", "load_duration")
_BEFORE = ("prompt_eval_count", "prompt_cached_count", "prompt_eval_duration", "ttft_s")
_MAX_LATENCIES = 240  # that are stored; longer answers are thinned out
_CHARACTERS_PER_FRAME = 4  # about


class Prefill(NamedTuple):
    """Tokens of the prompt: read so far, all, and found in the cache."""

    n_done: int
    n_prompt: int
    n_cached: int


class Answer(WholeAnswer):
    """An answer with its phase and its figures; `begun` is the stored part that it continues."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, *, begun: "Turn | None" = None
    ) -> None:
        super().__init__()
        self._clock = clock
        self._earlier = begun.stats if begun is not None else {}
        self._earlier_calls = begun.tool_calls if begun is not None else ()
        self._start_s = clock()
        self._first_s: float | None = None
        self._answering_s: float | None = None
        self._last_s: float | None = None
        self._end_s: float | None = None
        if begun is not None:
            self._content.append(begun.content)
            self._reasoning.append(begun.reasoning)
        self.n_frames = 0  # pieces of text, of one token or a few
        about = -(-len(self.reasoning) // _CHARACTERS_PER_FRAME)  # if it was not counted
        self.n_reasoning_frames: int = self._earlier.get("n_reasoning_frames", about)
        self.phase: Phase = "waiting"
        self.stats: dict[str, Any] = {}  # Ollama's figures and our measurements, at the end
        self.error = ""
        self.prefill: Prefill | None = None
        self.growth: Growing | None = None  # while the model is loaded again with more context
        self.n_left_out = 0
        self.latencies_s: list[float] = []  # between two pieces, all of them

    def add(self, event: ChatEvent) -> None:
        super().add(event)
        match event:
            case Growing():
                self.growth = event
            case Started(n_prompt, n_left_out):
                self.prefill, self.n_left_out = Prefill(0, n_prompt, 0), n_left_out
            case Prefilling(n_done, n_cached) if self.prefill is not None:
                self.prefill = Prefill(n_done, self.prefill.n_prompt, n_cached)
            case ReasoningDelta():
                self._note_piece()
                self.n_reasoning_frames += 1
                self.phase = "reasoning"
            case ContentDelta() | ToolCall():
                now_s = self._note_piece()
                self._answering_s = self._answering_s or now_s
                self.phase = "answering"
            case Done():
                self.stats = (
                    figures_of(event)
                    | self.measured
                    | {
                        "ttft_s": self.ttft_s,
                        "latencies_ms": [round(s * 1e3, 1) for s in thinned(self.latencies_s)],
                    }
                )
                self.stats = _continued(self._earlier, self.stats)
                self.end("done")

    def end(self, phase: Literal["done", "stopped", "failed"], error: str = "") -> None:
        """Mark the answer as over. Later calls change nothing."""
        if self.is_live:
            self.phase, self.error, self._end_s = phase, error, self._clock()

    def fail(self, error: GptOssError) -> None:
        self.end("failed", f"{error.message}. {error.hint}".strip())

    @property
    def tool_calls(self) -> tuple[dict[str, Any], ...]:
        return (*self._earlier_calls, *map(wire_call, self.calls))

    @property
    def measured(self) -> dict[str, Any]:
        return {"reasoning_s": self.reasoning_s, "n_reasoning_frames": self.n_reasoning_frames}

    @property
    def is_live(self) -> bool:
        return self._end_s is None

    @property
    def elapsed_s(self) -> float:
        return (self._end_s or self._clock()) - self._start_s

    @property
    def ttft_s(self) -> float | None:
        """Return the seconds from asking to the first token, as the user saw it."""
        return None if self._first_s is None else self._first_s - self._start_s

    @property
    def reasoning_s(self) -> float:
        """Return the seconds from the first token to the first one of the answer itself."""
        earlier_s = float(self._earlier.get("reasoning_s", 0.0))
        if self._first_s is None:
            return earlier_s
        return earlier_s + (self._answering_s or self._end_s or self._clock()) - self._first_s

    @property
    def n_tokens(self) -> int:
        """Return the engine's count, or until the end the pieces of text."""
        return int(self.stats.get("eval_count", self.n_frames))

    @property
    def tok_s(self) -> float | None:
        """Return tokens a second, reasoning included, the time before the first excluded."""
        if duration_ns := self.stats.get("eval_duration"):
            return float(self.n_tokens / duration_ns * 1e9)
        if self._first_s is None or self.n_frames < 2:
            return None
        passed_s = (self._end_s or self._clock()) - self._first_s
        return (self.n_frames - 1) / passed_s if passed_s > 0 else None

    def turn_fields(self) -> dict[str, Any]:
        """Return fields for `History.update`; earlier figures stay until there are new ones."""
        states: dict[str, TurnState] = {"done": "done", "stopped": "stopped", "failed": "failed"}
        kept = {name: value for name, value in self._earlier.items() if name != "error"}
        if self.n_frames:
            over = ("tokens", "done_reason")
            kept = {name: value for name, value in kept.items() if name not in over}
            kept |= self.measured if self.reasoning else {}
        return {
            "content": self.content,
            "reasoning": self.reasoning,
            "state": states.get(self.phase, "streaming"),
            "stats": (self.stats or kept) | ({"error": self.error} if self.error else {}),
            "tool_calls": self.tool_calls,
        }

    def _note_piece(self) -> float:
        self.n_frames += 1
        now_s = self._clock()
        if self._last_s is not None:
            self.latencies_s.append(now_s - self._last_s)
        self._last_s = now_s
        self._first_s = self._first_s or now_s
        return now_s


def figures_of(done: Done) -> dict[str, Any]:
    """Return an answer's figures as on the wire, durations in ns; zeros are left out."""
    figures: dict[str, Any] = msgspec.to_builtins(metrics_of(done))
    return figures | ({"tokens": done.tokens} if done.tokens else {})


def wire_call(call: ToolCall) -> dict[str, Any]:
    """Return a call as it is stored, and as `message.tool_calls` has it."""
    wire: dict[str, Any] = msgspec.to_builtins(call_of(call))
    return wire


def _continued(earlier: dict[str, Any], stats: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of both parts, without the ids of tokens, which may have changed."""
    if not earlier:
        return stats
    joined = {name: value for name, value in stats.items() if name != "tokens"}
    if earlier.get("eval_count"):
        joined |= {name: earlier.get(name, 0) + stats.get(name, 0) for name in _SUMS}
        joined |= {name: earlier[name] for name in _BEFORE if name in earlier}
        latencies_ms = (*earlier.get("latencies_ms", ()), *stats.get("latencies_ms", ()))
        joined["latencies_ms"] = thinned(latencies_ms)
        first, second = earlier.get("joules", {}), stats.get("joules", {})
        joined["joules"] = {name: first[name] + second[name] for name in first if name in second}
    return joined


def thinned(values: Sequence[float], n_max: int = _MAX_LATENCIES) -> list[float]:
    """Return at most `n_max` values, the largest of each stretch, as peaks matter."""
    if len(values) <= n_max:
        return list(values)
    edges = [len(values) * k // n_max for k in range(n_max + 1)]
    return [max(values[a:b]) for a, b in pairwise(edges)]
