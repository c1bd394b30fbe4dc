"""Reads tensor data once with a pool of threads: sums it, checks it, compares it."""

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Self

import msgspec
import numpy as np
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

from convert.header import SourceTensor
from convert.io_errors import read_into, reading
from convert.pieces import CHUNK_BYTES, PIECE_BYTES, Chunk, make_pieces, plan_chunks, word_sum
from convert.tensor_map import PlannedTensor
from convert.tensor_types import MXFP4, TENSOR_TYPES
from convert.verify.blocks import (
    Difference,
    compare_alike,
    compare_exact,
    compare_rounded,
    first_infinite,
)
from convert.verify.structure import FileTensor
from gptoss_local.base.errors import ConvertError, VerifyError
from gptoss_local.base.types import Progress

_POLL_S = 0.2  # Windows delivers Ctrl-C only between two waits


class TensorPlace(msgspec.Struct, frozen=True):
    """The place of a planned tensor in the file: all of a tensor, or a part of a fused one."""

    tensor: FileTensor
    offset: int = 0
    share: Fraction = Fraction(1)


@dataclass
class TensorFindings:
    """The findings on a tensor so far.

    Attributes:
        infinite_at: Byte of its data with the first value that is not finite.
        difference: From the checkpoint, if it was compared; `first` counts from the data's start.
    """

    total: int = 0
    n_bytes: int = 0
    infinite_at: int | None = None
    difference: Difference | None = None

    def add(self, offset: int, piece_sum: int, n_bytes: int, infinite_at: int | None) -> None:
        self.total = (self.total + piece_sum) % (1 << 64)
        self.n_bytes += n_bytes
        if infinite_at is not None:
            at = offset + infinite_at
            self.infinite_at = at if self.infinite_at is None else min(at, self.infinite_at)

    def add_difference(self, offset: int, found: Difference) -> None:
        self.difference = (self.difference or Difference()).merge(found, offset)


class Scan:
    """Call `compare` with tensors of known sources, then `scan_rest`, inside `with`."""

    def __init__(
        self, tensors: Mapping[str, FileTensor], n_workers: int, progress: Progress | None
    ) -> None:
        self.tallies = {name: TensorFindings() for name in tensors}
        self._tensors = tensors
        self._progress = progress
        self._n_done, self._n_total = 0, sum(t.n_bytes for t in tensors.values())
        self._lock = threading.Lock()  # of tallies and _n_done
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(n_workers, "verify")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)

    def compare(
        self,
        groups: Iterable[Sequence[PlannedTensor]],
        targets: Mapping[str, TensorPlace],
        sources: Mapping[str, SourceTensor],
    ) -> None:
        """Read tensors and compare them with their sources; returns when that is done.

        The groups have the tensors of one source each, in the types that `as_made` gives.
        """
        self._run(
            partial(self._compare_chunk, chunk, targets, sources)
            for group in groups
            for chunk in plan_chunks(group, sources)
        )

    def scan_rest(self) -> None:
        tensors = [t for name, t in self._tensors.items() if not self.tallies[name].n_bytes]
        self._run(
            partial(self._scan_chunk, tensor, first, last)
            for tensor in tensors
            for first, last in _cut(0, tensor.n_bytes, CHUNK_BYTES, tensor)
        )

    def _run(self, tasks: Iterable[Callable[[], None]]) -> None:
        futures = {self._pool.submit(task) for task in tasks}
        while futures:
            done, futures = wait(futures, _POLL_S, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()

    def _compare_chunk(
        self, chunk: Chunk, targets: Mapping[str, TensorPlace], sources: Mapping[str, SourceTensor]
    ) -> None:
        with _Reader() as reader:
            for planned, made_offset, made in make_pieces(chunk, sources):
                if self._stop.is_set():
                    return
                target = targets[planned.name]
                tensor = target.tensor
                scale = target.share * tensor.n_bytes / planned.n_bytes  # made bytes to the file's
                offset = target.offset + int(made_offset * scale)
                data = reader.read(tensor, offset, int(made.size * scale))
                self._add(tensor, offset, data)
                try:
                    found = _compare(data, made, planned, tensor)
                except ValueError as error:
                    raise ConvertError(
                        f"{planned.sources[0]} cannot become {tensor.kind.name}: {error}."
                    ) from error
                if found is not None:
                    with self._lock:
                        self.tallies[tensor.name].add_difference(offset, found)

    def _scan_chunk(self, tensor: FileTensor, first: int, end: int) -> None:
        with _Reader() as reader:
            for offset, last in _cut(first, end, PIECE_BYTES, tensor):
                if self._stop.is_set():
                    return
                self._add(tensor, offset, reader.read(tensor, offset, last - offset))

    def _add(self, tensor: FileTensor, offset: int, data: NDArray[np.uint8]) -> None:
        piece_sum, infinite_at = word_sum(data, offset), first_infinite(data, tensor.kind)
        with self._lock:
            self.tallies[tensor.name].add(offset, piece_sum, data.size, infinite_at)
            self._n_done += data.size
            if self._progress is not None:
                self._progress("verify", self._n_done, self._n_total)


def as_made(planned: PlannedTensor, tensor: FileTensor) -> PlannedTensor:
    """Plan the counterpart of a tensor of the file: MXFP4 blocks, or the values as F32."""
    is_kept = planned.scales is not None and not planned.is_merged
    is_repacked = is_kept and tensor.kind.name == MXFP4.qtype.name
    made = GGMLQuantizationType.MXFP4 if is_repacked else GGMLQuantizationType.F32
    return msgspec.structs.replace(planned, qtype=made)


def _compare(
    data: NDArray[np.uint8], made: NDArray[np.uint8], planned: PlannedTensor, tensor: FileTensor
) -> Difference | None:
    if planned.qtype == GGMLQuantizationType.MXFP4:
        return compare_exact(data, made, MXFP4)
    values = made.view(np.float32)
    if (kind := TENSOR_TYPES.get(tensor.kind.name.lower())) is not None:
        return compare_rounded(data, values, kind)
    return compare_alike(data, values, tensor.kind)


def _cut(first: int, end: int, n_bytes: int, tensor: FileTensor) -> Iterator[tuple[int, int]]:
    whole = math.lcm(tensor.kind.n_bytes, 8)
    step = n_bytes // whole * whole
    for offset in range(first, end, step):
        yield offset, min(offset + step, end)


class _Reader:
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
        with reading(tensor.path):
            if tensor.path not in self._files:
                self._files[tensor.path] = FileIO(tensor.path)
            if not read_into(self._files[tensor.path], tensor.offset + offset, data.data):
                raise VerifyError(f"{tensor.path} became shorter while it was read.")
        return data
