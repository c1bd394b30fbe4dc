"""Reads tensor data with a pool of threads, every byte once, and keeps count of what is wrong.

Data is summed and checked for what is not finite; where a source is at hand, also compared with
what the converter would make of it. Nothing is mapped, and nothing is held but pieces.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray

from convert.header import SourceTensor
from convert.io_errors import reading
from convert.pieces import CHUNK_BYTES, PIECE_BYTES, Chunk, make_pieces, plan_chunks, word_sum
from convert.tensor_map import PlannedTensor
from convert.verify.blocks import (
    ROUNDED,
    Difference,
    compare_exact,
    compare_rounded,
    first_infinite,
)
from convert.verify.structure import FileTensor
from gptoss_local.errors import ConvertError, VerifyError
from gptoss_local.types import Progress

_POLL_S = 0.2  # Windows delivers Ctrl-C only between two waits
_WHOLE = 34 * 17 * 8  # bytes; pieces of this end with a block of every type, and on a word


COMPARABLE = (
    GGMLQuantizationType.F32,
    GGMLQuantizationType.BF16,
    GGMLQuantizationType.MXFP4,
    *ROUNDED,
)
"""The types that the converter writes, and float16."""


class Target(msgspec.Struct, frozen=True):
    """Where in the file a planned tensor lies: all of a tensor, or a part of a fused one."""

    tensor: FileTensor
    offset: int = 0


@dataclass
class Tally:
    """What is known of a tensor so far.

    Attributes:
        total: Its `word_sum`.
        infinite_at: Byte of its data with the first value that is not finite.
        difference: From the checkpoint, if it was compared; `first` counts from the data's start.
    """

    total: int = 0
    n_bytes: int = 0
    infinite_at: int | None = None
    difference: Difference | None = None

    def add(self, offset: int, piece_sum: int, n_bytes: int, infinite_at: int | None) -> None:
        """Take in a piece, in any order."""
        self.total = (self.total + piece_sum) % (1 << 64)
        self.n_bytes += n_bytes
        if infinite_at is not None:
            at = offset + infinite_at
            self.infinite_at = at if self.infinite_at is None else min(at, self.infinite_at)

    def add_difference(self, offset: int, found: Difference) -> None:
        """Take in how a piece compares, in any order."""
        self.difference = (self.difference or Difference()).merge(found, offset)


class Scan:
    """Call `compare` with what can be compared, then `scan_rest`, inside `with`.

    Args:
        tensors: All that should be read, by name.
        n_workers: Threads.
        progress: Told the bytes of tensor data that were read.

    Attributes:
        tallies: By name; complete after `scan_rest`.
    """

    def __init__(
        self, tensors: Mapping[str, FileTensor], n_workers: int, progress: Progress | None
    ) -> None:
        self.tallies = {name: Tally() for name in tensors}
        self._tensors = tensors
        self._progress = progress
        self._n_done, self._n_total = 0, sum(t.n_bytes for t in tensors.values())
        self._lock = threading.Lock()  # of tallies and _n_done
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(n_workers, "verify")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)

    def compare(
        self,
        groups: Iterable[Sequence[PlannedTensor]],
        targets: Mapping[str, Target],
        sources: Mapping[str, SourceTensor],
    ) -> None:
        """Read tensors and compare them with their sources; returns when that is done.

        Args:
            groups: Tensors of one source each, as `convert.schedule` gives them, that are not in
                the file's types but in those that `as_made` gives.
            targets: Where each of them lies, by name.
            sources: Knows theirs.

        Raises:
            ConvertError: A source is damaged, or cannot be read.
            VerifyError: The file became shorter.
        """
        self._run(
            partial(self._compare_chunk, chunk, targets, sources)
            for group in groups
            for chunk in plan_chunks(group, sources)
        )

    def scan_rest(self) -> None:
        """Read the tensors that nothing was compared with; else as `compare`."""
        tensors = [t for name, t in self._tensors.items() if not self.tallies[name].n_bytes]
        step = CHUNK_BYTES // _WHOLE * _WHOLE
        self._run(
            partial(self._scan_chunk, tensor, first, min(first + step, tensor.n_bytes))
            for tensor in tensors
            for first in range(0, tensor.n_bytes, step)
        )

    def _run(self, tasks: Iterable[Callable[[], None]]) -> None:
        futures = {self._pool.submit(task) for task in tasks}
        while futures:
            done, futures = wait(futures, _POLL_S, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()

    def _compare_chunk(
        self, chunk: Chunk, targets: Mapping[str, Target], sources: Mapping[str, SourceTensor]
    ) -> None:
        with _Reader() as reader:
            for planned, made_offset, made in make_pieces(chunk, sources):
                if self._stop.is_set():
                    return
                target = targets[planned.name]
                qtype = target.tensor.qtype
                offset = target.offset + _resize(made_offset, planned.qtype, qtype)
                data = reader.read(target.tensor, offset, _resize(made.size, planned.qtype, qtype))
                self._add(target.tensor, offset, data)
                try:
                    found = _compare(data, made, qtype)
                except ValueError as error:
                    raise ConvertError(
                        f"{planned.source} cannot become {qtype.name}: {error}."
                    ) from error
                with self._lock:
                    self.tallies[target.tensor.name].add_difference(offset, found)

    def _scan_chunk(self, tensor: FileTensor, first: int, end: int) -> None:
        step = PIECE_BYTES // _WHOLE * _WHOLE
        with _Reader() as reader:
            for offset in range(first, end, step):
                if self._stop.is_set():
                    return
                self._add(tensor, offset, reader.read(tensor, offset, min(step, end - offset)))

    def _add(self, tensor: FileTensor, offset: int, data: NDArray[np.uint8]) -> None:
        piece_sum, infinite_at = word_sum(data, offset), first_infinite(data, tensor.qtype)
        with self._lock:
            self.tallies[tensor.name].add(offset, piece_sum, data.size, infinite_at)
            self._n_done += data.size
            if self._progress is not None:
                self._progress("verify", self._n_done, self._n_total)


def as_made(planned: PlannedTensor, qtype: GGMLQuantizationType) -> PlannedTensor:
    """Plan what to compare a tensor of type `qtype` with: its bytes, or the bf16 values behind."""
    made = GGMLQuantizationType.BF16 if qtype in ROUNDED else qtype
    return msgspec.structs.replace(planned, qtype=made)


def _compare(
    data: NDArray[np.uint8], made: NDArray[np.uint8], qtype: GGMLQuantizationType
) -> Difference:
    if qtype in ROUNDED:
        return compare_rounded(data, made.view(np.uint16), qtype)
    return compare_exact(data, made, qtype)


def _resize(n_bytes: int, of: GGMLQuantizationType, to: GGMLQuantizationType) -> int:
    """Tell how many bytes the same values take in another type."""
    block, n_block_bytes = GGML_QUANT_SIZES[of]
    to_block, n_to_bytes = GGML_QUANT_SIZES[to]
    return int(n_bytes // n_block_bytes * block // to_block * n_to_bytes)


class _Reader:
    """Reads pieces of tensors into one buffer; one task's own."""

    def __init__(self) -> None:
        self._files: dict[Path, FileIO] = {}
        self._buffer = np.empty(0, np.uint8)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def read(self, tensor: FileTensor, offset: int, n_bytes: int) -> NDArray[np.uint8]:
        if self._buffer.size < n_bytes:
            self._buffer = np.empty(n_bytes, np.uint8)
        data = self._buffer[:n_bytes]
        view = data.data
        with reading(tensor.path):
            if tensor.path not in self._files:
                self._files[tensor.path] = FileIO(tensor.path)
            file = self._files[tensor.path]
            file.seek(tensor.offset + offset)
            while view:
                n_read = file.readinto(view)
                if not n_read:
                    raise VerifyError(f"{tensor.path} became shorter while it was read.")
                view = view[n_read:]
        return data
