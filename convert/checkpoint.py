"""Reads safetensors checkpoints: which tensors there are, and their bytes without copying.

Files are checked before anything is trusted: a header that does not describe its file exactly is
refused, so a truncated download fails here and not in the middle of a conversion. This module does
not know what any tensor means.
"""

import itertools
from collections.abc import Iterable
from math import prod
from pathlib import Path, PurePath
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gptoss_local.errors import ConvertError

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"
MAX_HEADER_BYTES = 100_000_000  # the safetensors library refuses longer ones, too
DOWNLOAD_HINT = "Download the checkpoint again; this file is incomplete or damaged."

_STORAGE: dict[str, np.dtype[Any]] = {"BF16": np.dtype("<u2"), "U8": np.dtype("u1")}
"""How a dtype is held in numpy, which has no bf16. Tensors of other dtypes can be listed only."""

_Size = Annotated[int, msgspec.Meta(ge=0)]


class SourceTensor(msgspec.Struct, frozen=True):
    """Where one tensor lies.

    Attributes:
        dtype: As safetensors spells it: "BF16", "U8", "F32", ...
        offset: First byte, counted from the start of the file at `path`.
    """

    dtype: str
    shape: tuple[int, ...]
    path: Path
    offset: int
    n_bytes: int


class _HeaderEntry(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[_Size, ...]
    data_offsets: tuple[_Size, _Size]


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]


class CheckpointReader:
    """The tensors of a checkpoint folder, from one file or many shards.

    Args:
        folder: Holds `model.safetensors`, or `model.safetensors.index.json` and its shards.

    Attributes:
        tensors: Every tensor by its name.

    Raises:
        ConvertError: A file is missing, truncated, or not safetensors.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise ConvertError(f"There is no folder {folder}.")
        if (folder / SINGLE_NAME).is_file():
            self.tensors = read_header(folder / SINGLE_NAME)
        elif (folder / INDEX_NAME).is_file():
            self.tensors = _read_sharded(folder)
        else:
            raise ConvertError(
                f"{folder} holds neither {SINGLE_NAME} nor {INDEX_NAME}.",
                hint="Name the folder of a Hugging Face download, the one with config.json in it.",
            )

    def read(self, name: str) -> NDArray[Any]:
        """Map one tensor into memory; the map goes away with the array.

        Returns:
            A read-only array in the tensor's shape: uint8 for U8, the bits as uint16 for BF16.
        """
        tensor = self.tensors[name]
        storage = _STORAGE[tensor.dtype]
        values: NDArray[Any] = np.memmap(
            tensor.path, storage, "r", offset=tensor.offset, shape=tensor.shape
        )
        return values


def read_header(path: Path) -> dict[str, SourceTensor]:
    """Read which tensors one safetensors file holds.

    Raises:
        ConvertError: The header is broken, or the file is not as long as it says.

    Source: the safetensors README, "Format"; strict like `SafeTensors::deserialize`.
    """
    n_file = path.stat().st_size
    with path.open("rb") as file:
        n_header = int.from_bytes(file.read(8), "little")
        if n_file < 8 or n_header > min(n_file - 8, MAX_HEADER_BYTES):
            raise ConvertError(f"{path} is too short for its own header.", hint=DOWNLOAD_HINT)
        header = file.read(n_header)
    try:
        fields = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
        fields.pop("__metadata__", None)
        entries = {n: msgspec.json.decode(f, type=_HeaderEntry) for n, f in fields.items()}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
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
        storage = _STORAGE.get(entry.dtype)
        fits = storage is None or prod(entry.shape) * storage.itemsize == next_end - start
        if start != end or next_end < start or not fits:
            raise ConvertError(f"{path} misplaces the tensor {name}.", hint=DOWNLOAD_HINT)
        end = next_end
    if end != n_data:
        raise ConvertError(
            f"{path} holds {n_data} bytes of tensors where its header promises {end}.",
            hint=DOWNLOAD_HINT,
        )


def read_index(folder: Path) -> dict[str, str]:
    """Read from the index which shard, by its file name, holds each tensor.

    Raises:
        ConvertError: The index is broken, or names a file outside `folder`.
    """
    index_path = folder / INDEX_NAME
    try:
        weight_map = msgspec.json.decode(index_path.read_bytes(), type=_Index).weight_map
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConvertError(
            f"{index_path} is not a safetensors index: {error}.", hint=DOWNLOAD_HINT
        ) from error
    for shard in set(weight_map.values()):
        if PurePath(shard).name != shard:  # an index must not reach outside its folder
            raise ConvertError(f"{index_path} names the shard {shard!r}, which is not a file name.")
    return weight_map


def read_shard(path: Path, names: Iterable[str]) -> dict[str, SourceTensor]:
    """Read the header of one shard.

    Args:
        path: The shard.
        names: The tensors that the index says it holds; others in it are left out.

    Raises:
        ConvertError: The file is missing, truncated, not safetensors, or lacks one of `names`.
    """
    if not path.is_file():
        raise ConvertError(f"The shard {path} is missing.", hint="Finish the download first.")
    held = read_header(path)
    for name in names:
        if name not in held:
            raise ConvertError(
                f"{path} does not hold {name}, though {INDEX_NAME} says so.", hint=DOWNLOAD_HINT
            )
    return {name: held[name] for name in names}


def _read_sharded(folder: Path) -> dict[str, SourceTensor]:
    tensors: dict[str, SourceTensor] = {}
    by_shard = sorted(read_index(folder).items(), key=lambda item: item[1])
    for shard, items in itertools.groupby(by_shard, key=lambda item: item[1]):
        tensors |= read_shard(folder / shard, [name for name, _ in items])
    return tensors
