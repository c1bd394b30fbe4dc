"""Packs documents into training rows, in worker processes that write to shared files.

A row is a fixed number of tokens holding several whole documents. For every token it records its
position within its prompt, its document and branch (0 is the context), its weight in the loss, and
how many times that it weighs where turns count (`turns`).
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.nano.data.document import BranchTokens, Document, encode_document
from bench.nano.data.source import Source
from bench.nano.train.turns import branch_turns, followers, turn_weights

N_OPEN_ROWS = 6
LONG_ANSWER = 512  # an answer longer than this weighs as the square root of its length
FIELDS = {
    "token": np.int32, "position": np.uint16, "document": np.uint16, "branch": np.uint8,
    "weight": np.float16, "turn": np.float16,
}  # fmt: skip


@dataclass(eq=False)
class Row:
    """Arrays of one row, [n_tokens + 1]: inputs, and the token that follows the last of them."""

    arrays: dict[str, NDArray[Any]]
    n_used: int = 0
    n_documents: int = 0

    @classmethod
    def empty(cls, n_tokens: int) -> "Row":
        return cls({name: np.zeros(n_tokens + 1, dtype) for name, dtype in FIELDS.items()})

    def has_room(self, n: int) -> bool:
        return self.n_used + n <= len(self.arrays["token"])

    def add(self, context: list[int], branches: Sequence[BranchTokens]) -> list[tuple[int, int]]:
        """Append a document.

        Returns:
            Where each branch's answer starts and ends in the row.
        """
        self.n_documents += 1
        self._append(context, first_position=0, branch=0)
        read, spans = followers(context), []
        for number, branch in enumerate(branches, start=1):
            self._append(branch.prompt + branch.target, first_position=len(context), branch=number)
            answer = slice(self.n_used - len(branch.target), self.n_used)
            self.arrays["weight"][answer] = min(1.0, (LONG_ANSWER / len(branch.target)) ** 0.5)
            self.arrays["turn"][answer] = turn_weights(branch_turns(context, branch, read))
            spans.append((answer.start, answer.stop))
        return spans

    def _append(self, tokens: list[int], *, first_position: int, branch: int) -> None:
        at = slice(self.n_used, self.n_used + len(tokens))
        self.arrays["token"][at] = tokens
        self.arrays["position"][at] = np.arange(first_position, first_position + len(tokens))
        self.arrays["document"][at] = self.n_documents
        self.arrays["branch"][at] = branch
        self.n_used += len(tokens)


def n_tokens_of(context: list[int], branches: Sequence[BranchTokens]) -> int:
    return len(context) + sum(len(b.prompt) + len(b.target) for b in branches)


class RowStore:
    """Rows in memory-mapped files: each worker fills its own part and counts what is complete.

    Args:
        folder: Where the files are; made by `start`.
        n_workers: Processes, each with room for `n_rows` rows.
        n_tokens: Tokens of a row.
    """

    def __init__(self, folder: Path, *, n_workers: int, n_rows: int, n_tokens: int) -> None:
        self._shape = (n_workers, n_rows, n_tokens + 1)
        self._folder = folder
        self._processes: list[Any] = []

    def _map(self, name: str, dtype: Any, shape: tuple[int, ...], mode: Any) -> Any:
        return np.memmap(self._folder / name, dtype, mode, shape=shape)

    def start(self, draw: Callable[[Source], Document], seed: int) -> None:
        """Make the files and start the workers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for name, dtype in FIELDS.items():
            self._map(name, dtype, self._shape, "w+")
        self._map("n_done", np.int64, self._shape[:1], "w+")
        context = get_context("fork")
        for worker in range(self._shape[0]):
            process = context.Process(
                target=self._work, args=(draw, worker, seed * 1000 + worker), daemon=True
            )
            process.start()
            self._processes.append(process)

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()

    def open(self) -> None:
        """Map the files for reading."""
        self.fields = {n: self._map(n, d, self._shape, "r") for n, d in FIELDS.items()}
        self._n_done = self._map("n_done", np.int64, self._shape[:1], "r")

    def n_rows_done(self) -> int:
        """Rows finished by all workers.

        Raises:
            RuntimeError: a worker died.
        """
        if any(process.exitcode for process in self._processes):
            raise RuntimeError("a process that makes data has failed; its traceback is above")
        return int(self._n_done.sum())

    def draw_rows(self, rng: np.random.Generator, n: int) -> dict[str, NDArray[Any]]:
        """Pick `n` of the finished rows at random, [n, n_tokens + 1] per field."""
        done = np.array(self._n_done)
        ends = np.cumsum(done)
        picks = rng.integers(0, ends[-1], n)
        workers = np.searchsorted(ends, picks, side="right")
        rows = picks - (ends - done)[workers]
        return {
            name: np.stack([field[w, r] for w, r in zip(workers, rows, strict=True)])
            for name, field in self.fields.items()
        }

    def _work(self, draw: Callable[[Source], Document], worker: int, seed: int) -> None:
        os.nice(5)
        fields = {n: self._map(n, d, self._shape, "r+") for n, d in FIELDS.items()}
        n_done = self._map("n_done", np.int64, self._shape[:1], "r+")
        source, n_tokens = Source(seed), self._shape[2] - 1
        rows = [Row.empty(n_tokens) for _ in range(N_OPEN_ROWS)]
        for done in range(self._shape[1]):
            row = _fill_one(rows, draw, source)
            for name, field in fields.items():
                field[worker, done] = row.arrays[name]
            n_done[worker] = done + 1
            rows.append(Row.empty(n_tokens))


def _fill_one(rows: list[Row], draw: Callable[[Source], Document], source: Source) -> Row:
    n_row = len(rows[0].arrays["token"])
    while True:
        context, branches = encode_document(draw(source))
        while (size := n_tokens_of(context, branches)) > n_row and branches:
            branches.pop()
        if not branches:
            continue
        row = next((r for r in rows if r.has_room(size)), None)
        if row is not None:
            row.add(context, branches)
            continue
        fullest = max(rows, key=lambda r: r.n_used)
        rows.remove(fullest)
        fresh = Row.empty(n_row - 1)
        fresh.add(context, branches)
        rows.append(fresh)
        return fullest
