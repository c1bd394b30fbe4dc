"""Batches on the GPU: rows, their block masks, and the targets of the loss."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask

from bench.nano.train.loss import N_VOCAB, Targets, make_targets
from gptoss_local.models.nano.compact import N_BITS, vocabulary_codes


@functools.cache
def _compiled_create_block_mask() -> Any:
    return torch.compile(create_block_mask, dynamic=False)


@dataclass
class Inputs:
    """One batch of rows; all [rows, tokens]."""

    token: Tensor
    index: Tensor
    position: Tensor
    document: Tensor
    branch: Tensor


class Tables:
    """What is known of every token id: its index among the used ones, and its code."""

    def __init__(self, used: list[int], device: str) -> None:
        self.index_of = np.full(N_VOCAB, len(used), np.int64)
        self.index_of[used] = np.arange(len(used))
        self._index = torch.from_numpy(self.index_of).to(device)
        self.codes = torch.zeros(N_VOCAB, N_BITS, dtype=torch.int8, device=device)
        self.codes[: len(vocabulary_codes())] = torch.from_numpy(vocabulary_codes()).to(device)
        self.used_codes = self.codes[torch.tensor(used, device=device)].float()
        self.used = torch.tensor(used, device=device)
        self.device = device

    def inputs(self, rows: dict[str, NDArray[Any]]) -> Inputs:
        """Send the fields of rows to the GPU, without each row's last token."""

        def send(name: str) -> Tensor:
            array = np.ascontiguousarray(rows[name][:, :-1].astype(np.int32))
            return torch.from_numpy(array).to(self.device, non_blocking=True)

        token = send("token").long()
        return Inputs(token, self._index[token], send("position"), send("document"), send("branch"))


def block_masks(inputs: Inputs, sliding_window: int) -> tuple[Any, Any]:
    """Who attends to whom in sliding and in full layers.

    A token sees what comes before it in its document, in the context and in its own branch. The
    window counts positions, since other branches may lie between a branch and the context.
    """
    n_rows, n_tokens = inputs.position.shape
    document, branch, position = inputs.document, inputs.branch, inputs.position

    def full(row: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        same_branch = (branch[row, k] == 0) | (branch[row, k] == branch[row, q])
        return (q >= k) & (document[row, q] == document[row, k]) & same_branch

    def sliding(row: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        near = position[row, q] - position[row, k] < sliding_window
        return full(row, head, q, k) & near

    def make(mask: Any) -> Any:
        device = inputs.position.device
        return _compiled_create_block_mask()(mask, n_rows, None, n_tokens, n_tokens, device=device)

    return make(sliding), make(full)


def training_batch(
    rows: dict[str, NDArray[Any]], tables: Tables, rng: np.random.Generator, *, n_targets: int,
    n_rare: int, focus: float,
) -> tuple[Inputs, Targets]:  # fmt: skip
    """Make a batch of rows; focus 1: turns have all their weight; 0: that of others."""
    rows["weight"] = rows["weight"] * rows["turn"] ** np.float16(focus)
    made = make_targets(rows, tables.index_of, rng, n_targets=n_targets, n_rare=n_rare)
    targets = {n: torch.from_numpy(a).to(tables.device) for n, a in made.items()}
    return tables.inputs(rows), Targets(**targets)
