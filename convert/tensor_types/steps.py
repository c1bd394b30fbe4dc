"""Types with even steps: a scale, for some of them a least value, and whole numbers of steps."""

import numpy as np

from convert.tensor_types.base import (
    ABS,
    F16_LEAST,
    F16_ULP,
    Blocks,
    TensorType,
    Values,
    get_codes,
    inverse_of,
    scaled,
    set_codes,
    signed_largest,
    whole,
)

# Adding just under a half before truncation rounds halves away from zero, as C's roundf does; a
# full half would also lift 0.49999997.
_HALF = np.nextafter(np.float32(0.5), np.float32(0))


class Q8_0(TensorType):
    """A float16 scale and 32 signed bytes."""

    layout = np.dtype([("d", "<f2"), ("qs", "i1", 32)])

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

    @classmethod
    def dequantize_blocks(cls, blocks: Blocks) -> Values:
        return scaled(blocks["d"], blocks["qs"])

    @classmethod
    def bound(cls, values: Values) -> Values:
        largest = np.abs(values).max(axis=1, keepdims=True)
        bound: Values = largest * (np.float32(1 / 254) + F16_ULP) + 127 * F16_LEAST
        return bound


class Q4_0(TensorType):
    """A float16 scale, which takes the value of largest size to -8, and 32 steps from -8 to 7."""

    layout = np.dtype([("d", "<f2"), ("qs", "u1", 16)])

    @classmethod
    def quantize_blocks(cls, values: Values) -> Blocks:
        scale = signed_largest(values) / np.float32(-8)
        steps = values * inverse_of(scale)
        steps += np.float32(8.5)
        out = np.empty(len(values), cls.layout)
        out["d"] = scale[:, 0]
        set_codes(out, np.minimum(whole(steps, scale).astype(np.uint8), 15))
        return out

    @classmethod
    def dequantize_blocks(cls, blocks: Blocks) -> Values:
        return scaled(blocks["d"], get_codes(blocks).view(np.int8) - np.int8(8))

    @classmethod
    def bound(cls, values: Values) -> Values:
        # The end of the range that has one step less may be a whole step off.
        largest = np.abs(values).max(axis=1, keepdims=True)
        bound: Values = largest * (np.float32(1 / 8) + F16_ULP) + 8 * F16_LEAST
        return bound


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
    def dequantize_blocks(cls, blocks: Blocks) -> Values:
        values = scaled(blocks["d"], get_codes(blocks))
        values += blocks["m"].astype(np.float32)[:, None]
        return values

    @classmethod
    def bound(cls, values: Values) -> Values:
        # One step, and the rounding of the least value and the scale to float16.
        largest = np.abs(values).max(axis=1, keepdims=True)
        span = values.max(axis=1, keepdims=True) - values.min(axis=1, keepdims=True)
        bound: Values = span / 31 + (largest + span) * F16_ULP + 32 * F16_LEAST
        return bound
