"""Choose the cached prefix that a new sequence continues, and the one to evict for room.

Slots of the same salt, running ones too, are searched for the longest prefix with its sliding
window or a checkpoint of it. llama.cpp would continue anywhere, wrongly.
"""

import logging
import math
import time
from array import array
from collections.abc import Callable, Iterable
from typing import NamedTuple

from gptoss_local.base.errors import EngineError
from gptoss_local.engine.llama import Context, State
from gptoss_local.engine.protocol import PrefixOptions
from gptoss_local.engine.worker.cache.checkpoints import Checkpoints, PrefixCheckpoint
from gptoss_local.engine.worker.cache.slots import Slot, Slots, common_prefix
from gptoss_local.engine.worker.costs import IdleCosts

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
        best = Match()
        for slot in self._slots.all:
            if slot.salt != salt:
                continue
            found = self._match_slot(slot, tokens, n_max, path)
            if _rank(found) > _rank(best):
                best = found
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
        self._slots.start(slot)
        slot.salt = salt
        path = self.checkpoints.along(tokens, len(slot.tokens), salt)
        self.checkpoints.use(path)
        slot.n_asked, slot.n_saved = n_asked, path[-1].n_tokens if path else 0
        slot.in_memory = in_memory
        return slot

    def retire(self, slot: Slot) -> None:
        self.save_noted()
        self._slots.stop(slot)
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
            n_tokens, is_boundary = point.n_tokens, point.is_boundary
            self.checkpoints.add(tokens, n_tokens, point.window, is_boundary=is_boundary, salt=salt)
        slot.n_asked, slot.in_memory, slot.salt = n_asked, False, salt
        self.retire(slot)

    def discard(self, slot: Slot) -> None:
        """Free a slot that may differ from its record."""
        self._slots.stop(slot)
        self._slots.cut(slot, 0)

    def rewind(self, slot: Slot, n_tokens: int) -> None:
        """Cut a running slot to `n_tokens`, or to none if it cannot continue there."""
        self._slots.cut(slot, n_tokens if self._slots.is_live(slot, n_tokens) else 0)

    def make_room(self, n_cells: int) -> None:
        """Evict ends of cached prefixes, to where they can continue, until cells are free."""
        while (n_missing := n_cells - self._slots.n_cells_free) > 0 and self._slots.cached:
            victim = self._slots.cached[0]
            n_kept = max(0, len(victim.tokens) - n_missing)
            self.evict(victim, self._last_point(victim, n_kept))

    def n_resumable(self, slot: Slot) -> int:
        return self._last_point(slot, len(slot.tokens))

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

    def _last_point(self, slot: Slot, n_max: int) -> int:
        if self._slots.is_live(slot, n_max):
            return n_max
        path = self.checkpoints.along(slot.tokens, n_max, slot.salt)
        return path[-1].n_tokens if path else 0

    def _choose(self, match: Match) -> Slot:
        source = match.slot
        if source is not None and not source.is_running and match.is_continuation:
            return source
        if source is not None and not source.is_running and not self._context.can_share:
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
        self.checkpoints.add(slot.tokens, n_tokens, window, is_boundary=is_boundary, salt=slot.salt)


def _rank(match: Match) -> tuple[int, bool, float]:
    if match.slot is None:
        return (0, False, -1)
    is_free = match.is_continuation and not match.slot.is_running
    return (match.n_tokens, is_free, match.slot.last_use_s)
