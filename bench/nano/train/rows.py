"""Packs documents into training rows, in worker processes.

A row is a fixed number of tokens holding several whole documents. For every token it records its
position within its prompt, its document and branch (0 is the context), its weight in the loss, and
how many times that it weighs where turns count (`turns`).
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from queue import Empty
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
Arrays = dict[str, NDArray[Any]]


@dataclass(eq=False)
class Row:
    """Arrays of one row, [n_tokens + 1]: inputs, and the token that follows the last of them."""

    arrays: Arrays
    n_used: int = 0
    n_documents: int = 0

    @classmethod
    def empty(cls, n_tokens: int) -> "Row":
        return cls({name: np.zeros(n_tokens + 1, dtype) for name, dtype in FIELDS.items()})

    def has_room(self, n: int) -> bool:
        return self.n_used + n <= len(self.arrays["token"])

    def add(self, context: list[int], branches: Sequence[BranchTokens]) -> None:
        """Append a document."""
        self.n_documents += 1
        self._append(context, first_position=0, branch=0)
        read = followers(context)
        for number, branch in enumerate(branches, start=1):
            self._append(branch.prompt + branch.target, first_position=len(context), branch=number)
            answer = slice(self.n_used - len(branch.target), self.n_used)
            self.arrays["weight"][answer] = min(1.0, (LONG_ANSWER / len(branch.target)) ** 0.5)
            self.arrays["turn"][answer] = turn_weights(branch_turns(context, branch, read))

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
    """Rows that workers make without end, all of which are kept and drawn again."""

    def __init__(self, n_tokens: int) -> None:
        self.rows: list[Arrays] = []
        self._n_tokens, self._processes = n_tokens, list[BaseProcess]()

    def start(self, draw: Callable[[Source], Document], seed: int, n_workers: int) -> None:
        context = get_context("fork")
        self._made = context.Queue(4 * n_workers)
        for worker in range(n_workers):
            arguments = (draw, seed * 1000 + worker)
            process = context.Process(target=self._work, args=arguments, daemon=True)
            process.start()
            self._processes.append(process)

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()

    def draw_rows(self, rng: np.random.Generator, n: int, *, n_ready: int) -> Arrays:
        """Pick `n` rows at random, [n, n_tokens + 1] per field, once `n_ready` are there.

        Raises:
            RuntimeError: a worker died.
        """
        while len(self.rows) < n_ready or not self._made.empty():
            if any(process.exitcode for process in self._processes):
                raise RuntimeError("a process that makes data has failed; see its traceback above")
            with suppress(Empty):
                self.rows.append(self._made.get(timeout=1))
        picked = [self.rows[i] for i in rng.integers(0, len(self.rows), n)]
        return {name: np.stack([row[name] for row in picked]) for name in FIELDS}

    def _work(self, draw: Callable[[Source], Document], seed: int) -> None:
        os.nice(5)
        source, rows = Source(seed), [Row.empty(self._n_tokens) for _ in range(N_OPEN_ROWS)]
        while True:
            self._made.put(self._filled(rows, draw, source).arrays)

    def _filled(self, rows: list[Row], draw: Callable[[Source], Document], source: Source) -> Row:
        """Add documents to the open rows until one does not fit; put a new one for the fullest."""
        while True:
            context, branches = encode_document(draw(source))
            while (size := n_tokens_of(context, branches)) > self._n_tokens + 1 and branches:
                branches.pop()
            if not branches:
                continue
            row = next((r for r in rows if r.has_room(size)), None)
            if row is not None:
                row.add(context, branches)
                continue
            fullest = max(range(len(rows)), key=lambda i: rows[i].n_used)
            filled, rows[fullest] = rows[fullest], Row.empty(self._n_tokens)
            rows[fullest].add(context, branches)
            return filled
