"""MXFP4, the type of the published experts."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from convert.tensor_types.base import (
    ABS,
    INFINITY,
    Blocks,
    TensorType,
    Values,
    get_codes,
    set_codes,
)

MAX_SCALE = 252
"""The largest E8M0 scale that is surely finite: 6 * 2^(253-127) is beyond float32. 255 is NaN."""


class MXFP4(TensorType):
    """An E8M0 scale and 32 four-bit floats, as the published experts are."""

    layout = np.dtype([("e", "u1"), ("qs", "u1", 16)])

    E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    CODES = np.concatenate([E2M1, -E2M1])
    """The value of each code; the sign is the highest of the four bits."""

    _MIDDLES = (E2M1[1:] + E2M1[:-1]) / 2

    @classmethod
    def quantize_blocks(cls, values: Values) -> Blocks:
        """Let the largest of a block set its scale, and take the nearest code of each value.

        Blocks below 2^-125 get the smallest scale; the reference's wraps around to a huge one.
        """
        # PERF: compared as integers, which takes half the time.
        bits = np.ascontiguousarray(values).view(np.uint32)
        sizes = bits & ABS
        largest = sizes.max(axis=1)
        # The reference takes the logarithm as a float32, which rounds up just below a power of two.
        exact = np.log2(largest.view(np.float32).astype(np.float64))
        exponent = np.floor(exact.astype(np.float32))
        scales = np.clip(np.nan_to_num(exponent, nan=255, posinf=255, neginf=-255) + 125, 0, 255)
        scales[largest >= INFINITY] = 255
        codes = np.zeros(sizes.shape, np.uint8)
        for middle in cls._MIDDLES:  # the middle itself goes down
            limits = np.ldexp(middle, scales.astype(np.int32) - 127).astype(np.float32)
            codes += sizes > limits.view(np.uint32)[:, None]
        codes |= (bits >> np.uint32(28)).astype(np.uint8) & np.uint8(8) * (codes > 0)
        out = np.empty(len(values), cls.layout)
        out["e"] = scales
        set_codes(out, codes)
        return out

    @classmethod
    def dequantize_blocks(cls, blocks: Blocks) -> Values:
        exponents = blocks["e"].astype(np.int32) - 127
        values: Values = np.ldexp(cls.CODES[get_codes(blocks)], exponents[:, None])
        return values

    @classmethod
    def bound(cls, values: Values) -> Values:
        # The largest lies in 4 to 8 scales, the largest code is 6, and the widest gap is 2.
        largest = np.abs(values).max(axis=1, keepdims=True)
        bound: Values = np.maximum(largest * np.float32(0.25), np.float32(2.0**-127))
        return bound

    @classmethod
    def _is_infinite(cls, blocks: Blocks) -> NDArray[np.bool_]:
        is_bad: NDArray[np.bool_] = blocks["e"] > MAX_SCALE
        return is_bad


GGML_BLOCK = np.dtype([("scale", "u1"), ("values", "V16")])

_LOW = np.uint64(0x0F0F0F0F0F0F0F0F)
_HIGH = np.uint64(0xF0F0F0F0F0F0F0F0)
_FOUR = np.uint64(4)


def repack_blocks(blocks: NDArray[np.uint8], scales: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Put the checkpoint's blocks and scales into ggml's order; all bits are kept.

    In the checkpoint, byte j of a block holds elements 2j (low half) and 2j+1 (high half); in ggml
    it holds elements j and j+16. So of the source bytes a = 0..7 and b = 8..15, byte 2j becomes
    low(a[j]), low(b[j]) and byte 2j+1 becomes high(a[j]), high(b[j]). Scales are E8M0, biased by
    127 in both. Raises ValueError if a scale makes values NaN or infinite.

    Shapes:
        blocks: (..., n_blocks, 16)
        scales: (..., n_blocks)
        returns: (..., n_blocks * 17)

    Source: `block_mxfp4` in ggml-common.h; `transform_nibble_layout` in llama.cpp's converter.
    """
    # PERF: eight bytes at a time as one integer; 1.8 GB/s on one core, bytewise it is 0.27.
    if scales.max(initial=0) > MAX_SCALE:
        raise ValueError(f"it holds the scale {scales.max()}, NaN or too large for a float")
    halves = np.ascontiguousarray(blocks).view(np.uint64)
    a, b = halves[..., 0], halves[..., 1]
    even = (a & _LOW) | ((b & _LOW) << _FOUR)
    odd = ((a & _HIGH) >> _FOUR) | (b & _HIGH)
    pairs = odd.view(np.uint8).astype("<u2")
    pairs <<= 8
    pairs |= even.view(np.uint8)
    out = np.empty(scales.shape, GGML_BLOCK)
    out["scale"] = scales
    out["values"] = pairs.view("V16").reshape(scales.shape)
    return out.view(np.uint8).reshape(*scales.shape[:-1], -1)


def dequantize(blocks: NDArray[np.uint8], scales: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Turn checkpoint blocks (..., n_blocks, 16) into floats (..., n_blocks * 32).

    The reference that a converted tensor must equal. `scales` are (..., n_blocks). Source:
    `_get_mxfp4_tensor` in OpenAI's gpt_oss/torch/weights.py.
    """
    codes = np.stack([blocks & 0x0F, blocks >> 4], axis=-1).reshape(*scales.shape, 32)
    exponents = scales.astype(np.int32) - 127
    values: NDArray[Any] = np.ldexp(MXFP4.CODES[codes], exponents[..., None])
    return values.reshape(*scales.shape[:-1], -1)
