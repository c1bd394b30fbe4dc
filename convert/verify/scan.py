"""Reads tensor data once with a pool of threads: sums it, checks it, compares it."""

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Self

import msgspec
import numpy as np
from gguf import GGMLQuantizationType, quants
from numpy.typing import NDArray

from convert.files import FileReader, SourceTensor
from convert.pieces import CHUNK_BYTES, PIECE_BYTES, Chunk, make_pieces, plan_chunks, word_sum
from convert.tensor_map import PlannedTensor
from convert.tensor_types import MXFP4, TENSOR_TYPES, TensorType
from convert.verify.structure import FileTensor
from gptoss_local.base.errors import ConvertError
from gptoss_local.base.formats.ggml_types import GgmlType
from gptoss_local.base.types import Progress

_SLACK = np.float32(1 + 2.0**-20)  # for the float32 arithmetic of the comparison itself

# Where in a block of a type that we do not write its float16 scales lie. Source: ggml-common.h.
_SCALES = {
    **dict.fromkeys(("Q4_1", "Q4_K", "Q5_K"), (0, 2)),
    **dict.fromkeys(("Q5_0", "IQ4_NL", "IQ4_XS"), (0,)),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q6_K": (208,),
}


class Difference(msgspec.Struct, frozen=True):
    """The differences between a piece of a tensor and our own conversion.

    `n_blocks` blocks, or single values, have other bytes, from byte `first` on; `n_beyond` are
    farther off than rounding explains. The worst error is infinite if a value is not finite;
    `error` and `power` are sums of squares: of distances, and of the checkpoint's values.
    """

    n_blocks: int = 0
    first: int = 0
    n_beyond: int = 0
    worst_error: float = 0.0
    error: float = 0.0
    power: float = 0.0

    def merge(self, found: "Difference", offset: int) -> "Difference":
        firsts = [self.first] if self.n_blocks else []
        firsts += [offset + found.first] if found.n_blocks else []
        return Difference(
            self.n_blocks + found.n_blocks,
            min(firsts, default=0),
            self.n_beyond + found.n_beyond,
            max(self.worst_error, found.worst_error),
            self.error + found.error,
            self.power + found.power,
        )

    @property
    def relative_error(self) -> float:
        if not self.error:
            return 0.0
        return float(np.sqrt(self.error / self.power)) if self.power else float("inf")


def first_infinite(data: NDArray[np.uint8], kind: GgmlType) -> int | None:
    """Return the byte of the first block with a number or scale that is not finite."""
    if (ours := TENSOR_TYPES.get(kind.name.lower())) is not None:
        return ours.first_infinite(data)
    blocks = data.reshape(-1, kind.n_bytes)
    is_bad = np.zeros(len(blocks), np.bool_)
    for at in _SCALES.get(kind.name, ()):
        scale = np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2")
        is_bad |= ~np.isfinite(scale[:, 0])
    return int(is_bad.argmax()) * kind.n_bytes if is_bad.any() else None


def compare_rounded(
    data: NDArray[np.uint8], values: NDArray[np.float32], kind: type[TensorType]
) -> Difference:
    """Compare with a checkpoint's values that were rounded to one of our types."""
    exact = values.reshape(-1, kind.n_values)
    return _compare_blocks(data, kind.quantize(values), exact, kind)


def _compare_blocks(
    data: NDArray[np.uint8],
    expected: NDArray[np.uint8],
    exact: NDArray[np.float32],
    kind: type[TensorType],
) -> Difference:
    n_blocks = first = n_beyond = 0
    with np.errstate(all="ignore"):
        distance = np.abs(kind.dequantize(data) - exact)
        if not np.array_equal(data, expected):
            n_block_bytes = kind.layout.itemsize
            differs = (data != expected).reshape(-1, n_block_bytes).any(axis=1)
            is_within = (distance <= kind.bound(exact) * _SLACK).all(axis=1)  # NaN never is
            n_blocks, first = int(differs.sum()), int(differs.argmax()) * n_block_bytes
            n_beyond = int((differs & ~is_within).sum())
        error, power = _squares(distance), _squares(exact)
    return Difference(n_blocks, first, n_beyond, _worst(distance), error, power)


def compare_alike(
    data: NDArray[np.uint8], values: NDArray[np.float32], kind: GgmlType
) -> Difference | None:
    """Compare values rounded by unknown rules; None if the type cannot be read here."""
    try:
        qtype = GGMLQuantizationType[kind.name]
        with np.errstate(all="ignore"):
            read = quants.dequantize(data.reshape(-1, kind.n_bytes), qtype).reshape(-1)
            distance = np.abs(read - values.reshape(-1))
            return Difference(
                worst_error=_worst(distance), error=_squares(distance), power=_squares(values)
            )
    except (KeyError, NotImplementedError):
        return None


def _worst(distance: NDArray[np.float32]) -> float:
    worst = float(np.abs(distance).max(initial=0))
    return worst if np.isfinite(worst) else float("inf")


def _squares(values: NDArray[np.float32]) -> float:
    flat = values.reshape(-1).astype(np.float64)
    return float(flat @ flat)


_POLL_S = 0.2  # Windows delivers Ctrl-C only between two waits


@dataclass
class TensorFindings:
    """The findings on a tensor so far; bytes count from the start of its data."""

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
        self, groups: Iterable[Sequence[PlannedTensor]], sources: Mapping[str, SourceTensor]
    ) -> None:
        """Read tensors and compare them with their sources, in groups of one source."""
        self._run(
            partial(self._compare_chunk, chunk, sources)
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

    def _compare_chunk(self, chunk: Chunk, sources: Mapping[str, SourceTensor]) -> None:
        with FileReader() as reader:
            for planned, made_offset, made in make_pieces(chunk, sources):
                if self._stop.is_set():
                    return
                tensor = self._tensors[planned.name]
                offset = made_offset * tensor.n_bytes // planned.n_bytes
                n_bytes = made.size * tensor.n_bytes // planned.n_bytes
                data = reader.read(tensor.path, tensor.offset + offset, n_bytes)
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
        with FileReader() as reader:
            for offset, last in _cut(first, end, PIECE_BYTES, tensor):
                if self._stop.is_set():
                    return
                data = reader.read(tensor.path, tensor.offset + offset, last - offset)
                self._add(tensor, offset, data)

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
        if np.array_equal(data, made):
            return Difference()
        found = _compare_blocks(data, made, MXFP4.dequantize(made), MXFP4)
        return msgspec.structs.replace(found, n_beyond=found.n_blocks)
    values = made.view(np.float32)
    if (kind := TENSOR_TYPES.get(tensor.kind.name.lower())) is not None:
        return compare_rounded(data, values, kind)
    return compare_alike(data, values, tensor.kind)


def _cut(first: int, end: int, n_bytes: int, tensor: FileTensor) -> Iterator[tuple[int, int]]:
    whole = math.lcm(tensor.kind.n_bytes, 8)
    step = n_bytes // whole * whole
    for offset in range(first, end, step):
        yield offset, min(offset + step, end)
