"""Cached prefixes that outlive the process: written while nobody asks, read when they are asked."""

import logging
from array import array
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import blake2b

from gptoss_local.engine.prefix_cache import PrefixCache
from gptoss_local.engine.prefix_store import PrefixStore
from gptoss_local.engine.slots import Slot, Slots
from gptoss_local.errors import EngineError
from gptoss_local.llama import Context

_log = logging.getLogger("gptoss")

_WORTH_TOKENS = 256  # fewer are prefilled as fast as read, or nearly
_N_POINTS = 8  # checkpoints that a file has: the last ones before its end


class Archive:
    """Moves prefixes between the cache and the disk.

    Args:
        context: The cache itself.
        slots: Its books.
        cache: Its prefixes.
        store: The files.
        idle_s: How long nothing must happen before a prefix is written.
    """

    def __init__(
        self,
        context: Context,
        slots: Slots,
        cache: PrefixCache,
        store: PrefixStore,
        idle_s: float,
    ) -> None:
        self.idle_s = idle_s
        self._context = context
        self._slots = slots
        self._cache = cache
        self._store = store
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="archive")
        self._writing: Future[None] | None = None
        self._is_broken = False
        self._tried: set[bytes] = set()  # digests: what is too large, or evicted at once by another

    def fetch(self, tokens: "array[int]", n_matched: int, n_max: int) -> bool:
        """Bring a prefix of `tokens` into the cache, if that saves much over `n_matched`."""
        saved, n_tokens = self._store.find(tokens, n_max)
        if saved is None or n_tokens < n_matched + _WORTH_TOKENS:
            return False
        n_cells = len(saved.tokens)
        if n_cells > self._slots.n_cells_free + self._slots.n_cells_cached:
            return False
        try:
            state, points = self._store.read(saved)
            self._cache.adopt(saved.tokens, state, points, n_asked=saved.n_asked)
        except EngineError as error:
            _log.warning("a saved prefix is not used, and removed: %s", error.message)
            self._store.remove(saved)
            return False
        return True

    def save_one(self, *, is_last: bool = False) -> bool:
        """Begin to write the last used prefix that is not saved yet; False if there is none.

        The state is copied here and now, which takes a tenth of a second for 30k tokens of
        gpt-oss-20b, and written on a thread. A prefix that is saved but for an eighth is left as
        it is, unless this `is_last`, the process' end.
        """
        if self._writing is not None and not self._writing.done():
            return True
        for slot in reversed(self._slots.cached):
            if not self._is_broken and self._is_worth(slot, is_last=is_last):
                tokens = slot.tokens[:]
                self._tried.add(_digest(tokens))
                points = self._cache.checkpoints.along(tokens, len(tokens) - 1)[-_N_POINTS:]
                state = self._context.save(slot.index)
                self._writing = self._writer.submit(
                    self._store.write, tokens, slot.n_asked, state, points
                )
                self._writing.add_done_callback(self._report)
                return True
        return False

    def close(self) -> None:
        """Save what is not saved yet, and wait for it."""
        while self.save_one(is_last=True):
            if self._writing is not None:
                self._writing.exception()  # waits
        self._writer.shutdown()

    def _is_worth(self, slot: Slot, *, is_last: bool) -> bool:
        n_tokens = len(slot.tokens)
        if n_tokens < _WORTH_TOKENS or not self._slots.is_live(slot, n_tokens):
            return False
        if _digest(slot.tokens) in self._tried:
            return False
        n_new = n_tokens - self._store.n_saved(slot.tokens)
        return n_new >= (1 if is_last else max(_WORTH_TOKENS // 4, n_tokens // 8))

    def _report(self, writing: Future[None]) -> None:
        """Give up writing when the disk is full or not ours; it is a cache only."""
        if error := writing.exception():
            self._is_broken = True
            _log.warning("prefixes are not saved any more: %s", error)


def _digest(tokens: "array[int]") -> bytes:
    return blake2b(tokens, digest_size=16).digest()
