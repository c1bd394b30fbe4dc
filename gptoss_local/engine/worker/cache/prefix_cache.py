"""Choose the cached prefix that a new sequence continues, and the one to evict for room.

Slots of the same salt, running ones too, are searched for the longest prefix with its sliding
window or a checkpoint of it. llama.cpp would continue anywhere, wrongly.
"""

import logging
import math
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from gptoss_local.base.errors import ComputeError, EngineError, GptOssError
from gptoss_local.engine.llama import Batch, Context, State
from gptoss_local.engine.protocol import Prefetch, PrefixOptions
from gptoss_local.engine.worker.cache.slots import Slot, Slots, common_prefix
from gptoss_local.engine.worker.costs import IdleCosts, PrefillPace

# A message's end is worth as much as another point that was used so many checkpoints later: people
# return to messages.
_BOUNDARY_BONUS = 64


@dataclass(slots=True, eq=False)
class PrefixCheckpoint:
    """The contents of the sliding layers after the first `n_tokens` of some conversation.

    3 MB on gpt-oss-20b. They belong to token ids: any slot with the other layers' cells can
    take them.
    """

    n_tokens: int
    window: State
    is_boundary: bool
    last_use: int = 0


class Checkpoints:
    """Checkpoints by salt and tokens before them; over `max_bytes` the least recently used goes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._by_digest: dict[bytes, PrefixCheckpoint] = {}
        self._clock = 0
        self.n_bytes = 0

    def __len__(self) -> int:
        return len(self._by_digest)

    @property
    def is_enabled(self) -> bool:
        return self._max_bytes > 0

    def has(self, tokens: "array[int]", n_tokens: int, salt: bytes) -> bool:
        """Return whether there is one, which counts as a use."""
        checkpoint = self._by_digest.get(next(_digests(tokens, [n_tokens], salt)))
        if checkpoint is not None:
            self.use([checkpoint])
        return checkpoint is not None

    def add(self, tokens: "array[int]", checkpoint: PrefixCheckpoint, salt: bytes) -> None:
        digest = next(_digests(tokens, [checkpoint.n_tokens], salt))
        n_bytes = checkpoint.window.nbytes
        if digest in self._by_digest or n_bytes > self._max_bytes:
            return
        self.use([checkpoint])
        self._by_digest[digest] = checkpoint
        self.n_bytes += n_bytes
        while self.n_bytes > self._max_bytes:
            digest = min(self._by_digest, key=lambda d: _value(self._by_digest[d]))
            self.n_bytes -= self._by_digest.pop(digest).window.nbytes

    def along(self, tokens: "array[int]", n_max: int, salt: bytes) -> list[PrefixCheckpoint]:
        """Return the checkpoints within `n_max` tokens, shortest first. PERF: 0.2 ms for 30k."""
        lengths = sorted({c.n_tokens for c in self._by_digest.values() if c.n_tokens <= n_max})
        found = (self._by_digest.get(digest) for digest in _digests(tokens, lengths, salt))
        return [checkpoint for checkpoint in found if checkpoint is not None]

    def use(self, checkpoints: Iterable[PrefixCheckpoint]) -> None:
        for checkpoint in checkpoints:
            self._clock += 1
            checkpoint.last_use = self._clock

    def check(self) -> list[str]:
        n_bytes = sum(c.window.nbytes for c in self._by_digest.values())
        if n_bytes != self.n_bytes or n_bytes > self._max_bytes:
            return [f"checkpoints of {n_bytes} bytes, booked {self.n_bytes} of {self._max_bytes}"]
        return []


def _value(checkpoint: PrefixCheckpoint) -> int:
    return checkpoint.last_use + _BOUNDARY_BONUS * checkpoint.is_boundary


def _digests(tokens: "array[int]", lengths: Iterable[int], salt: bytes) -> Iterator[bytes]:
    """Yield a digest of each prefix; `lengths` must grow."""
    digest, done = blake2b(digest_size=16, salt=salt), 0
    with memoryview(tokens) as view:
        for n_tokens in lengths:
            digest.update(view[done:n_tokens])
            done = n_tokens
            yield digest.digest()


_log = logging.getLogger("gptoss")

# Tokens without a message's end. PERF: a save waits for the device, and the next step is not
# prepared in that time: on an H200, 4,096 tokens of 20b take 345 ms with one at 2,048, 308 without.
_CHECKPOINT_EVERY = 4096
_WORTH_REUSING = 32  # fewer tokens are as fast prefilled as found
_FEW_CELLS = 4096  # of cached prefixes: less is gained without them than to read them again takes
_LOOK_S = 2.0  # of steps, between two looks for prefixes that should leave


class Match(NamedTuple):
    """The best start for some tokens: the first `n_tokens` of `slot`, or nothing."""

    slot: Slot | None = None
    n_tokens: int = 0
    n_common: int = 0
    checkpoint: PrefixCheckpoint | None = None

    @property
    def is_continuation(self) -> bool:
        """Return whether the prompt contains the slot's whole prompt, so its old answer can go."""
        return self.slot is not None and self.n_common >= self.slot.n_asked


class PrefixCache:
    def __init__(self, context: Context, slots: Slots, options: PrefixOptions) -> None:
        self._context = context
        self._slots = slots
        self.checkpoints = Checkpoints(options.checkpoint_bytes)
        self.costs = IdleCosts()
        self.is_saved: Callable[[Slot], bool] = lambda slot: False
        self.keep_s, self._look_at_s = options.keep_s, 0.0
        self._boundaries = frozenset(options.boundary_tokens)
        self._noted: list[tuple[Slot, int]] = []
        self.n_evicted = 0  # tokens
        self.n_left = 0  # cells that `make_way` has freed

    def match(self, tokens: "array[int]", n_max: int, salt: bytes = b"") -> Match:
        path = self.checkpoints.along(tokens, n_max, salt)
        own = (slot for slot in self._slots.all if slot.salt == salt)
        found = (self._match_slot(slot, tokens, n_max, path) for slot in own)
        best = max(found, key=_rank, default=Match())
        return best if best.n_tokens >= _WORTH_REUSING else Match()

    def place(
        self,
        tokens: "array[int]",
        match: Match,
        *,
        n_asked: int,
        in_memory: bool = False,
        salt: bytes = b"",
    ) -> Slot:
        """Give a sequence a slot that starts with the prefix just matched.

        A continuation takes that slot. Others share its cells in an empty slot, or the least
        recently used one. The first `n_asked` of the tokens are the prompt, the others an answer.
        """
        slot = self._choose(match)
        try:
            self._fill(slot, match)
        except EngineError:  # no room for the window; the slot is empty, which is always right
            self._drop(slot)
        self._slots.mark(slot, is_running=True)
        slot.salt = salt
        path = self.checkpoints.along(tokens, len(slot.tokens), salt)
        self.checkpoints.use(path)
        slot.n_asked, slot.n_saved = n_asked, path[-1].n_tokens if path else 0
        slot.in_memory = in_memory
        return slot

    def retire(self, slot: Slot) -> None:
        self.save_noted()
        self._slots.mark(slot, is_running=False)
        slot.last_use_s, slot.last_busy_s = time.perf_counter(), self.costs.busy_s
        slot.n_asked = min(slot.n_asked, len(slot.tokens))

    def adopt(
        self,
        tokens: "array[int]",
        state: State,
        points: Iterable[PrefixCheckpoint],
        *,
        n_asked: int,
        salt: bytes,
    ) -> None:
        """Make a saved state a cached prefix with checkpoints, or raise EngineError."""
        self.make_room(len(tokens))
        slot = self._slots.empty or self._slots.cached[0]
        self._drop(slot)
        self._slots.load(slot, tokens, state)
        for point in points:
            self.checkpoints.add(tokens, point, salt)
        slot.n_asked, slot.in_memory, slot.salt = n_asked, False, salt
        self.retire(slot)

    def discard(self, slot: Slot) -> None:
        """Free a slot that may differ from its record."""
        self._slots.mark(slot, is_running=False)
        self._slots.cut(slot, 0)

    def rewind(self, slot: Slot, n_tokens: int) -> None:
        """Cut a running slot to `n_tokens`, or to none if it cannot continue there."""
        self._slots.cut(slot, n_tokens if self._slots.is_live(slot, n_tokens) else 0)

    def make_room(self, n_cells: int) -> None:
        """Evict ends of cached prefixes, to where they can continue, until cells are free."""
        while (n_missing := n_cells - self._slots.n_cells_free) > 0 and self._slots.cached:
            victim = self._slots.cached[0]
            n_kept = max(0, len(victim.tokens) - n_missing)
            self.evict(victim, self.last_point(victim, n_kept))

    def clear(self) -> None:
        for slot in self._slots.cached:
            self.evict(slot)

    def evict(self, slot: Slot, n_kept: int = 0) -> None:
        """Drop a cached prefix except its first tokens; cells that others share with it stay."""
        self.n_evicted += len(slot.tokens) - n_kept
        self._slots.cut(slot, n_kept)

    def make_way_at_times(self) -> None:
        if self.costs.busy_s >= self._look_at_s:
            self._look_at_s = self.costs.busy_s + _LOOK_S
            self.make_way()

    def make_way(self) -> float | None:
        """Evict prefixes that have cost steps more time than their return takes; keep the newest.

        So they cost at most twice the optimum (ski rental: Karlin, Manasse, Rudolph, Sleator 1988).
        Saved or unsavable ones also leave after `keep_s` without use, unless they have few cells.
        Returns the seconds until the next one does.
        """
        cached, waits_s, n_held = self._slots.cached, [], self._slots.n_cells_held
        n_others = self._slots.n_cells_cached - len(cached[-1].tokens) if cached else 0
        keep_s = self.keep_s if n_others > _FEW_CELLS else math.inf
        for slot in cached[:-1]:
            wait_s = slot.last_use_s + keep_s - time.perf_counter()
            waits_s.append(wait_s)
            cost_s = self.costs.cost_s(slot.last_busy_s)
            if wait_s > 0 and cost_s <= min(self.costs.read_s, self.costs.prefill_s):
                continue
            is_saved = self.is_saved(slot)
            is_dear = cost_s > (self.costs.read_s if is_saved else self.costs.prefill_s)
            if is_dear or (wait_s <= 0 and (slot.in_memory or is_saved)):
                self.evict(slot)
        self.n_left += n_held - self._slots.n_cells_held
        return min((wait_s for wait_s in waits_s if 0 < wait_s < math.inf), default=None)

    def note(self, slot: Slot, n_before: int) -> None:
        """Remember the tokens from `n_before` on for `save_noted`.

        PERF: a save takes 6 ms on an H200, so the first token of a turn goes out before it.
        """
        self._noted.append((slot, n_before))

    def save_noted(self) -> None:
        """Save noted windows; called before each step and by `retire`."""
        noted, self._noted = self._noted, []
        for slot, n_before in noted:
            self._save_points(slot, n_before)

    def _save_points(self, slot: Slot, n_before: int) -> None:
        if not self.checkpoints.is_enabled:
            return
        n_tokens = len(slot.tokens)
        ends = [i + 1 for i in range(n_before, n_tokens) if slot.tokens[i] in self._boundaries]
        asked = [end for end in ends if end <= slot.n_asked]
        for end in ends:
            is_last = asked and end == asked[-1] and n_tokens >= slot.n_asked
            if is_last or end - slot.n_saved >= self._context.n_swa:
                self._save(slot, end, is_boundary=True)
        if n_tokens - slot.n_saved >= _CHECKPOINT_EVERY:
            self._save(slot, n_tokens, is_boundary=False)

    def _match_slot(
        self, slot: Slot, tokens: "array[int]", n_max: int, path: list[PrefixCheckpoint]
    ) -> Match:
        n_common = common_prefix(slot.tokens, tokens)
        n_tokens = min(n_common, n_max)
        if self._slots.is_live(slot, n_tokens):
            return Match(slot, n_tokens, n_common)
        checkpoint = next((c for c in reversed(path) if c.n_tokens <= n_tokens), None)
        if checkpoint is None:
            return Match()
        return Match(slot, checkpoint.n_tokens, n_common, checkpoint)

    def last_point(self, slot: Slot, n_max: int) -> int:
        """Return the last position up to `n_max` at which a sequence can continue."""
        if self._slots.is_live(slot, n_max):
            return n_max
        path = self.checkpoints.along(slot.tokens, n_max, slot.salt)
        return path[-1].n_tokens if path else 0

    def _choose(self, match: Match) -> Slot:
        source, may_take = match.slot, match.is_continuation or not self._context.can_share
        if source is not None and not source.is_running and may_take:
            return source
        return self._slots.empty or self._slots.cached[0]

    def _fill(self, slot: Slot, match: Match) -> None:
        source, window = match.slot, match.checkpoint.window if match.checkpoint else None
        if slot is source:
            self._slots.cut(slot, match.n_tokens, window)
            return
        self._drop(slot)
        if source is not None and self._context.can_share:
            self._slots.share(source, slot, match.n_tokens, window)

    def _drop(self, slot: Slot) -> None:
        if slot.tokens:
            self.evict(slot)

    def _save(self, slot: Slot, n_tokens: int, *, is_boundary: bool) -> None:
        slot.n_saved = max(slot.n_saved, n_tokens)
        is_saved = self.checkpoints.has(slot.tokens, n_tokens, slot.salt)
        if is_saved or not self._slots.is_live(slot, n_tokens):
            return
        try:
            window = self._context.save(slot.index, partial=True, end=n_tokens)
        except EngineError as error:  # it can be done without
            _log.warning("a window is not saved: %s", error.message)
            return
        self.checkpoints.add(
            slot.tokens, PrefixCheckpoint(n_tokens, window, is_boundary), slot.salt
        )


def _rank(match: Match) -> tuple[int, bool, float]:
    if match.slot is None:
        return (0, False, -1)
    is_free = match.is_continuation and not match.slot.is_running
    return (match.n_tokens, is_free, match.slot.last_use_s)


class Prefetcher:
    """Prefills tokens that the next request will probably begin with, while the engine is idle.

    A step reads one chunk, so new work waits for one at most.
    """

    def __init__(
        self, context: Context, slots: Slots, cache: PrefixCache, pace: PrefillPace
    ) -> None:
        self._context = context
        self._slots = slots
        self._cache = cache
        self._pace = pace
        self._batch = Batch(context.n_batch)
        self._wanted: dict[str, tuple[array[int], Prefetch]] = {}
        self.n_prefilled = 0

    @property
    def has_work(self) -> bool:
        return bool(self._wanted)

    def add(self, request: Prefetch) -> None:
        self._wanted.pop(request.lineage, None)
        if 0 < len(request.tokens) <= self._context.n_ctx:
            self._wanted[request.lineage] = array("i", request.tokens), request
        while len(self._wanted) > self._context.n_seq_max:
            del self._wanted[next(iter(self._wanted))]

    def step(self) -> None:
        """Prefill one chunk of the latest prefix; no sequence may be running."""
        lineage, (tokens, request) = next(reversed(self._wanted.items()))
        match = self._cache.match(tokens, len(tokens), request.salt)
        n_left = len(tokens) - match.n_tokens
        slot = match.slot if match.is_continuation else self._slots.empty
        if n_left == 0 or slot is None or not self._has_room(slot, match.n_tokens, n_left):
            del self._wanted[lineage]
            return
        in_memory, salt = request.in_memory, request.salt
        slot = self._cache.place(tokens, match, n_asked=len(tokens), in_memory=in_memory, salt=salt)
        try:
            self._prefill(slot, tokens)
        except ComputeError:
            raise
        except GptOssError:
            self._cache.discard(slot)
            del self._wanted[lineage]
        else:
            self._cache.retire(slot)

    def _has_room(self, slot: Slot, n_matched: int, n_left: int) -> bool:
        n_own = max(0, len(slot.tokens) - n_matched)
        return n_left <= self._slots.n_cells_free + n_own

    def _prefill(self, slot: Slot, tokens: "array[int]") -> None:
        n_past = len(slot.tokens)
        chunk = tokens[n_past : n_past + self._pace.n_tokens]
        start_s = time.monotonic()
        self._batch.clear()
        self._batch.extend(chunk, n_past, slot.index)
        self._context.decode_batch(self._batch)
        self._context.synchronize()  # work that arrives waits for one chunk, not for two
        self._pace.observe(len(chunk), time.monotonic() - start_s)
        slot.tokens.extend(chunk)
        self.n_prefilled += len(chunk)
        self._cache.note(slot, n_past)
