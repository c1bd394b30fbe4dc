"""Reads checkpoints of either layout: which tensors there are, and their bytes without copying.

Whatever the layout, tensors go by their Hugging Face names here, so nothing after this module knows
that there are two. Files are checked before anything is trusted.
"""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from convert.config import is_original, read_config
from convert.header import STORAGE, SourceTensor, read_header
from convert.json_file import DOWNLOAD_HINT, read_json
from convert.layout import INDEX_NAME, SINGLE_NAME, check_link, find_shard, find_weights
from convert.original import check_dtypes, to_hugging_face
from gptoss_local.errors import ConvertError

__all__ = ["CheckpointReader", "SourceTensor", "read_header"]


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]


class CheckpointReader:
    """The tensors of a checkpoint folder, from one file or many shards, of either layout.

    Args:
        folder: Holds `model.safetensors`, or `model.safetensors.index.json` and its shards; or
            holds such a folder as `original`, and no weights itself.

    Attributes:
        tensors: Every tensor by its Hugging Face name.

    Raises:
        ConvertError: A file is missing, truncated, not safetensors, or at odds with another.
    """

    def __init__(self, folder: Path) -> None:
        folder = find_weights(folder)
        if (folder / SINGLE_NAME).is_file():
            check_link(folder / SINGLE_NAME)
            self.tensors = read_header(folder / SINGLE_NAME)
        elif (folder / INDEX_NAME).is_file():
            self.tensors = _read_sharded(folder)
        else:
            raise ConvertError(
                f"{folder} holds neither {SINGLE_NAME} nor {INDEX_NAME}.",
                hint="Name the folder of a download from Hugging Face, the one with config.json in "
                "it, or its folder original.",
            )
        if is_original(folder):
            check_dtypes(folder, self.tensors)
            self.tensors = to_hugging_face(self.tensors, read_config(folder))

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


def read_index(folder: Path) -> dict[str, set[str]]:
    """Read which tensors each shard must hold, by the shard's file name.

    Raises:
        ConvertError: The index is missing or broken.
    """
    check_link(folder / INDEX_NAME)
    shards: dict[str, set[str]] = {}
    for name, shard in read_json(folder / INDEX_NAME, _Index).weight_map.items():
        shards.setdefault(shard, set()).add(name)
    return shards


def _read_sharded(folder: Path) -> dict[str, SourceTensor]:
    tensors: dict[str, SourceTensor] = {}
    for shard, names in sorted(read_index(folder).items()):
        path = find_shard(folder, shard)
        held = read_header(path)
        # A tensor that the index does not place here may also lie, with other values, elsewhere.
        for name in sorted(names ^ held.keys()):
            says = "does not hold" if name in names else "holds"
            raise ConvertError(
                f"{path} {says} {name}, though {INDEX_NAME} says otherwise.", hint=DOWNLOAD_HINT
            )
        tensors |= held
    return tensors
