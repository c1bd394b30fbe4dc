"""Prefill tokens that the next request will probably begin with, while the engine is idle."""

import time
from array import array

from gptoss_local.base.errors import ComputeError, GptOssError
from gptoss_local.engine.llama import Batch, Context
from gptoss_local.engine.protocol import Prefetch
from gptoss_local.engine.worker.cache.prefix_cache import PrefixCache
from gptoss_local.engine.worker.cache.slots import Slot, Slots
from gptoss_local.engine.worker.costs import PrefillPace


class Prefetcher:
    """Brings prefixes into the cache, a chunk a step; new work waits for one chunk at most."""

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
