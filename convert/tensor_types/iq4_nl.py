"""IQ4_NL: 16 uneven steps, denser around zero, with the scale that fits a block best."""

import numpy as np
from numpy.typing import NDArray

from convert.tensor_types.base import (
    F16_LEAST,
    Blocks,
    TensorType,
    Values,
    get_codes,
    inverse_of,
    scaled,
    set_codes,
    signed_largest,
)


class IQ4_NL(TensorType):
    """A float16 scale and 32 of 16 uneven steps; the scale is searched for."""

    layout = np.dtype([("d", "<f2"), ("qs", "u1", 16)])

    _STEPS = np.array(
        [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
    )
    # A step by twice the value, rounded down: all middles between steps are multiples of a half.
    _NEAREST = (
        (_STEPS[1:] + _STEPS[:-1])[None, :] <= np.arange(-254, 228, dtype=np.float32)[:, None]
    ).sum(axis=1, dtype=np.uint8)
    _NEAREST_STEP = _STEPS[_NEAREST]
    _TRIES = np.arange(-7, 8, dtype=np.float32)
    _LEAST = np.float32(1e-15)  # GROUP_MAX_EPS: blocks below are zero

    @classmethod
    def quantize_blocks(cls, values: Values) -> Blocks:
        # PERF: one row per place in a block, so that every operation runs over all blocks; sums
        # over places are in the reference's order.
        columns = np.ascontiguousarray(values.T)
        largest = signed_largest(values)[:, 0]
        weights = columns * columns
        least = cls._STEPS[0]
        products, squares = cls._sums(columns, weights, 1 / (-largest / least))
        scale = np.where(squares > 0, products / squares, np.float32(0))
        best = scale * products
        for i in cls._TRIES:
            products, squares = cls._sums(columns, weights, (i + least) / largest)
            is_better = (squares > 0) & (products * products > best * squares)
            found = products / squares
            scale = np.where(is_better, found, scale)
            best = np.where(is_better, found * products, best)
        scale[np.abs(largest) < cls._LEAST] = 0
        scale[~np.isfinite(largest)] = np.nan
        out = np.empty(len(values), cls.layout)
        out["d"] = scale
        set_codes(out, cls._NEAREST.take(cls._places(columns * inverse_of(scale)), mode="clip").T)
        return out

    @classmethod
    def dequantize_blocks(cls, blocks: Blocks) -> Values:
        return scaled(blocks["d"], cls._STEPS[get_codes(blocks)])

    @classmethod
    def bound(cls, values: Values) -> Values:
        # Half of the widest gap is 12 of 113 steps; another scale may add as much.
        largest = np.abs(values).max(axis=1, keepdims=True)
        bound: Values = largest * np.float32(0.2) + 127 * F16_LEAST
        return bound

    @classmethod
    def _places(cls, steps: Values) -> NDArray[np.int32]:
        """Return where in `_NEAREST` the code for each number of steps is."""
        twice = np.floor(steps * 2)
        twice += 254
        return np.clip(twice, -1, 1000, out=twice).astype(np.int32)

    @classmethod
    def _sums(cls, columns: Values, weights: Values, inverse: Values) -> tuple[Values, Values]:
        """Return two sums for each block, which say how well an inverse scale fits it."""
        steps = cls._NEAREST_STEP.take(cls._places(columns * inverse), mode="clip")
        weighted = weights * steps
        products: Values = np.add.reduce(weighted * columns, axis=0)
        weighted *= steps
        squares: Values = np.add.reduce(weighted, axis=0)
        return products, squares
