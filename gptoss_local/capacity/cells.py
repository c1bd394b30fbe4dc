"""Stand in for llama.cpp's context where only cells are counted."""

from typing import Any


class CountedContext:
    """Has what `Slots` and `PrefixCache` ask of a context; moves of cells cost nothing.

    A prefix can be continued anywhere, as if there were a checkpoint at each of its tokens.
    """

    can_share = True
    n_swa = 128

    def __init__(self, n_ctx: int, n_batch: int, n_seq: int) -> None:
        self.n_ctx, self.n_batch = n_ctx, n_batch
        self.n_seq_max = self.n_outputs_max = n_seq

    def can_resume(self, seq_id: int, position: int) -> bool:
        return True

    def remove(self, seq_id: int, position: int = 0) -> None:
        pass

    def copy(self, source: int, target: int, start: int, end: int) -> None:
        pass

    def save(self, seq_id: int, **options: Any) -> None:
        pass

    def restore(self, seq_id: int, state: None, **options: Any) -> None:
        pass
