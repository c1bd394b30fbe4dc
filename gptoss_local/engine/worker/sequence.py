"""The state of one request inside the engine: its tokens, slot, counts, clock and turns."""

import time
from array import array
from dataclasses import dataclass, field

from gptoss_local.base.types import FinishReason, Usage
from gptoss_local.engine.llama import Sampler
from gptoss_local.engine.protocol import Generate
from gptoss_local.engine.worker.cache.slots import Slot
from gptoss_local.engine.worker.sampling.mask import Mask

_USUAL = 64.0  # tokens of an answer
_SHORT = 0.25  # of a usual answer; a shorter one counts for less
_LEAST = 1 / 16
_N_KNOWN = 256


@dataclass(slots=True)
class _Caller:
    due: float  # the start of its next turn
    turn: int  # its latest one
    length: float = 1.0  # of a turn
    n_open: int = 0  # requests
    parts: "Callers" = field(default_factory=lambda: Callers())


class Callers:
    """Callers who take turns, and so do the parts of each: a priority's keys, a key's connections.

    The clock counts usual answers. A turn begins now, or where the caller's turn before it ends;
    the earliest is next. So a request waits for one answer of each other caller at most. A new
    caller's first turn begins after a usual answer, so that new connections gain nothing.

    Source: start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996).
    """

    def __init__(self) -> None:
        self._now, self._n_turns, self._n_usual = 0.0, 0, _USUAL
        self._known: dict[str, _Caller] = {}  # the one that asked last at the end

    def ask(self, path: tuple[str, ...]) -> None:
        if not path:
            return
        caller = self._known.pop(path[0], None) or _Caller(self._now + 1, self._n_turns)
        self._known[path[0]] = caller
        caller.n_open += 1
        caller.parts.ask(path[1:])
        if len(self._known) > _N_KNOWN:
            idle = (name for name, each in self._known.items() if not each.n_open)
            self._known.pop(next(idle, ""), None)

    def rank(self, path: tuple[str, ...]) -> tuple[float, ...]:
        if not path:
            return ()
        caller = self._known[path[0]]
        return caller.due, caller.turn, *caller.parts.rank(path[1:])

    def serve(self, path: tuple[str, ...]) -> None:
        if path:
            caller = self._known[path[0]]
            self._now = max(self._now, caller.due)
            self._n_turns += 1
            begin = max(self._now - (caller.length < 1), caller.due)
            caller.due, caller.turn = begin + caller.length, self._n_turns
            caller.parts.serve(path[1:])

    def end(self, path: tuple[str, ...], n_tokens: float) -> None:
        """Note the end of a request, and its tokens; 0: it was not served."""
        if path:
            caller = self._known[path[0]]
            caller.n_open -= 1
            if n_tokens:
                self._n_usual += (n_tokens - self._n_usual) / 16
                share = n_tokens / self._n_usual
                length = max(_LEAST, share) if share < _SHORT else 1.0
                caller.due += length - caller.length
                caller.length = length
            caller.parts.end(path[1:], n_tokens)


@dataclass(slots=True, eq=False)
class Sequence:
    """A request on its way through queue, prefill and decode.

    Prefill, decode and resuming after a preemption are the same: `tokens` (prompt and answer)
    beyond `n_past` are pending, and when they are decoded, the next one is sampled.
    """

    request: Generate
    arrival: int
    sampler: Sampler
    turn: int = 0  # number of its first slot; 0 before it
    slot: Slot | None = None  # None while it waits
    mask: Mask | None = None  # None allows any token
    is_suspect: bool = False  # its batch failed, so it decodes alone until its next token
    tokens: "array[int]" = field(init=False)
    queued_ns: int = field(default_factory=time.monotonic_ns)
    admitted_ns: int = 0
    prefilled_ns: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    n_cached: int = 0
    n_plan: int = 0  # number of its last step of streams
    n_overtaken: int = 0  # tokens of later prompts that were read while its own waited
    n_read: int = 0  # tokens of the prompt cached or read, each counted once

    def __post_init__(self) -> None:
        self.tokens = array("i", self.request.prompt)

    def admit(self) -> None:
        """Record its slot; the part of the prompt in its first slot counts as cached."""
        if not self.admitted_ns:
            self.admitted_ns = time.monotonic_ns()
            self.n_cached = self.n_read = self.n_past

    def count_read(self) -> int:
        """Return how many tokens of the prompt are in the cache for the first time."""
        n_before, self.n_read = self.n_read, max(self.n_read, min(self.n_past, self.n_prompt))
        return self.n_read - n_before

    @property
    def rank(self) -> tuple[int, int]:
        return -self.request.priority, self.turn

    @property
    def n_prompt(self) -> int:
        return len(self.request.prompt)

    @property
    def n_generated(self) -> int:
        return len(self.tokens) - self.n_prompt

    @property
    def own_slot(self) -> Slot:
        assert self.slot is not None
        return self.slot

    @property
    def n_past(self) -> int:
        return len(self.slot.tokens) if self.slot is not None else 0

    @property
    def n_pending(self) -> int:
        return len(self.tokens) - self.n_past

    @property
    def n_left(self) -> int | None:
        limit = self.request.max_tokens
        return None if limit is None else limit - self.n_generated

    def can_wait_for(self, other: "Sequence") -> bool:
        """Return whether a later prompt may come before its rest: a tenth of it for all of them."""
        n_most = (self.n_prompt - self.n_cached) // 10
        is_equal = self.request.priority == other.request.priority
        return is_equal and self.n_overtaken + other.n_pending <= n_most

    def n_room(self, n_ctx: int) -> int:
        """Count the tokens it may still get in `n_ctx`; the last one needs no cell."""
        n_room = n_ctx + 1 - len(self.tokens)
        return n_room if self.n_left is None else min(n_room, self.n_left)

    def append(self, tokens: list[int], n_ctx: int) -> tuple[list[int], FinishReason | None]:
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
