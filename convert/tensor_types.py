"""The types of ggml that we can write, one class each: F32 values to blocks.

Source: `quantize_row_*_ref` in llama.cpp's ggml-quants.c; all bits equal theirs where those are
defined (`tests/convert/test_tensor_types.py`). PERF: gguf's own are slower.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
from numpy.typing import NDArray

Values = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Blocks = NDArray[Any]
"""One structure per block, as `TensorType.layout` says."""

ABS = np.uint32(0x7FFFFFFF)
"""Clears the sign bit of a float's bits; the rest orders like an integer."""

INFINITY = np.uint32(0x7F800000)
"""The bits of the least number that is not finite."""

F16_ULP, F16_LEAST = 2.0**-11, 2.0**-25
"""A float16 scale is off by up to the first of itself, or the second below its normal range."""


class TensorType(ABC):
    """One of ggml's types; `layout` has the fields of a block, of which floats are scales."""

    name: ClassVar[str]
    qtype: ClassVar[GGMLQuantizationType]
    layout: ClassVar[np.dtype[Any]]
    n_values: ClassVar[int]
    slack: ClassVar[tuple[float, float]]
    """The largest error of a value: a share of its block's largest, and as much besides."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not hasattr(cls, "layout"):  # a base of several types
            return
        cls.qtype = GGMLQuantizationType[cls.__name__]
        cls.name = cls.__name__.lower()
        cls.n_values, n_bytes = GGML_QUANT_SIZES[cls.qtype]
        assert cls.layout.itemsize == n_bytes
        TENSOR_TYPES[cls.name] = cls
        BY_QTYPE[cls.qtype] = cls

    @classmethod
    def quantize(cls, values: Values) -> Bytes:
        """Round whole blocks of values; ValueError for NaN, infinities and overflows."""
        with np.errstate(all="ignore"):
            blocks = cls.quantize_blocks(values.reshape(-1, cls.n_values))
        data = blocks.view(np.uint8).reshape(-1)
        if cls.first_infinite(data) is not None:
            raise ValueError(f"a value is not finite, or too large for {cls.qtype.name}")
        return data

    @classmethod
    def dequantize(cls, data: Bytes) -> Values:
        """Return the values that llama.cpp reads from whole blocks, (n_blocks, n_values)."""
        with np.errstate(all="ignore"):
            values: Values = quants.dequantize(data, cls.qtype).reshape(-1, cls.n_values)
        return values

    @classmethod
    def first_infinite(cls, data: Bytes) -> int | None:
        """Find the first block with a scale, or a value, that is NaN or infinite, by its byte."""
        is_bad = cls._is_infinite(data.view(cls.layout))
        return int(is_bad.argmax()) * cls.layout.itemsize if is_bad.any() else None

    @classmethod
    @abstractmethod
    def quantize_blocks(cls, values: Values) -> Blocks:
        """Round blocks of values; large ones may become infinite."""

    @classmethod
    def bound(cls, values: Values) -> Values:
        """Return how far any sound rounding may move values (n_blocks, n_values): (n_blocks, 1)."""
        share, least = cls.slack
        largest = np.abs(values).max(axis=1, keepdims=True)
        bound: Values = largest * np.float32(share) + np.float32(least)
        return bound

    @classmethod
    def _is_infinite(cls, blocks: Blocks) -> NDArray[np.bool_]:
        is_bad = np.zeros(blocks.shape, np.bool_)
        for name in ("d", "m"):
            if name in (cls.layout.names or ()):
                is_bad |= ~np.isfinite(blocks[name])
        return is_bad


TENSOR_TYPES: dict[str, type[TensorType]] = {}

BY_QTYPE: dict[GGMLQuantizationType, type[TensorType]] = {}


def signed_largest(values: Values) -> Values:
    """Return the first value of largest size of each block; a zero is positive."""
    at = np.abs(values).argmax(axis=1, keepdims=True)
    return np.take_along_axis(values, at, axis=1) + np.float32(0)


def inverse_of(scale: Values) -> Values:
    return np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)


def whole(steps: Values, scale: Values) -> Values:
    """Turn infinities and NaN to zero, as casts do in C where the inverse of a scale overflows."""
    if not np.isfinite(inverse_of(scale)).all():
        np.nan_to_num(steps, copy=False, nan=0, posinf=0, neginf=0)
    return steps


def set_codes(blocks: Blocks, codes: Bytes) -> None:
    """Store 32 codes: the low four bits of two in a byte, fifth bits in `qh`."""
    if "qh" in (blocks.dtype.names or ()):
        blocks["qh"] = np.packbits(codes >> np.uint8(4), axis=1, bitorder="little")
        codes = codes & np.uint8(0x0F)
    blocks["qs"] = codes[:, :16] | codes[:, 16:] << np.uint8(4)


class F32(TensorType):
    layout: ClassVar[np.dtype[Any]] = np.dtype("<f4")
    slack: ClassVar[tuple[float, float]] = (0, 0)

    @classmethod
    def quantize_blocks(cls, values: Values) -> Blocks:
        return np.ascontiguousarray(values)

    @classmethod
    def _is_infinite(cls, blocks: Blocks) -> NDArray[np.bool_]:
        is_bad: NDArray[np.bool_] = ~np.isfinite(blocks)
        return is_bad


class F16(F32):
    layout = np.dtype("<f2")
    slack = (F16_ULP, F16_LEAST)

    @classmethod
    def quantize_blocks(cls, values: Values) -> Blocks:
        return values.astype("<f2")


class BF16(F32):
    """The upper halves of F32 values, rounded to the nearest, ties to even."""

    layout = np.dtype("<u2")
    slack = (2.0**-8, 2.0**-134)

    @classmethod
    def quantize_blocks(cls, values: Values) -> Blocks:
        bits = np.ascontiguousarray(values).view(np.uint32)
        is_bad = (bits & ABS) >= INFINITY
        lifted = bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))
        upper: Blocks = (lifted >> np.uint32(16)).astype(np.uint16)
        upper[is_bad] = 0x7FC0  # or rounding could carry NaN into another sign
        return upper

    @classmethod
    def _is_infinite(cls, blocks: Blocks) -> NDArray[np.bool_]:
        return (blocks & np.uint16(0x7FFF)) >= np.uint16(0x7F80)


def widen_bf16(bits: NDArray[np.uint16]) -> Values:
    """Convert exactly: a bf16 number is the upper half of the same F32 number."""
    wide = bits.astype(np.uint32)
    wide <<= 16
    return wide.view(np.float32)


# Adding just under a half before truncation rounds halves away from zero, as C's roundf does; a
# full half would also lift 0.49999997.
_HALF = np.nextafter(np.float32(0.5), np.float32(0))


class Q8_0(TensorType):
    layout = np.dtype([("d", "<f2"), ("qs", "i1", 32)])
    slack = (1 / 254 + F16_ULP, 127 * F16_LEAST)

    @classmethod
    def quantize_blocks(cls, values: Values) -> Blocks:
        # PERF: the largest is found among integers, which takes half the time.
        sizes = values.view(np.uint32) & ABS
        scale = sizes.max(axis=1).view(np.float32)[:, None] / np.float32(127)
        steps = values * inverse_of(scale)
        steps += np.copysign(_HALF, steps, out=sizes.view(np.float32))
        out = np.empty(len(values), cls.layout)
        out["d"], out["qs"] = scale[:, 0], whole(steps, scale)
        return out


class Q4_0(TensorType):
    """A float16 scale, which takes the value of largest size to -8, and 32 steps from -8 to 7."""

    layout = np.dtype([("d", "<f2"), ("qs", "u1", 16)])
    # The end of the range that has one step less may be a whole step off.
    slack = (1 / 8 + F16_ULP, 8 * F16_LEAST)

    @classmethod
    def quantize_blocks(cls, values: Values) -> Blocks:
        scale = signed_largest(values) / np.float32(-8)
        steps = values * inverse_of(scale)
        steps += np.float32(8.5)
        out = np.empty(len(values), cls.layout)
        out["d"] = scale[:, 0]
        set_codes(out, np.minimum(whole(steps, scale).astype(np.uint8), 15))
        return out


class Q5_1(TensorType):
    """A float16 scale, a float16 least value and 32 steps from 0 to 31; high bits lie apart."""

    layout = np.dtype([("d", "<f2"), ("m", "<f2"), ("qh", "u1", 4), ("qs", "u1", 16)])

    @classmethod
    def quantize_blocks(cls, values: Values) -> Blocks:
        least = values.min(axis=1, keepdims=True)
        if (at := np.flatnonzero(least == 0)).size:  # the first zero's sign counts
            first = (values[at] == 0).argmax(axis=1, keepdims=True)
            least[at] = np.take_along_axis(values[at], first, axis=1)
        span = values.max(axis=1, keepdims=True) - least
        scale = (span + np.float32(0)) / np.float32(31)  # no negative zero
        steps = values - least
        steps *= inverse_of(scale)
        steps += np.float32(0.5)
        out = np.empty(len(values), cls.layout)
        out["d"], out["m"] = scale[:, 0], least[:, 0]
        set_codes(out, np.minimum(whole(steps, scale).astype(np.uint8), 31))
        return out

    @classmethod
    def bound(cls, values: Values) -> Values:
        # One step, and the rounding of the least value and the scale to float16.
        largest = np.abs(values).max(axis=1, keepdims=True)
        span = values.max(axis=1, keepdims=True) - values.min(axis=1, keepdims=True)
        bound: Values = span / 31 + (largest + span) * F16_ULP + 32 * F16_LEAST
        return bound


MAX_SCALE = 252
"""The largest E8M0 scale that is surely finite: 6 * 2^(253-127) is beyond float32. 255 is NaN."""


class MXFP4(TensorType):
    """An E8M0 scale and 32 four-bit floats, as the published experts are."""

    layout = np.dtype([("e", "u1"), ("qs", "u1", 16)])
    slack = (0.25, 2.0**-127)  # the largest lies in 4 to 8 scales, the widest gap is 2

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
    """Turn blocks (..., n, 16) with scales (..., n) into floats (..., n * 32).

    The reference that a converted tensor must equal: `_get_mxfp4_tensor` in OpenAI's weights.py.
    """
    codes = np.stack([blocks & 0x0F, blocks >> 4], axis=-1).reshape(*scales.shape, 32)
    exponents = scales.astype(np.int32) - 127
    values: NDArray[Any] = np.ldexp(MXFP4.CODES[codes], exponents[..., None])
    return values.reshape(*scales.shape[:-1], -1)


DENSE_TYPES: dict[str, type[TensorType]] = {each.name: each for each in (Q8_0, Q5_1, Q4_0, BF16)}
