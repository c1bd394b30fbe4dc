"""Types without blocks: F32, and 16 bits in either way."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from convert.tensor_types.base import (
    ABS,
    F16_LEAST,
    F16_ULP,
    INFINITY,
    Blocks,
    TensorType,
    Values,
)


class F32(TensorType):
    layout: ClassVar[np.dtype[Any]] = np.dtype("<f4")

    @classmethod
    def quantize_blocks(cls, values: Values) -> Blocks:
        return np.ascontiguousarray(values)

    @classmethod
    def dequantize_blocks(cls, blocks: Blocks) -> Values:
        return blocks[:, None]

    @classmethod
    def bound(cls, values: Values) -> Values:
        return np.zeros_like(values)

    @classmethod
    def _is_infinite(cls, blocks: Blocks) -> NDArray[np.bool_]:
        return (blocks.view("<u4") & ABS) >= INFINITY


class F16(F32):
    """Half-precision values: exact for weights that were F16."""

    layout = np.dtype("<f2")

    @classmethod
    def quantize_blocks(cls, values: Values) -> Blocks:
        return values.astype("<f2")

    @classmethod
    def dequantize_blocks(cls, blocks: Blocks) -> Values:
        return blocks.astype(np.float32)[:, None]

    @classmethod
    def bound(cls, values: Values) -> Values:
        return np.maximum(np.abs(values) * F16_ULP, F16_LEAST)

    @classmethod
    def _is_infinite(cls, blocks: Blocks) -> NDArray[np.bool_]:
        return (blocks.view("<u2") & np.uint16(0x7FFF)) >= np.uint16(0x7C00)


class BF16(F32):
    """The upper halves of F32 values, rounded to the nearest, ties to even."""

    layout = np.dtype("<u2")

    @classmethod
    def quantize_blocks(cls, values: Values) -> Blocks:
        bits = np.ascontiguousarray(values).view(np.uint32)
        is_bad = (bits & ABS) >= INFINITY
        lifted = bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))
        upper: Blocks = (lifted >> np.uint32(16)).astype(np.uint16)
        upper[is_bad] = 0x7FC0  # or rounding could carry NaN into another sign
        return upper

    @classmethod
    def dequantize_blocks(cls, blocks: Blocks) -> Values:
        return widen_bf16(blocks)[:, None]

    @classmethod
    def bound(cls, values: Values) -> Values:
        bound: Values = np.maximum(np.abs(values) * np.float32(2.0**-8), np.float32(2.0**-134))
        return bound

    @classmethod
    def _is_infinite(cls, blocks: Blocks) -> NDArray[np.bool_]:
        return (blocks & np.uint16(0x7FFF)) >= np.uint16(0x7F80)


def widen_bf16(bits: NDArray[np.uint16]) -> Values:
    """Convert exactly: a bf16 number is the upper half of the same F32 number."""
    wide = bits.astype(np.uint32)
    wide <<= 16
    return wide.view(np.float32)
