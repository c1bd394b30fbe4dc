"""The tokens of one decode call, of any number of sequences."""

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt


class Batch:
    """A `llama_batch` over arrays of our own, filled again for every call.

    The rows of one sequence must follow its cached positions without a gap. `tokens`, `positions`,
    `seq_ids` (int32) and `outputs` (int8, 1: with logits) have `n_max` rows.
    """

    def __init__(self, n_max: int) -> None:
        self.n_tokens = self.n_outputs = 0
        self.tokens = np.zeros(n_max, np.int32)
        self.positions = np.zeros(n_max, np.int32)
        self.seq_ids = np.zeros(n_max, np.int32)
        self.outputs = np.zeros(n_max, np.int8)
        self._n_seq_ids = np.ones(n_max, np.int32)
        self._seq_id_pointers = (
            self.seq_ids.ctypes.data + self.seq_ids.itemsize * np.arange(n_max, dtype=np.uint64)
        ).astype(np.uint64)
        fields = dict(llama_cpp.llama_batch._fields_)
        arrays: dict[str, npt.NDArray[Any]] = {
            "token": self.tokens,
            "pos": self.positions,
            "n_seq_id": self._n_seq_ids,
            "seq_id": self._seq_id_pointers,
            "logits": self.outputs,
        }
        self.struct = llama_cpp.llama_batch()
        for name, array in arrays.items():
            setattr(self.struct, name, ctypes.cast(array.ctypes.data, fields[name]))

    def n_outputs_of(self, seq_id: int) -> int:
        n = self.n_tokens
        return int(np.count_nonzero(self.outputs[:n] & (self.seq_ids[:n] == seq_id)))

    def clear(self) -> None:
        self.n_tokens = self.n_outputs = 0

    def add(self, token: int, position: int, seq_id: int) -> int:
        """Append one token with logits, and return its row."""
        row = self.n_tokens  # PERF: scalar stores, as a slice of one costs twice as much
        self.tokens[row] = token
        self.positions[row] = position
        self.seq_ids[row] = seq_id
        self.outputs[row] = 1
        self.n_tokens = row + 1
        self.n_outputs += 1
        return row

    def extend(
        self, tokens: Sequence[int], position: int, seq_id: int, *, n_outputs: int = 0
    ) -> int:
        """Append consecutive tokens, the last `n_outputs` with logits; return the last row."""
        start, end = self.n_tokens, self.n_tokens + len(tokens)
        self.tokens[start:end] = tokens
        self.positions[start:end] = np.arange(position, position + len(tokens))
        self.seq_ids[start:end] = seq_id
        self.outputs[start:end] = 0
        self.outputs[end - n_outputs : end] = 1
        self.n_tokens = end
        self.n_outputs += n_outputs
        return end - 1
