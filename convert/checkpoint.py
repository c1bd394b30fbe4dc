"""Reads checkpoints of either layout: which tensors there are, and their bytes without copying.

Whatever the layout, tensors go by their Hugging Face names here, so nothing after this module knows
that there are two. Files are checked before anything is trusted.
"""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from convert.config import is_original, read_config
from convert.header import STORAGE, SourceTensor, read_header
from convert.json_file import DOWNLOAD_HINT, read_json
from convert.layout import (
    INDEX_NAME,
    SINGLE_NAME,
    check_link,
    check_shard_name,
    find_weights,
    unindexed_files,
)
from convert.names import canonical_names
from convert.original import check_dtypes, hugging_face_names, to_hugging_face
from gptoss_local.errors import ConvertError

__all__ = [
    "DOWNLOAD_HINT",
    "INDEX_NAME",
    "SINGLE_NAME",
    "CheckpointReader",
    "SourceTensor",
    "read_header",
    "read_index",
    "read_shard",
]


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]


class CheckpointReader:
    """The tensors of a checkpoint folder, from one file or many shards, of either layout.

    Args:
        folder: Holds `model.safetensors`, or `model.safetensors.index.json` and its shards, or
            shards alone; or holds such a folder as `original`, and no weights itself.

    Attributes:
        tensors: Every tensor by its Hugging Face name.

    Raises:
        ConvertError: A file is missing, truncated, not safetensors, or at odds with another.
    """

    def __init__(self, folder: Path) -> None:
        folder = find_weights(folder)
        if (folder / SINGLE_NAME).is_file():
            self.tensors = read_shard(folder / SINGLE_NAME)
        elif (folder / INDEX_NAME).is_file():
            self.tensors = _read_sharded(folder)
        else:
            files = unindexed_files(folder)
            self.tensors = merge_shards((path, read_shard(path)) for path in files)

    def read(self, name: str) -> NDArray[Any]:
        """Map one tensor into memory; the map goes away with the array.

        Returns:
            A read-only array in the tensor's shape: uint8 for U8, the bits as uint16 for BF16.
        """
        tensor = self.tensors[name]
        storage = STORAGE[tensor.dtype]
        values: NDArray[Any] = np.memmap(
            tensor.path, storage, "r", offset=tensor.offset, shape=tensor.shape
        )
        return values


def read_index(folder: Path) -> dict[str, str]:
    """Read from the index which shard, by its file name, holds each tensor.

    Args:
        folder: With the index in it; of either layout.

    Returns:
        File names by the tensors' Hugging Face names.

    Raises:
        ConvertError: The index is missing or broken, or names a file outside `folder`.
    """
    check_link(folder / INDEX_NAME)
    weight_map = read_json(folder / INDEX_NAME, _Index).weight_map
    for shard in set(weight_map.values()):
        check_shard_name(folder, shard)
    if not is_original(folder):
        names = canonical_names(weight_map, str(folder / INDEX_NAME))
        return {names[name]: shard for name, shard in weight_map.items()}
    renamed: dict[str, str] = {}
    for name, shard in weight_map.items():
        for new_name in hugging_face_names(name):
            if new_name in renamed:
                raise ConvertError(f"{folder / INDEX_NAME} holds {new_name} under two names.")
            renamed[new_name] = shard
    return renamed


def read_shard(path: Path, names: Iterable[str] | None = None) -> dict[str, SourceTensor]:
    """Read the header of one file of a checkpoint.

    Args:
        path: In the folder with config.json, which decides the layout.
        names: The tensors that the index places there, by their Hugging Face names, if there is an
            index.

    Returns:
        The file's tensors by their Hugging Face names.

    Raises:
        ConvertError: The file is missing, truncated, not safetensors, at odds with another, or does
            not hold just `names`.
    """
    if not path.is_file():
        raise ConvertError(f"The shard {path} is missing.", hint="Finish the download first.")
    check_link(path)
    held = read_header(path)
    if is_original(path.parent):
        check_dtypes(path.parent, held)
        held = to_hugging_face(held, read_config(path.parent))
    else:
        new_names = canonical_names(held, str(path))
        held = {new_names[name]: tensor for name, tensor in held.items()}
    # A tensor that the index does not place here may also lie, with other values, elsewhere.
    expected = held.keys() if names is None else set(names)
    for name in sorted(expected ^ held.keys()):
        says = "does not hold" if name in expected else "holds"
        raise ConvertError(
            f"{path} {says} {name}, though {INDEX_NAME} says otherwise.", hint=DOWNLOAD_HINT
        )
    return held


def merge_shards(
    shards: Iterable[tuple[Path, dict[str, SourceTensor]]],
) -> dict[str, SourceTensor]:
    """Put the tensors of files without an index together.

    Raises:
        ConvertError: Two of them hold the same tensor.
    """
    merged: dict[str, SourceTensor] = {}
    for path, tensors in shards:
        if twice := sorted(merged.keys() & tensors.keys()):
            raise ConvertError(
                f"{path} holds {twice[0]}, which is in {merged[twice[0]].path}, too.",
                hint=DOWNLOAD_HINT,
            )
        merged |= tensors
    return merged


def _read_sharded(folder: Path) -> dict[str, SourceTensor]:
    names_in: defaultdict[str, list[str]] = defaultdict(list)
    for name, shard in read_index(folder).items():
        names_in[shard].append(name)
    tensors: dict[str, SourceTensor] = {}
    for shard, names in sorted(names_in.items()):
        tensors |= read_shard(folder / shard, names)
    return tensors
