"""Reads which tensors one safetensors file holds, if the header describes it exactly."""

from math import prod
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from convert.json_file import DOWNLOAD_HINT, MAX_JSON_BYTES, decode_json
from gptoss_local.base.errors import ConvertError

STORAGE: dict[str, np.dtype[Any]] = {
    "BF16": np.dtype("<u2"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "U8": np.dtype("u1"),
}
"""The numpy dtype that holds each (numpy has no bf16). Tensors of others can only be listed."""

FLOAT_DTYPES = ("BF16", "F16", "F32")
"""Convertible dtypes besides MXFP4 blocks; the usual one first."""

_Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]


class Delta(Protocol):
    def rows(self, first: int, n: int) -> NDArray[np.float32]:
        """Compute rows as (n, n_in), with one output each; experts are below each other."""


class SourceTensor(msgspec.Struct, frozen=True):
    """The place of one tensor.

    Attributes:
        dtype: As safetensors spells it: "BF16", "U8", "F32", ...
        offset: First byte, counted from the start of the file at `path`.
        delta: Added to its values as they are read.
    """

    dtype: str
    shape: tuple[int, ...]
    path: Path
    offset: int
    n_bytes: int
    delta: Delta | None = None


class _HeaderEntry(msgspec.Struct, frozen=True):
    dtype: Annotated[str, msgspec.Meta(max_length=16)]
    shape: Annotated[tuple[_Size, ...], msgspec.Meta(max_length=8)]
    data_offsets: tuple[_Size, _Size]


def read_header(path: Path) -> dict[str, SourceTensor]:
    """Read which tensors one safetensors file holds, in the order of its header.

    Source: the safetensors README, "Format"; strict like `SafeTensors::deserialize`.
    """
    n_file = path.stat().st_size
    with path.open("rb") as file:
        n_header = int.from_bytes(file.read(8), "little")
        if n_file < 8 or n_header > n_file - 8:
            raise ConvertError(f"{path} is too short for its own header.", hint=DOWNLOAD_HINT)
        if n_header > MAX_JSON_BYTES:
            raise ConvertError(
                f"{path} has a header of {n_header:,} bytes, more than any gpt-oss needs.",
                hint=DOWNLOAD_HINT,
            )
        header = file.read(n_header)
    try:
        fields = decode_json(header, dict[str, msgspec.Raw])
        fields.pop("__metadata__", None)
        entries = {n: msgspec.json.decode(f, type=_HeaderEntry) for n, f in fields.items()}
    except ValueError as error:
        raise ConvertError(
            f"{path} has no valid safetensors header: {error}.", hint=DOWNLOAD_HINT
        ) from error
    data_start = 8 + n_header
    _check_offsets(path, entries, n_file - data_start)
    return {
        name: SourceTensor(
            dtype=entry.dtype,
            shape=entry.shape,
            path=path,
            offset=data_start + entry.data_offsets[0],
            n_bytes=entry.data_offsets[1] - entry.data_offsets[0],
        )
        for name, entry in entries.items()
    }


def _check_offsets(path: Path, entries: dict[str, _HeaderEntry], n_data: int) -> None:
    """Check that the tensors, in file order, tile the data without gap, overlap or rest."""
    ordered = sorted(entries.items(), key=lambda item: item[1].data_offsets)
    end = 0
    for name, entry in ordered:
        start, next_end = entry.data_offsets
        storage = STORAGE.get(entry.dtype)
        fits = storage is None or prod(entry.shape) * storage.itemsize == next_end - start
        if start != end or next_end < start or not fits:
            raise ConvertError(f"{path} misplaces the tensor {name}.", hint=DOWNLOAD_HINT)
        end = next_end
    if end != n_data:
        raise ConvertError(
            f"{path} holds {n_data} bytes of tensors where its header promises {end}.",
            hint=DOWNLOAD_HINT,
        )
