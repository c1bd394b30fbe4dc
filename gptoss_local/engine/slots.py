"""The slots of the KV cache: llama.cpp's sequence ids, and the tokens that each has cached."""

from dataclasses import dataclass, field

from gptoss_local.llama import Context


@dataclass(slots=True)
class Slot:
    """One llama.cpp sequence id.

    `tokens` are those whose keys and values are in the cache, the index being the position.
    """

    index: int
    tokens: list[int] = field(default_factory=list)


class Slots:
    """Hands out slots, and counts cells: one for every cached token, shared by all slots.

    Nothing is kept of a released slot.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._all = [Slot(index) for index in range(context.n_seq_max)]
        self._free = self._all[::-1]

    @property
    def has_free(self) -> bool:
        return bool(self._free)

    @property
    def n_cells(self) -> int:
        return self._context.n_ctx

    @property
    def n_cells_used(self) -> int:
        return sum(len(slot.tokens) for slot in self._all)

    @property
    def n_cells_free(self) -> int:
        return self.n_cells - self.n_cells_used

    def take(self) -> Slot:
        """Take an empty slot; `has_free` must hold."""
        return self._free.pop()

    def release(self, slot: Slot) -> None:
        """Free the slot and its cells, at once."""
        self._context.remove(slot.index)
        slot.tokens.clear()
        self._free.append(slot)

    def check(self) -> list[str]:
        """Compare the books with llama.cpp's; return what does not agree, or nothing."""
        problems = [
            f"slot {slot.index} is free and not empty" for slot in self._free if slot.tokens
        ]
        for slot in self._all:
            first, last = self._context.positions(slot.index)
            n_tokens = len(slot.tokens)
            if last != n_tokens - 1:
                problems.append(f"slot {slot.index}: {n_tokens} tokens, last position {last}")
            if first > max(0, n_tokens - self._context.n_swa):
                problems.append(f"slot {slot.index}: {n_tokens} tokens, window from {first}")
        if self.n_cells_used > self.n_cells:
            problems.append(f"{self.n_cells_used} of {self.n_cells} cells are used")
        return problems
