"""A small GGUF reader: gguf's own takes 14 s for a vocabulary of this size, this one half a second.

Source: docs/gguf.md in llama.cpp. test_golden.py checks it against gguf's reader.
"""

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType, quants
from numpy.typing import NDArray

FORMATS = {
    GGUFValueType.UINT8: "<B",
    GGUFValueType.INT8: "<b",
    GGUFValueType.UINT16: "<H",
    GGUFValueType.INT16: "<h",
    GGUFValueType.UINT32: "<I",
    GGUFValueType.INT32: "<i",
    GGUFValueType.FLOAT32: "<f",
    GGUFValueType.BOOL: "<?",
    GGUFValueType.UINT64: "<Q",
    GGUFValueType.INT64: "<q",
    GGUFValueType.FLOAT64: "<d",
}


@dataclass
class Tensor:
    """`shape` counts elements, slowest axis first; `data` is flat bytes."""

    qtype: GGMLQuantizationType
    shape: tuple[int, ...]
    data: NDArray[np.uint8]

    def values(self) -> NDArray[np.float32]:
        """The numbers that llama.cpp sees."""
        block, n_block_bytes = GGML_QUANT_SIZES[self.qtype]
        rows = self.data.reshape(-1, self.shape[-1] // block * n_block_bytes)
        values: NDArray[np.float32] = quants.dequantize(rows, self.qtype)
        return values.reshape(self.shape)


@dataclass
class GgufFile:
    """`keys` in file order, each with the name of its type ("ARRAY/STRING" for arrays)."""

    keys: dict[str, tuple[str, Any]]
    tensors: dict[str, Tensor]


class _Cursor:
    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0

    def number(self, fmt: str) -> Any:
        (value,) = struct.unpack_from(fmt, self.data, self.at)
        self.at += struct.calcsize(fmt)
        return value

    def string(self) -> str:
        n_bytes = self.number("<Q")
        self.at += n_bytes
        return self.data[self.at - n_bytes : self.at].decode()

    def value(self, kind: GGUFValueType) -> tuple[str, Any]:
        if kind == GGUFValueType.STRING:
            return kind.name, self.string()
        if kind != GGUFValueType.ARRAY:
            return kind.name, self.number(FORMATS[kind])
        item = GGUFValueType(self.number("<I"))
        n_items = self.number("<Q")
        if item == GGUFValueType.STRING:
            return "ARRAY/STRING", [self.string() for _ in range(n_items)]
        dtype = np.dtype(FORMATS[item])
        values = np.frombuffer(self.data, dtype, n_items, self.at).tolist()
        self.at += n_items * dtype.itemsize
        return f"ARRAY/{item.name}", values


def read_gguf(path: Path) -> GgufFile:
    with path.open("rb") as file:
        cursor = _Cursor(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    assert cursor.number("<4s") == b"GGUF"
    assert cursor.number("<I") == 3
    n_tensors, n_keys = cursor.number("<Q"), cursor.number("<Q")
    keys = {}
    for _ in range(n_keys):
        key = cursor.string()
        keys[key] = cursor.value(GGUFValueType(cursor.number("<I")))
    infos = []
    for _ in range(n_tensors):
        name, n_dims = cursor.string(), cursor.number("<I")
        shape = tuple(cursor.number("<Q") for _ in range(n_dims))[::-1]
        infos.append((name, shape, GGMLQuantizationType(cursor.number("<I")), cursor.number("<Q")))
    data_start = -(-cursor.at // 32) * 32
    tensors = {}
    for name, shape, qtype, offset in infos:
        block, n_block_bytes = GGML_QUANT_SIZES[qtype]
        n_bytes = prod(shape) // block * n_block_bytes
        data = np.frombuffer(cursor.data, np.uint8, n_bytes, data_start + offset)
        tensors[name] = Tensor(qtype, shape, data)
    return GgufFile(keys, tensors)
