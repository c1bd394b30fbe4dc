"""The state of one request inside the engine: its tokens, slot, counts, clock and turn.

Callers take turns: a caller with few requests does not wait for one with many.

Source: weighted fair queueing (Demers, Keshav, Shenker, SIGCOMM 1989), in tokens.
"""

import time
from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

from gptoss_local.engine.llama import Sampler
from gptoss_local.engine.protocol import Event, Generate, Prefilled
from gptoss_local.engine.worker.cache.slots import Slot
from gptoss_local.engine.worker.drafts.draft import Drafter
from gptoss_local.engine.worker.sampling.mask import Mask
from gptoss_local.errors import ContextOverflowError, EngineError, GptOssError
from gptoss_local.types import FinishReason, Usage

_UNKNOWN, _LEAST = 64, 16  # tokens of a request
_N_KNOWN = 1024


class QueueTurn(NamedTuple):
    """The place of a request in the queue of all callers.

    Attributes:
        start: On the clock of `Callers`.
    """

    caller: str = ""
    start: float = 0.0
    n_tokens: int = 0

    @property
    def end(self) -> float:
        """The time of its end if all callers were served at once: the first is next."""
        return self.start + self.n_tokens


@dataclass(slots=True)
class _Caller:
    """A caller: the end of its latest turn, tokens of a request, and requests that wait or run."""

    end: float = 0.0
    n_tokens: int = _UNKNOWN
    n_open: int = 0


class Callers:
    """A clock of the tokens that each caller could have had, if all had equally many.

    A turn begins now, or where the caller's turn before it ends, so a caller's turns are in the
    order in which it asks. The clock advances with all work, so no request waits forever.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._known: dict[str, _Caller] = {}  # the one that asked last at the end

    def turn(self, caller: str) -> QueueTurn:
        asks = self._known[caller] = self._known.pop(caller, _Caller())
        turn = QueueTurn(caller, max(self._now, asks.end), asks.n_tokens)
        asks.end, asks.n_open = turn.end, asks.n_open + 1
        if len(self._known) > _N_KNOWN:
            idle = (name for name, each in self._known.items() if not each.n_open)
            if gone := next(idle, ""):
                del self._known[gone]
        return turn

    def serve(self, turn: QueueTurn) -> None:
        """Advance the clock to a request that is served now, which may be far if it is alone."""
        self._now = max(self._now, turn.start)

    def end(self, turn: QueueTurn, n_tokens: int) -> None:
        """Record the tokens of a request that is over."""
        asked = self._known[turn.caller]
        if n_tokens:
            self._now += turn.n_tokens / sum(each.n_open > 0 for each in self._known.values())
            asked.n_tokens = max(_LEAST, n_tokens)
        asked.n_open -= 1


@dataclass(slots=True, eq=False)
class Sequence:
    """A request on its way through queue, prefill and decode.

    Prefill, decode and resuming after a preemption are the same: `tokens` (prompt and answer)
    beyond `n_past` are pending, and when they are decoded, the next one is sampled.

    Attributes:
        slot: None while it waits.
        mask: None allows any token.
        drafter: None: it has no drafts.
        is_suspect: It was in a batch that failed, so it decodes alone until its next token.
        n_plan: Number of the last step of streams that it was in.
        n_overtaken: Tokens of later prompts that were read while its own waited.
    """

    request: Generate
    arrival: int
    sampler: Sampler
    turn: QueueTurn = QueueTurn()  # noqa: RUF009 (immutable)
    slot: Slot | None = None
    mask: Mask | None = None
    drafter: Drafter | None = None
    is_suspect: bool = False
    tokens: "array[int]" = field(init=False)
    queued_ns: int = field(default_factory=time.monotonic_ns)
    admitted_ns: int = 0
    prefilled_ns: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    n_cached: int = 0
    n_plan: int = 0
    n_overtaken: int = 0

    def __post_init__(self) -> None:
        self.tokens = array("i", self.request.prompt)

    def admit(self) -> None:
        """Record its slot; the part of the prompt in its first slot counts as cached."""
        if not self.admitted_ns:
            self.admitted_ns = time.monotonic_ns()
            self.n_cached = self.n_past

    @property
    def rank(self) -> tuple[int, float, int]:
        """The lowest is served first."""
        return -self.request.priority, self.turn.end, self.arrival

    @property
    def n_prompt(self) -> int:
        return len(self.request.prompt)

    @property
    def n_generated(self) -> int:
        return len(self.tokens) - self.n_prompt

    @property
    def own_slot(self) -> Slot:
        """The slot of a running sequence."""
        assert self.slot is not None
        return self.slot

    @property
    def n_past(self) -> int:
        """Tokens with keys and values in the cache."""
        return len(self.slot.tokens) if self.slot is not None else 0

    @property
    def n_pending(self) -> int:
        """Tokens to decode before the next one can be sampled: 1 when it runs at full speed."""
        return len(self.tokens) - self.n_past

    @property
    def n_left(self) -> int | None:
        """Tokens it may still generate; None: no limit but the context."""
        limit = self.request.max_tokens
        return None if limit is None else limit - self.n_generated

    def progress(self) -> list[Event]:
        if not self.request.reports_prefill or self.n_generated:  # read again after a preemption
            return []
        return [Prefilled(self.request.seq_id, self.n_past, self.n_cached)]

    def can_wait_for(self, other: "Sequence") -> bool:
        """Return whether a prompt that should come later may be read before the rest of its own.

        Such prompts may have a tenth of its own tokens to read, in all.
        """
        n_most = (self.n_prompt - self.n_cached) // 10
        is_equal = self.request.priority == other.request.priority
        return is_equal and self.n_overtaken + other.n_pending <= n_most

    def n_room(self, n_ctx: int) -> int:
        """The tokens it may still get in `n_ctx`; the last one needs no cell."""
        n_room = n_ctx + 1 - len(self.tokens)
        return n_room if self.n_left is None else min(n_room, self.n_left)

    def append(self, tokens: list[int], n_ctx: int) -> tuple[list[int], FinishReason | None]:
        """Add drawn tokens while there is room, up to the end; return these, and why it ended."""
        n_room = self.n_room(n_ctx)
        is_over = len(tokens) <= n_room and self.mask is not None and self.mask.is_complete
        tokens = tokens[:n_room]
        stops = [i for i, token in enumerate(tokens) if token in self.request.stop_tokens]
        if stops:
            tokens = tokens[: stops[0] + 1]
        self.tokens.extend(tokens)
        if stops or is_over:
            return tokens, "stop"
        return tokens, "length" if len(tokens) == n_room else None

    def usage(self) -> Usage:
        """The cost so far; a sequence cancelled in prefill has decoded nothing."""
        now_ns = time.monotonic_ns()
        admitted_ns = self.admitted_ns or now_ns
        prefilled_ns = self.prefilled_ns or now_ns
        return Usage(
            n_prompt=self.n_prompt,
            n_generated=self.n_generated,
            prefill_ns=prefilled_ns - admitted_ns,
            decode_ns=now_ns - prefilled_ns,
            queue_ns=admitted_ns - self.queued_ns,
            n_drafted=self.n_drafted,
            n_accepted=self.n_accepted,
            n_cached=self.n_cached,
        )


def refusal(request: Generate, n_ctx: int, *, has_masks: bool) -> GptOssError | None:
    """Say why a request can never run in a context of `n_ctx` tokens; None if it can."""
    n_prompt = len(request.prompt)
    if n_prompt == 0:
        return EngineError("the prompt is empty")
    if request.grammar is not None and not has_masks:
        return EngineError("this engine has no masks")
    if n_prompt >= n_ctx:
        return ContextOverflowError(
            f"the prompt has {n_prompt} tokens and the context holds {n_ctx}"
        )
    return None
