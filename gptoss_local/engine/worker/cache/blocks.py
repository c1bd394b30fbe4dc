"""Report the blocks of tokens in the cache to a router of several engines.

A block is a fixed number of tokens together with all those before them. It counts while a sequence
can continue at its end or later, if need be from a checkpoint, but not if it is only on disk.
"""

from array import array
from collections.abc import Iterator

from gptoss_local.engine.protocol import BlocksChanged, StoredBlocks, block_hashes
from gptoss_local.engine.worker.cache.prefix_cache import PrefixCache
from gptoss_local.engine.worker.cache.slots import Slots, common_prefix


class BlockReporter:
    """Compares the cache with its last report. PERF: 20 us a step for a slot of 30k tokens."""

    def __init__(self, cache: PrefixCache, slots: Slots, n_block_tokens: int) -> None:
        self._cache = cache
        self._slots = slots
        self._n = n_block_tokens
        self._told = [(array("i"), list[int]()) for _ in slots.all]  # tokens and hashes, by slot
        self._n_holders: dict[int, int] = {}  # slots that have a block, by its hash

    def changes(self) -> BlocksChanged | None:
        n_before: dict[int, int] = {}
        runs: list[StoredBlocks] = []
        for slot, (tokens, hashes) in zip(self._slots.all, self._told, strict=True):
            n_blocks = self._cache.last_point(slot, len(slot.tokens)) // self._n
            n_same = min(n_blocks, common_prefix(tokens, slot.tokens) // self._n)
            for block in hashes[n_same:]:
                self._count(block, -1, n_before)
            del hashes[n_same:], tokens[n_same * self._n :]
            if n_same < n_blocks:
                parent = hashes[-1] if hashes else None
                new = slot.tokens[n_same * self._n : n_blocks * self._n]
                run = StoredBlocks(parent, list(block_hashes(new, self._n, parent)), list(new))
                for block in run.hashes:
                    self._count(block, 1, n_before)
                hashes += run.hashes
                tokens += new
                runs.append(run)
        removed = [block for block, n in n_before.items() if n and block not in self._n_holders]
        stored = list(self._new_parts(runs, {block for block, n in n_before.items() if not n}))
        return BlocksChanged(removed, stored) if removed or stored else None

    def _count(self, block: int, n: int, n_before: dict[int, int]) -> None:
        n_holders = self._n_holders.pop(block, 0)
        n_before.setdefault(block, n_holders)
        if n_holders + n:
            self._n_holders[block] = n_holders + n

    def _new_parts(self, runs: list[StoredBlocks], new: set[int]) -> Iterator[StoredBlocks]:
        for run in runs:
            n_old = sum(block not in new for block in run.hashes)
            new.difference_update(run.hashes)
            if n_old < len(run.hashes):
                parent = run.hashes[n_old - 1] if n_old else run.parent
                yield StoredBlocks(parent, run.hashes[n_old:], run.tokens[n_old * self._n :])
