"""The bytes of a GGUF's tensors, made from the checkpoint piece by piece.

A tensor is cut into chunks, one task each, and a chunk into pieces that stay in a core's cache.
Tensors of the same source share one read. Nothing is mapped, so a shrinking file is an error.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import msgspec
import numpy as np
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

from convert.files import STORAGE, Delta, FileReader, SourceTensor
from convert.tensor_map import PlannedTensor
from convert.tensor_types import BY_QTYPE, MXFP4, dequantize, repack_blocks, widen_bf16
from gptoss_local.base.errors import ConvertError

CHUNK_BYTES = 32 << 20
# PERF: two workers convert from and to memory at 1.1 to 1.5 GB/s with pieces of 0.5 or 1 MB; with
# 4 MB, which with its temporaries leaves the cache, at 0.7 on a busy machine.
PIECE_BYTES = 1 << 20

_ROWS = {"all": slice(None), "even": slice(0, None, 2), "odd": slice(1, None, 2)}


class Chunk(msgspec.Struct, frozen=True):
    """Some rows of a checkpoint tensor, and the tensors of the GGUF made from them.

    A row has one index of all axes but the last, of an expert's first where a tensor takes every
    second row, and of the first alone (an expert's matrix) in a transposed source.
    """

    tensors: tuple[PlannedTensor, ...]
    part: int
    first_row: int
    n_rows: int


class Rounding:
    """Counts the values of experts that change as they become MXFP4; from any thread."""

    def __init__(self) -> None:
        self.n_values = self.n_changed = 0
        self._error = self._power = 0.0
        self._lock = threading.Lock()

    def add(self, values: NDArray[np.float32], data: NDArray[np.uint8]) -> None:
        flat = values.reshape(-1)
        distance = MXFP4.dequantize(data).reshape(-1) - flat
        n_changed = int(np.count_nonzero(distance))
        error, power = float(distance @ distance), float(flat @ flat)
        with self._lock:
            self.n_values += flat.size
            self.n_changed += n_changed
            self._error += error
            self._power += power

    def note(self) -> str:
        if not self.n_values:
            return ""
        n = f"{self.n_values:,} values of the experts"
        if not self.n_changed:
            return f"none of {n} changed as they became MXFP4"
        size = (self._error / self._power) ** 0.5
        return (
            f"{self.n_changed:,} of {n} changed as they became MXFP4, by {size:.2%} of their size "
            "(root mean square); --experts bf16 keeps them"
        )


def plan_chunks(
    tensors: Sequence[PlannedTensor], sources: Mapping[str, SourceTensor]
) -> Iterator[Chunk]:
    for part, name in enumerate(tensors[0].sources):
        source = sources[name]
        n_rows = prod(source.shape[: _n_row_axes(tensors[0])])
        step = _step(tensors[0], CHUNK_BYTES, source.n_bytes // n_rows)
        for first in range(0, n_rows, step):
            yield Chunk(tuple(tensors), part, first, min(step, n_rows - first))


def make_pieces(
    chunk: Chunk, sources: Mapping[str, SourceTensor], rounding: Rounding | None = None
) -> Iterator[tuple[PlannedTensor, int, NDArray[np.uint8]]]:
    """Convert one chunk: yield tensors, offsets in their data, and bytes in a reused buffer."""
    any_tensor = chunk.tensors[0]
    n_axes, n_parts = _n_row_axes(any_tensor), len(any_tensor.sources)
    source = any_tensor.sources[chunk.part]
    delta = sources[source].delta
    n_all_rows = prod(sources[source].shape[:n_axes])
    step = _step(any_tensor, PIECE_BYTES, sources[source].n_bytes // n_all_rows)
    with FileReader() as reader, FileReader() as of_scales:
        for start in range(0, chunk.n_rows, step):
            first, n = chunk.first_row + start, min(step, chunk.n_rows - start)
            values, scales = _read_rows(reader, sources[source], n_axes, first, n), None
            if any_tensor.scales is not None:
                scales = _read_rows(of_scales, sources[any_tensor.scales], n_axes, first, n)
            if delta is not None:
                values, scales = _merge(any_tensor, values, scales, delta, first), None
            for tensor in chunk.tensors:
                n_part_bytes = tensor.n_bytes // n_parts
                offset = n_part_bytes * chunk.part + n_part_bytes * first // n_all_rows
                try:
                    for data in _convert(tensor, values, scales, rounding):
                        yield tensor, offset, data
                        offset += data.size
                except ValueError as error:
                    raise ConvertError(
                        f"{source} in {sources[source].path} cannot become {tensor.qtype.name}: "
                        f"{error}.",
                        hint="The checkpoint is damaged; download it again.",
                    ) from error


def word_sum(data: NDArray[np.uint8], offset: int = 0) -> int:
    """Sum data as little-endian 64-bit words, modulo 2^64; `offset` may lie inside a word."""
    n_before = offset % 8
    if n_before or data.size % 8:
        padded = np.zeros(-(-(n_before + data.size) // 8) * 8, np.uint8)
        padded[n_before : n_before + data.size] = data
        data = padded
    return int(data.view("<u8").sum(dtype=np.uint64))


def _convert(
    tensor: PlannedTensor,
    values: NDArray[Any],
    scales: NDArray[np.uint8] | None,
    rounding: Rounding | None,
) -> Iterator[NDArray[np.uint8]]:
    """Convert rows of a source into the flat bytes of the rows that `tensor` takes of them.

    `values` are (n_rows, ...) as `STORAGE` holds floats, or MXFP4 blocks, (n_rows, n_blocks, 16);
    `scales` are (n_rows, n_blocks).
    """
    rows = _ROWS[tensor.rows]
    if scales is not None:
        if tensor.qtype == GGMLQuantizationType.MXFP4:
            yield repack_blocks(values[rows], scales[rows]).reshape(-1)
        else:  # to compare with
            yield _round(dequantize(values[rows], scales[rows]), tensor.qtype, None)
    elif tensor.transposed:
        for matrix in values.swapaxes(1, 2):
            taken = matrix[rows]
            n_rows = max(1, PIECE_BYTES // taken[0].nbytes)
            for start in range(0, len(taken), n_rows):
                yield _round(taken[start : start + n_rows], tensor.qtype, rounding)
    else:
        yield _round(values[rows], tensor.qtype, rounding)


def _merge(
    tensor: PlannedTensor,
    values: NDArray[Any],
    scales: NDArray[np.uint8] | None,
    delta: Delta,
    first: int,
) -> NDArray[np.float32]:
    plain = dequantize(values, scales) if scales is not None else _floats(values).copy()
    if not tensor.transposed:
        rows = plain.reshape(-1, plain.shape[-1])
        rows += delta.rows(first, len(rows))
        return plain
    n_out = plain.shape[2]
    for i, matrix in enumerate(plain):
        matrix += delta.rows((first + i) * n_out, n_out).T
    return plain


def _floats(rows: NDArray[Any]) -> NDArray[np.float32]:
    return widen_bf16(rows) if rows.dtype == np.uint16 else rows.astype(np.float32, copy=False)


def _round(
    rows: NDArray[Any], qtype: GGMLQuantizationType, rounding: Rounding | None
) -> NDArray[np.uint8]:
    """Turn floats into a type; values already of this type keep their bits."""
    kind = BY_QTYPE[qtype]
    rows = np.ascontiguousarray(rows)
    if rows.dtype != kind.layout:
        values = _floats(rows)
        data = kind.quantize(values)
        if rounding is not None and kind is MXFP4:
            rounding.add(values, data)
        return data
    data = rows.reshape(-1).view(np.uint8)
    if kind.first_infinite(data) is not None:
        raise ValueError("a value is not finite")
    return data


def _n_row_axes(tensor: PlannedTensor) -> int:
    if tensor.transposed:
        return 1
    n_axes = 2 if tensor.rows != "all" else max(1, len(tensor.shape) - 1)
    return max(1, n_axes - tensor.is_stacked)


def _step(tensor: PlannedTensor, n_bytes: int, n_row_bytes: int) -> int:
    """Count the rows in `n_bytes`: even, for pairs of gate and up; by 16, to end on words."""
    n_rows = n_bytes // n_row_bytes
    if tensor.transposed:
        return max(1, n_rows)
    return n_rows // 16 * 16 or max(2, n_rows // 2 * 2)


def _read_rows(
    reader: FileReader, tensor: SourceTensor, n_axes: int, first: int, n: int
) -> NDArray[Any]:
    n_row_bytes = tensor.n_bytes // prod(tensor.shape[:n_axes])
    data = reader.read(tensor.path, tensor.offset + first * n_row_bytes, n * n_row_bytes)
    return data.view(STORAGE[tensor.dtype]).reshape(n, *tensor.shape[n_axes:])
