"""One answer as it streams: its texts, its phase, its counts. Pure, no Textual, no HTTP."""

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from gptoss_local.printable import printable
from gptoss_local.talk.history import Turn

Phase = Literal["waiting", "reasoning", "answering", "done", "stopped", "failed"]

_STATS = (
    "prompt_eval_count", "prompt_cached_count", "prompt_eval_duration", "eval_count",
    "eval_duration", "load_duration", "total_duration", "done_reason", "tokens",
    "joules",
)  # fmt: skip
_SUMS = ("eval_count", "eval_duration", "total_duration", "load_duration")
_BEFORE = ("prompt_eval_count", "prompt_cached_count", "prompt_eval_duration", "ttft_s")
_MAX_LATENCIES = 240  # that are stored; longer answers are thinned out
_CHARACTERS_PER_FRAME = 4  # about


class Prefill(NamedTuple):
    """Tokens of the prompt: those in the cache now, all, those it did not have to compute."""

    n_done: int
    n_prompt: int
    n_cached: int


class Growth(NamedTuple):
    """Tokens: of a prompt, of the context that was too small, and of the one that is loaded now."""

    n_prompt: int
    n_ctx_before: int
    n_ctx: int


class Answer:
    """Grows frame by frame of `/api/chat`.

    Args:
        clock: Seconds.
        begun: The stored part of an answer that is continued.

    Attributes:
        n_frames: Frames with text; one per token, or per few tokens if the model was sure of them.
        stats: Figures of the last frame and what was measured here; empty until then.
        error: Why it failed, and what to do.
        prefill: How far the prompt is read; None as long as nothing is known.
        growth: The model is loaded again with more context; None if it is not.
        n_left_out: Messages of the conversation that the prompt has no room for.
        latencies_s: Between two frames, all of them.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, *, begun: Turn | None = None
    ) -> None:
        self._clock = clock
        self._earlier = begun.stats if begun is not None else {}
        self._start_s = clock()
        self._first_s: float | None = None
        self._answering_s: float | None = None
        self._last_s: float | None = None
        self._end_s: float | None = None
        self.content = begun.content if begun is not None else ""
        self.reasoning = begun.reasoning if begun is not None else ""
        self.tool_calls: tuple[dict[str, Any], ...] = ()
        self.n_frames = 0
        about = -(-len(self.reasoning) // _CHARACTERS_PER_FRAME)  # if it was not counted
        self.n_reasoning_frames: int = self._earlier.get("n_reasoning_frames", about)
        self.phase: Phase = "waiting"
        self.stats: dict[str, Any] = {}
        self.error = ""
        self.prefill: Prefill | None = None
        self.growth: Growth | None = None
        self.n_left_out = 0
        self.latencies_s: list[float] = []

    def add(self, frame: dict[str, Any]) -> None:
        """Take one frame of the stream."""
        if growth := frame.get("context_growth"):
            self.growth = Growth(growth["prompt"], growth["from"], growth["to"])
        if progress := frame.get("prompt_progress"):
            self.prefill = Prefill(progress["processed"], progress["total"], progress["cache"])
            self.n_left_out = progress.get("left_out", 0)
        message = frame["message"]
        thinking, content = message.get("thinking", ""), message.get("content", "")
        if thinking or content or message.get("tool_calls"):
            self.n_frames += 1
            now_s = self._clock()
            if self._last_s is not None:
                self.latencies_s.append(now_s - self._last_s)
            self._last_s = now_s
            self._first_s = self._first_s or now_s
        if thinking:
            self.reasoning += printable(thinking)
            self.n_reasoning_frames += 1
            self.phase = "reasoning"
        if content or message.get("tool_calls"):
            self._answering_s = self._answering_s or self._clock()
            self.content += printable(content)
            self.tool_calls += tuple(message.get("tool_calls", ()))
            self.phase = "answering"
        if frame["done"]:
            self.stats = {key: frame[key] for key in _STATS if key in frame}
            self.stats |= self.measured | {
                "ttft_s": self.ttft_s,
                "latencies_ms": [round(s * 1e3, 1) for s in thinned(self.latencies_s)],
            }
            self.stats = _joined(self._earlier, self.stats)
            self.end("done")

    def end(self, phase: Literal["done", "stopped", "failed"], error: str = "") -> None:
        """The answer is over; what came of it stays. Later calls change nothing."""
        if self.is_live:
            self.phase, self.error, self._end_s = phase, error, self._clock()

    @property
    def measured(self) -> dict[str, Any]:
        """Return figures of the reasoning, which are known before the last frame."""
        return {"reasoning_s": self.reasoning_s, "n_reasoning_frames": self.n_reasoning_frames}

    @property
    def is_live(self) -> bool:
        return self._end_s is None

    @property
    def elapsed_s(self) -> float:
        return (self._end_s or self._clock()) - self._start_s

    @property
    def ttft_s(self) -> float | None:
        """Seconds from asking to the first token, as the user saw it."""
        return None if self._first_s is None else self._first_s - self._start_s

    @property
    def reasoning_s(self) -> float:
        """Seconds from the first token to the first one of the answer itself."""
        earlier_s = float(self._earlier.get("reasoning_s", 0.0))
        if self._first_s is None:
            return earlier_s
        return earlier_s + (self._answering_s or self._end_s or self._clock()) - self._first_s

    @property
    def n_tokens(self) -> int:
        """The engine's count at the end, until then the frames."""
        return int(self.stats.get("eval_count", self.n_frames))

    @property
    def tok_s(self) -> float | None:
        """Tokens a second, reasoning included, the time before the first excluded."""
        if duration_ns := self.stats.get("eval_duration"):
            return float(self.n_tokens / duration_ns * 1e9)
        if self._first_s is None or self.n_frames < 2:
            return None
        passed_s = (self._end_s or self._clock()) - self._first_s
        return (self.n_frames - 1) / passed_s if passed_s > 0 else None


def _joined(earlier: dict[str, Any], stats: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of an answer that was continued, of both parts as far as they are known.

    Its ids are not: the text that was there became other tokens, perhaps.
    """
    if not earlier:
        return stats
    joined = {name: value for name, value in stats.items() if name != "tokens"}
    if earlier.get("eval_count"):
        joined |= {name: earlier.get(name, 0) + stats.get(name, 0) for name in _SUMS}
        joined |= {name: earlier[name] for name in _BEFORE if name in earlier}
        latencies_ms = (*earlier.get("latencies_ms", ()), *stats.get("latencies_ms", ()))
        joined["latencies_ms"] = thinned(latencies_ms)
        joined["joules"] = _sums(earlier.get("joules", {}), stats.get("joules", {}))
    return joined


def _sums(first: dict[str, float], second: dict[str, float]) -> dict[str, float]:
    """Return the sums of what is in both."""
    return {name: first[name] + second[name] for name in first if name in second}


def thinned(values: Sequence[float], n_max: int = _MAX_LATENCIES) -> list[float]:
    """At most `n_max` values: of each stretch of the others the largest, as peaks matter."""
    if len(values) <= n_max:
        return list(values)
    edges = [len(values) * k // n_max for k in range(n_max + 1)]
    return [max(values[a:b]) for a, b in pairwise(edges)]
