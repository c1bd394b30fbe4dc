"""MXFP4 arrays: from the checkpoint's byte order or from bf16 to ggml's; to floats for checking.

Both sides hold 32 four-bit floats (E2M1) per block and one shared exponent (E8M0), and both use the
same codes; only the places differ. Pure functions on arrays: no files, no names.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

GGML_BLOCK = np.dtype([("scale", "u1"), ("values", "V16")])

MAX_SCALE = 252
"""The largest scale byte whose block is sure to be finite: 6 * 2^(253-127) is no float32 any more.

255 is E8M0's NaN.
"""

_INFINITY = np.uint16(0x7F80)  # of bf16; NaN is above
_LOW = np.uint64(0x0F0F0F0F0F0F0F0F)
_HIGH = np.uint64(0xF0F0F0F0F0F0F0F0)
_FOUR = np.uint64(4)
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
_VALUES = np.concatenate([_E2M1, -_E2M1])  # the sign is the highest of the four bits
_MIDDLES = (_E2M1[1:] + _E2M1[:-1]) / 2


def repack_blocks(blocks: NDArray[np.uint8], scales: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Put blocks into ggml's order; every value and every scale keeps its bits.

    In the checkpoint, byte j of a block holds elements 2j (low half) and 2j+1 (high half); in ggml
    it holds elements j and j+16. So of the source bytes a = 0..7 and b = 8..15, byte 2j becomes
    low(a[j]), low(b[j]) and byte 2j+1 becomes high(a[j]), high(b[j]).

    Args:
        blocks: Two values per byte.
        scales: E8M0 exponents, biased by 127 in both formats.

    Returns:
        Rows of blocks, as ggml stores a tensor of type MXFP4.

    Shapes:
        blocks: (..., n_blocks, 16)
        scales: (..., n_blocks)
        returns: (..., n_blocks * 17)

    Raises:
        ValueError: A scale is NaN or so large that values become infinite.

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


def quantize_mxfp4(bits: NDArray[np.uint16]) -> NDArray[np.uint8]:
    """Quantize bf16 values: the largest of a block sets its scale, every value the nearest code.

    Args:
        bits: bf16 values as uint16, whole blocks.

    Returns:
        Rows of blocks, equal to what `gguf.quants.quantize` gives, but for blocks of values below
        2^-125, where the reference's scale wraps around; theirs is the smallest scale here.

    Shapes:
        bits: (..., n_blocks * 32)
        returns: (..., n_blocks * 17)

    Raises:
        ValueError: A value is NaN or an infinity.

    Source: `quantize_row_mxfp4_ref` in ggml-quants.c.
    """
    # PERF: 420 MB/s of bf16 on one core, compared as integers.
    blocks = np.ascontiguousarray(bits).reshape(-1, 32)
    sizes = blocks & np.uint16(0x7FFF)  # without its sign bit, a bf16 number orders like an integer
    largest = sizes.max(axis=1)
    if largest.max(initial=0) >= _INFINITY:
        raise ValueError("a value is not finite")
    # A bf16 number's exponent has the bias of E8M0; a block's largest value lies in 4..8 scales.
    scales = np.maximum(largest >> np.uint16(7), 2) - np.uint16(2)
    codes = np.zeros(sizes.shape, np.uint8)
    for middle in _MIDDLES:  # few bits wide, so exact in bf16; what is in the middle goes down
        limits = np.ldexp(middle, scales.astype(np.int32) - 127).view(np.uint32) >> 16
        codes += sizes > limits.astype(np.uint16)[:, None]
    codes |= (blocks >> np.uint16(12)).astype(np.uint8) & np.uint8(8) * (codes > 0)
    out = np.empty(scales.shape, GGML_BLOCK)
    out["scale"] = scales
    packed = codes[:, :16] | codes[:, 16:] << np.uint8(4)
    out["values"] = packed.view("V16")[:, 0]
    return out.view(np.uint8).reshape(*bits.shape[:-1], -1)


def dequantize(blocks: NDArray[np.uint8], scales: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Turn checkpoint blocks into floats: the reference that a converted tensor must equal.

    Shapes:
        blocks: (..., n_blocks, 16)
        scales: (..., n_blocks)
        returns: (..., n_blocks * 32)

    Source: `_get_mxfp4_tensor` in OpenAI's gpt_oss/torch/weights.py.
    """
    codes = np.stack([blocks & 0x0F, blocks >> 4], axis=-1).reshape(*scales.shape, 32)
    exponents = scales.astype(np.int32) - 127
    values: NDArray[Any] = np.ldexp(_VALUES[codes], exponents[..., None])
    return values.reshape(*scales.shape[:-1], -1)
