"""Reads the values of a checkpoint's tensors."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convert.checkpoint import read_tensors
from convert.header import STORAGE


class CheckpointReader:
    def __init__(self, folder: Path) -> None:
        self.tensors = read_tensors(folder)

    def read(self, name: str) -> NDArray[Any]:
        """Map one tensor into memory: uint8 for U8, the bits as uint16 for BF16."""
        tensor = self.tensors[name]
        values: NDArray[Any] = np.memmap(
            tensor.path, STORAGE[tensor.dtype], "r", offset=tensor.offset, shape=tensor.shape
        )
        return values
