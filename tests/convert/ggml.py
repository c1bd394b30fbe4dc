"""The installed llama.cpp's ggml: its quantizer, and its table of types."""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

N_TYPES = 43  # GGML_TYPE_COUNT


@cache
def _ggml() -> ctypes.CDLL:
    folder = Path(llama_cpp.__file__).parent / "lib"
    lib = ctypes.CDLL(str(next(folder.glob("*ggml-base*"))))
    lib.ggml_type_name.restype = ctypes.c_char_p
    lib.ggml_blck_size.restype = ctypes.c_int64
    lib.ggml_type_size.restype = ctypes.c_size_t
    lib.ggml_validate_row_data.restype = ctypes.c_bool
    lib.ggml_validate_row_data.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
    lib.ggml_quantize_chunk.restype = ctypes.c_size_t
    chunk = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p]
    lib.ggml_quantize_chunk.argtypes = chunk
    return lib


def quantize(type_id: int, values: NDArray[Any]) -> NDArray[np.uint8]:
    """Quantize rows as llama.cpp does it, without an importance matrix."""
    rows = np.ascontiguousarray(values, np.float32)
    rows = rows.reshape(-1, rows.shape[-1])
    n_blocks = rows.size // _ggml().ggml_blck_size(type_id)
    out = np.empty(n_blocks * _ggml().ggml_type_size(type_id), np.uint8)
    _ggml().ggml_quantize_chunk(type_id, rows.ctypes.data, out.ctypes.data, 0, *rows.shape, None)
    return out


def is_valid(type_id: int, data: NDArray[np.uint8]) -> bool:
    """Whether llama.cpp finds the scales of blocks finite, as with `--check-tensors`."""
    data = np.ascontiguousarray(data)
    return bool(_ggml().ggml_validate_row_data(type_id, data.ctypes.data, data.nbytes))


def types() -> dict[int, tuple[str, int, int]]:
    """Of every type that llama.cpp has, its name, values and bytes of a block."""
    lib = _ggml()
    found = {
        i: (lib.ggml_type_name(i).decode(), lib.ggml_blck_size(i), lib.ggml_type_size(i))
        for i in range(N_TYPES)
        if lib.ggml_type_name(i)
    }
    return {i: each for i, each in found.items() if each[1] and each[2]}
