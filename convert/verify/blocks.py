"""Pieces of tensor data: whether they are finite, and how far from what a checkpoint holds.

Pure functions on arrays: no files, no names.
"""

import msgspec
import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
from numpy.typing import NDArray

from convert import dense, mxfp4
from convert.dense import quantize_q8_0, widen_bf16

_F32, _F16 = GGMLQuantizationType.F32, GGMLQuantizationType.F16
_BF16, _Q8_0 = GGMLQuantizationType.BF16, GGMLQuantizationType.Q8_0

ROUNDED = (_Q8_0, _F16)
"""Types to which programs may round bf16 differently; others hold it as it is, or have one rule."""

# float16 rounds by up to 2^-11 of a number, or 2^-25 below its normal range.
_F16_ULP, _F16_LEAST = np.float32(2.0**-11), np.float32(2.0**-25)
_SLACK = np.float32(1 + 2.0**-20)  # for the float32 arithmetic of the comparison itself


class Difference(msgspec.Struct, frozen=True):
    """How a piece of a tensor differs from what we would write.

    Attributes:
        n_blocks: Quantized blocks, or single values, of other bytes.
        first: Byte in the piece at which the first of them begins.
        n_beyond: Those whose values are farther off than rounding to their type explains.
        worst_error: Largest distance to the checkpoint's value; infinite if one is not finite.
    """

    n_blocks: int = 0
    first: int = 0
    n_beyond: int = 0
    worst_error: float = 0.0

    def merge(self, found: "Difference", offset: int) -> "Difference":
        """Add what was found in a piece that begins at byte `offset`."""
        firsts = [self.first] if self.n_blocks else []
        firsts += [offset + found.first] if found.n_blocks else []
        return Difference(
            self.n_blocks + found.n_blocks,
            min(firsts, default=0),
            self.n_beyond + found.n_beyond,
            max(self.worst_error, found.worst_error),
        )


def first_infinite(data: NDArray[np.uint8], qtype: GGMLQuantizationType) -> int | None:
    """Find the first number, or scale of a block, that is NaN, infinite or makes such a value.

    Returns:
        The byte in `data` at which its block begins; None if all is well, or for another type than
        those that gpt-oss needs.
    """
    match qtype:
        case GGMLQuantizationType.F32:
            is_bad = (data.view("<u4") & np.uint32(0x7FFFFFFF)) >= np.uint32(0x7F800000)
        case GGMLQuantizationType.BF16:
            is_bad = (data.view("<u2") & np.uint16(0x7FFF)) >= np.uint16(0x7F80)
        case GGMLQuantizationType.F16:
            is_bad = ~np.isfinite(data.view("<f2"))
        case GGMLQuantizationType.Q8_0:
            is_bad = ~np.isfinite(data.view(dense.GGML_BLOCK)["scale"])
        case GGMLQuantizationType.MXFP4:
            is_bad = data.view(mxfp4.GGML_BLOCK)["scale"] > mxfp4.MAX_SCALE
        case _:
            return None
    return int(is_bad.argmax()) * GGML_QUANT_SIZES[qtype][1] if is_bad.any() else None


def compare_exact(
    data: NDArray[np.uint8], expected: NDArray[np.uint8], qtype: GGMLQuantizationType
) -> Difference:
    """Compare with the only right bytes."""
    if np.array_equal(data, expected):
        return Difference()
    ours, theirs = _by_block(data, qtype), _by_block(expected, qtype)
    differs = (ours != theirs).any(axis=1)
    n_blocks, first = _count(differs, qtype)
    with np.errstate(invalid="ignore", over="ignore"):
        distance = quants.dequantize(ours[differs], qtype) - quants.dequantize(
            theirs[differs], qtype
        )
    return Difference(n_blocks, first, n_blocks, _worst(distance))


def compare_rounded(
    data: NDArray[np.uint8], bits: NDArray[np.uint16], qtype: GGMLQuantizationType
) -> Difference:
    """Compare with bf16 values that were rounded to Q8_0 or float16.

    The bound comes from the values alone. With d = max|x|/127 of a Q8_0 block, the nearest multiple
    is within d/2, and as d is stored in float16, 127 d may be off by what that rounds.

    Args:
        data: Of the file.
        bits: The same values in bf16.
        qtype: One of `ROUNDED`.

    Raises:
        ValueError: The values do not fit in the type.
    """
    exact = widen_bf16(bits)
    with np.errstate(invalid="ignore", over="ignore"):
        if qtype == _F16:
            expected, exact = exact.astype("<f2").view(np.uint8), exact[:, None]
            distance: NDArray[np.float32] = data.view("<f2").astype(np.float32)[:, None]
        else:
            expected, exact = quantize_q8_0(bits), exact.reshape(-1, 32)
            blocks = data.view(dense.GGML_BLOCK)
            distance = blocks["values"].astype(np.float32)
            distance *= blocks["scale"].astype(np.float32)[:, None]
        distance -= exact
        np.abs(distance, out=distance)
    if np.array_equal(data, expected):
        return Difference(worst_error=_worst(distance))
    largest = np.abs(exact).max(axis=1, keepdims=True)
    bound = np.maximum(largest * _F16_ULP, _F16_LEAST)
    if qtype != _F16:
        bound = largest * (np.float32(1 / 254) + _F16_ULP) + 127 * _F16_LEAST
    differs = (_by_block(data, qtype) != _by_block(expected, qtype)).any(axis=1)
    is_beyond = ~(distance <= bound * _SLACK).all(axis=1)  # NaN is beyond every bound
    return Difference(*_count(differs, qtype), int((differs & is_beyond).sum()), _worst(distance))


def _by_block(data: NDArray[np.uint8], qtype: GGMLQuantizationType) -> NDArray[np.uint8]:
    return data.reshape(-1, GGML_QUANT_SIZES[qtype][1])


def _count(differs: NDArray[np.bool_], qtype: GGMLQuantizationType) -> tuple[int, int]:
    return int(differs.sum()), int(differs.argmax()) * GGML_QUANT_SIZES[qtype][1]


def _worst(distance: NDArray[np.float32]) -> float:
    worst = float(np.abs(distance).max(initial=0))
    return worst if np.isfinite(worst) else float("inf")
