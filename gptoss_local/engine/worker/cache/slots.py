"""The slots of the KV cache: llama.cpp's sequence ids, their cached tokens, their cells.

A cell is one token in the layers with full attention. Slots share the cells of a common prefix, but
not their sliding windows.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from gptoss_local.base.errors import EngineError
from gptoss_local.engine.llama import Context, State


@dataclass(slots=True, eq=False)
class Slot:
    """One llama.cpp sequence id, and its `tokens` in the cache."""

    index: int
    tokens: "array[int]" = field(default_factory=lambda: array("i"))
    is_running: bool = False  # a sequence has it; otherwise its tokens are a cached prefix
    n_asked: int = 0  # tokens of the prompt; the others are an answer
    n_saved: int = 0  # position of its last checkpoint
    last_use_s: float = 0.0  # when a sequence left it, on the clock of `time.perf_counter`
    last_busy_s: float = 0.0  # the same, on the clock of `IdleCosts.busy_s`
    in_memory: bool = False  # its tokens are not written to disk
    salt: bytes = b""  # of the sequences that may use its tokens


class Slots:
    """All slots, and for each pair of them the number of cells they share, a prefix of both."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.all = [Slot(index) for index in range(context.n_seq_max)]
        self._shared: dict[tuple[int, int], int] = {}  # by both indices, the lower one first
        self._overlaps: dict[bool, int] = {}  # PERF: of all and of the running, until a change

    @property
    def running(self) -> list[Slot]:
        return [slot for slot in self.all if slot.is_running]

    @property
    def cached(self) -> list[Slot]:
        cached = [slot for slot in self.all if slot.tokens and not slot.is_running]
        return sorted(cached, key=lambda slot: slot.last_use_s)

    @property
    def empty(self) -> Slot | None:
        return next((s for s in self.all if not s.tokens and not s.is_running), None)

    @property
    def has_free(self) -> bool:
        return not all(slot.is_running for slot in self.all)

    @property
    def n_cells(self) -> int:
        return self._context.n_ctx

    @property
    def n_cells_held(self) -> int:
        return sum(len(s.tokens) for s in self.all) - self._overlap(self.all, is_all=True)

    @property
    def n_cells_used(self) -> int:
        running = self.running
        return sum(len(s.tokens) for s in running) - self._overlap(running, is_all=False)

    @property
    def n_cells_cached(self) -> int:
        return self.n_cells_held - self.n_cells_used

    @property
    def n_cells_free(self) -> int:
        return self.n_cells - self.n_cells_held

    def n_shared(self, one: Slot, other: Slot) -> int:
        return self._shared.get(_pair(one, other), 0)

    def mark(self, slot: Slot, *, is_running: bool) -> None:
        slot.is_running = is_running
        self._overlaps.clear()

    def is_live(self, slot: Slot, n_tokens: int) -> bool:
        """Return whether decoding can continue after `n_tokens` once the others are cut off."""
        return n_tokens <= len(slot.tokens) and self._context.can_resume(slot.index, n_tokens)

    def cut(self, slot: Slot, n_tokens: int, window: State | None = None) -> None:
        """Drop all but the first `n_tokens`, and the cells that no other slot shares.

        Unless the slot is live there, it needs a window, a partial state, to continue. Without room
        for it, this, `share`, `load` and `move` raise EngineError and leave the slot empty.
        """
        if n_tokens < len(slot.tokens) or n_tokens == 0:
            self._context.remove(slot.index, n_tokens)  # also tokens that are not recorded
            self._forget(slot, n_tokens)
        if window is not None:
            self._restore(slot, window)

    def share(self, source: Slot, target: Slot, n_tokens: int, window: State | None = None) -> None:
        """Give the empty `target` the first `n_tokens` of `source`; only the window is copied.

        Without a window, a partial state of exactly these tokens, `source` must be live there.
        """
        self._context.copy(source.index, target.index, 0, n_tokens)
        target.tokens = source.tokens[:n_tokens]
        for other in self.all:
            if other is not target:
                n_shared = n_tokens if other is source else self.n_shared(source, other)
                self._set_shared(target, other, min(n_tokens, n_shared))
        if window is None:
            window = self._context.save(target.index, partial=True)
        self._restore(target, window)

    def load(self, slot: Slot, tokens: "array[int]", state: State) -> None:
        self._context.restore(slot.index, state)
        slot.tokens = tokens[:]
        if not self.is_live(slot, len(tokens)):
            self.cut(slot, 0)
            raise EngineError(f"a saved state does not have its {len(tokens)} tokens")

    def move(self, slot: Slot) -> None:
        """Give a slot the first free cells, if it is live and shares none."""
        is_alone = not any(self.n_shared(slot, other) for other in self.all)
        if is_alone and self.is_live(slot, len(slot.tokens)):
            state = self._context.save(slot.index)
            self._context.remove(slot.index)
            self._restore(slot, state, partial=False)

    def check(self) -> list[str]:
        """Return the differences from llama.cpp's state."""
        problems = []
        for slot in self.all:
            n_tokens, last = len(slot.tokens), self._context.positions(slot.index)[1]
            if last != n_tokens - 1 and (slot.is_running or last != -1):
                problems.append(f"slot {slot.index}: {n_tokens} tokens, last position {last}")
            elif slot.is_running and not self.is_live(slot, n_tokens):
                problems.append(f"slot {slot.index} runs without its window")
        for one, other in combinations(self.all, 2):
            n = self.n_shared(one, other)
            if n > len(one.tokens) or one.tokens[:n] != other.tokens[:n]:
                problems.append(f"slots {one.index} and {other.index} do not share {n} tokens")
        if self.n_cells_free < 0:
            problems.append(f"{-self.n_cells_free} more cells are used than there are")
        return problems

    def _restore(self, slot: Slot, state: State, *, partial: bool = True) -> None:
        try:
            self._context.restore(slot.index, state, partial=partial)
        except EngineError:
            self._forget(slot, 0)
            raise

    def _forget(self, slot: Slot, n_tokens: int) -> None:
        del slot.tokens[n_tokens:]
        slot.n_saved = min(slot.n_saved, n_tokens)
        slot.n_asked = min(slot.n_asked, n_tokens)
        for other in self.all:
            if other is not slot:
                self._set_shared(slot, other, min(n_tokens, self.n_shared(slot, other)))

    def _set_shared(self, one: Slot, other: Slot, n_cells: int) -> None:
        self._overlaps.clear()
        if n_cells:
            self._shared[_pair(one, other)] = n_cells
        else:
            self._shared.pop(_pair(one, other), None)

    def _overlap(self, slots: Iterable[Slot], *, is_all: bool) -> int:
        if is_all not in self._overlaps:
            n_shared, seen = 0, list[Slot]()
            for slot in slots if self._shared else ():
                n_shared += max((self.n_shared(slot, other) for other in seen), default=0)
                seen.append(slot)
            self._overlaps[is_all] = n_shared
        return self._overlaps[is_all]


def _pair(one: Slot, other: Slot) -> tuple[int, int]:
    return (min(one.index, other.index), max(one.index, other.index))


def common_prefix(one: "array[int]", other: "array[int]") -> int:
    """Return the number of equal tokens at the start. PERF: 20 us for 30k tokens."""
    n = min(len(one), len(other))
    if n == 0:
        return 0
    differ = np.frombuffer(one, np.int32, n) != np.frombuffer(other, np.int32, n)
    first = int(differ.argmax())
    return first if differ[first] else n
