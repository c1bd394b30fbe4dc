"""The types of ggml that we can write, one class each: F32 values to blocks and back.

Source: `quantize_row_*_ref` and `dequantize_row_*` in llama.cpp's ggml-quants.c; all bits equal
theirs where those are defined (`tests/convert/test_tensor_types.py`).
"""

from convert.tensor_types.base import BY_QTYPE, TENSOR_TYPES, TensorType
from convert.tensor_types.floats import BF16, F16, F32, widen_bf16
from convert.tensor_types.mxfp4 import MXFP4
from convert.tensor_types.steps import Q4_0, Q5_1, Q8_0

DENSE_TYPES: dict[str, type[TensorType]] = {each.name: each for each in (Q8_0, Q5_1, Q4_0, BF16)}

__all__ = [
    "BF16",
    "BY_QTYPE",
    "DENSE_TYPES",
    "F16",
    "F32",
    "MXFP4",
    "Q4_0",
    "Q5_1",
    "Q8_0",
    "TENSOR_TYPES",
    "TensorType",
    "widen_bf16",
]
