"""The bytes of a GGUF's tensors, made from the checkpoint piece by piece.

A tensor is cut into chunks, one task of a worker each, and a chunk into pieces that stay in a
core's cache. Tensors made from the same source, as gate and up are, share what is read. Nothing is
mapped: a file that shrinks while it is read is an error and not the end of the process.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from io import FileIO
from math import prod
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

from convert.dense import check_finite, quantize_q8_0, widen_bf16
from convert.header import STORAGE, SourceTensor
from convert.io_errors import reading
from convert.json_file import DOWNLOAD_HINT
from convert.mxfp4 import quantize_mxfp4, repack_blocks
from convert.tensor_map import PlannedTensor, source_names
from gptoss_local.errors import ConvertError

CHUNK_BYTES = 32 << 20
# PERF: two workers convert from and to memory at 1.1 to 1.5 GB/s with pieces of 0.5 or 1 MB; with
# 4 MB, which with its temporaries leaves the cache, at 0.7 on a busy machine.
PIECE_BYTES = 1 << 20

_ROWS = {"all": slice(None), "even": slice(0, None, 2), "odd": slice(1, None, 2)}


class Chunk(msgspec.Struct, frozen=True):
    """Some rows of a checkpoint tensor, and the tensors of the GGUF made from them.

    A row is what lies under one index of all axes but the last, of the first two where a tensor
    takes every second row, and of the first alone (an expert's matrix) in a transposed source.
    """

    tensors: tuple[PlannedTensor, ...]
    first_row: int
    n_rows: int


def plan_chunks(
    tensors: Sequence[PlannedTensor], sources: Mapping[str, SourceTensor]
) -> Iterator[Chunk]:
    """Cut the work for tensors of one source into chunks.

    Args:
        tensors: All with the same `source` and `scales`.
        sources: Knows these.
    """
    source = sources[tensors[0].source]
    n_rows = prod(source.shape[: _n_row_axes(tensors[0])])
    step = _step(tensors[0], CHUNK_BYTES, source.n_bytes // n_rows)
    for first in range(0, n_rows, step):
        yield Chunk(tuple(tensors), first, min(step, n_rows - first))


def make_pieces(
    chunk: Chunk, sources: Mapping[str, SourceTensor]
) -> Iterator[tuple[PlannedTensor, int, NDArray[np.uint8]]]:
    """Read and convert one chunk.

    Yields:
        A tensor, an offset in its data, and the bytes that belong there. They may be overwritten
        when the next item is asked for.

    Raises:
        ConvertError: The source cannot be read, is too short, or holds what its type cannot.

    Thread:
        Chunks are independent of each other.
    """
    any_tensor = chunk.tensors[0]
    n_axes = _n_row_axes(any_tensor)
    with ExitStack() as files:
        readers = [
            _RowReader(name, sources[name], n_axes, files) for name in source_names(any_tensor)
        ]
        n_all_rows = readers[0].n_rows
        step = _step(any_tensor, PIECE_BYTES, readers[0].n_row_bytes)
        for start in range(0, chunk.n_rows, step):
            first, n = chunk.first_row + start, min(step, chunk.n_rows - start)
            values, *scales = [reader.read(first, n) for reader in readers]
            for tensor in chunk.tensors:
                offset = tensor.n_bytes * first // n_all_rows
                for data in _convert(tensor, values, *scales, path=sources[tensor.source].path):
                    yield tensor, offset, data
                    offset += data.size


def tensor_pieces(
    tensor: PlannedTensor, sources: Mapping[str, SourceTensor]
) -> Iterator[NDArray[np.uint8]]:
    """Make the whole data of one tensor, in order; else as `make_pieces`."""
    for chunk in plan_chunks([tensor], sources):
        for _, _, data in make_pieces(chunk, sources):
            yield data


def word_sum(data: NDArray[np.uint8], offset: int = 0) -> int:
    """Sum data as little-endian 64-bit words, modulo 2^64.

    A tensor's sum is that of its pieces in any order, and any one flipped bit changes it.

    Args:
        data: Flat and contiguous.
        offset: Where it begins in what is summed; a piece may begin or end inside a word.
    """
    n_before = offset % 8
    if n_before or data.size % 8:
        padded = np.zeros(-(-(n_before + data.size) // 8) * 8, np.uint8)
        padded[n_before : n_before + data.size] = data
        data = padded
    return int(data.view("<u8").sum(dtype=np.uint64))


def _convert(
    tensor: PlannedTensor,
    values: NDArray[Any],
    scales: NDArray[np.uint8] | None = None,
    *,
    path: Path,
) -> Iterator[NDArray[np.uint8]]:
    """Convert rows of a source into the bytes of the rows that `tensor` takes of them.

    Shapes:
        values: (n_rows, ...): bits of bf16 as uint16, or MXFP4 blocks as (n_rows, n_blocks, 16)
        scales: (n_rows, n_blocks)
        yields: flat
    """
    rows = _ROWS[tensor.rows]
    try:
        if scales is not None:
            yield repack_blocks(values[rows], scales[rows]).reshape(-1)
        elif tensor.transposed:
            for matrix in values.swapaxes(1, 2):
                yield from (_convert_bf16(slab, tensor.qtype) for slab in _slabs(matrix[rows]))
        else:
            yield _convert_bf16(values[rows], tensor.qtype)
    except ValueError as error:
        raise ConvertError(
            f"{tensor.source} in {path} cannot become {tensor.qtype.name}: {error}.",
            hint="The checkpoint is damaged; download it again.",
        ) from error


def _slabs(matrix: NDArray[np.uint16]) -> Iterator[NDArray[np.uint16]]:
    """Cut a matrix into pieces of whole rows."""
    n_rows = max(1, PIECE_BYTES // matrix[0].nbytes)
    for start in range(0, len(matrix), n_rows):
        yield matrix[start : start + n_rows]


def _convert_bf16(rows: NDArray[np.uint16], qtype: GGMLQuantizationType) -> NDArray[np.uint8]:
    match qtype:
        case GGMLQuantizationType.Q8_0:
            return quantize_q8_0(rows)
        case GGMLQuantizationType.MXFP4:
            return quantize_mxfp4(rows).reshape(-1)
    check_finite(rows)
    kept = np.ascontiguousarray(rows) if qtype == GGMLQuantizationType.BF16 else widen_bf16(rows)
    return kept.reshape(-1).view(np.uint8)


def _n_row_axes(tensor: PlannedTensor) -> int:
    """How many axes of the source count rows, as `Chunk` defines them."""
    if tensor.transposed:
        return 1
    return 2 if tensor.rows != "all" else max(1, len(tensor.shape) - 1)


def _step(tensor: PlannedTensor, n_bytes: int, n_row_bytes: int) -> int:
    """Rows in `n_bytes`: even, as pairs go to gate and up; by 16, so that pieces end on words."""
    n_rows = n_bytes // n_row_bytes
    if tensor.transposed:
        return max(1, n_rows)
    return n_rows // 16 * 16 or max(2, n_rows // 2 * 2)


class _RowReader:
    """Reads rows of one tensor into a buffer that it uses again for the next ones."""

    def __init__(self, name: str, tensor: SourceTensor, n_axes: int, files: ExitStack) -> None:
        self._name, self._tensor = name, tensor
        self.n_rows = prod(tensor.shape[:n_axes])
        self.n_row_bytes = tensor.n_bytes // self.n_rows
        self._row_shape = tensor.shape[n_axes:]
        with reading(tensor.path):
            self._file = files.enter_context(FileIO(tensor.path))
        self._buffer = np.empty(0, np.uint8)

    def read(self, first: int, n: int) -> NDArray[Any]:
        n_bytes = n * self.n_row_bytes
        if self._buffer.size < n_bytes:
            self._buffer = np.empty(n_bytes, np.uint8)
        data = self._buffer[:n_bytes]
        self._fill(data.data, self._tensor.offset + first * self.n_row_bytes)
        return data.view(STORAGE[self._tensor.dtype]).reshape(n, *self._row_shape)

    def _fill(self, view: memoryview, offset: int) -> None:
        path = self._tensor.path
        with reading(path):
            self._file.seek(offset)
            while view:
                n_read = self._file.readinto(view)
                if not n_read:
                    raise ConvertError(
                        f"{path} ended inside {self._name}: it became shorter while it was read.",
                        hint=DOWNLOAD_HINT,
                    )
                view = view[n_read:]
