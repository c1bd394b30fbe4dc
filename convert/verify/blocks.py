"""Pieces of tensor data: whether they are finite, and how far from a checkpoint's."""

import msgspec
import numpy as np
from gguf import GGMLQuantizationType, quants
from numpy.typing import NDArray

from convert.tensor_types import TENSOR_TYPES, TensorType
from gptoss_local.base.formats.ggml_types import GgmlType

_SLACK = np.float32(1 + 2.0**-20)  # for the float32 arithmetic of the comparison itself

# Where in a block of a type that we do not write its float16 scales lie. Source: ggml-common.h.
_SCALES = {
    **dict.fromkeys(("Q4_K", "Q5_K"), (0, 2)),
    **dict.fromkeys(("IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS"), (0,)),
    **dict.fromkeys(("Q1_0", "Q2_0", "Q5_0", "IQ4_NL"), (0,)),
    "Q4_1": (0, 2),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q6_K": (208,),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
}
_IQ1_M_SCALES = 48  # the upper four bits of each of four 16-bit numbers are one float16


class Difference(msgspec.Struct, frozen=True):
    """The differences between a piece of a tensor and our own conversion.

    Attributes:
        n_blocks: Quantized blocks, or single values, of other bytes.
        first: Byte in the piece at which the first of them begins.
        n_beyond: Blocks with values farther off than rounding to their type explains.
        worst_error: Largest distance to the checkpoint's value; infinite if one is not finite.
        error: Sum of the squares of all distances.
        power: Sum of the squares of the checkpoint's values.
    """

    n_blocks: int = 0
    first: int = 0
    n_beyond: int = 0
    worst_error: float = 0.0
    error: float = 0.0
    power: float = 0.0

    def merge(self, found: "Difference", offset: int) -> "Difference":
        firsts = [self.first] if self.n_blocks else []
        firsts += [offset + found.first] if found.n_blocks else []
        return Difference(
            self.n_blocks + found.n_blocks,
            min(firsts, default=0),
            self.n_beyond + found.n_beyond,
            max(self.worst_error, found.worst_error),
            self.error + found.error,
            self.power + found.power,
        )

    @property
    def relative_error(self) -> float:
        if not self.error:
            return 0.0
        return float(np.sqrt(self.error / self.power)) if self.power else float("inf")


def first_infinite(data: NDArray[np.uint8], kind: GgmlType) -> int | None:
    """Return the byte of the first block with a number or scale that is not finite; else None."""
    if (ours := TENSOR_TYPES.get(kind.name.lower())) is not None:
        return ours.first_infinite(data)
    blocks = data.reshape(-1, kind.n_bytes)
    if kind.name == "NVFP4":  # every scale is finite to llama.cpp
        return None
    if kind.name == "IQ1_M":
        words = np.ascontiguousarray(blocks[:, _IQ1_M_SCALES:]).view("<u2") >> np.uint16(12)
        scale = words << np.array([0, 4, 8, 12], np.uint16)
        is_bad = ~np.isfinite(scale.sum(axis=1, dtype=np.uint16).view(np.float16))
    else:
        is_bad = np.zeros(len(blocks), np.bool_)
        for at in _SCALES[kind.name]:
            scale = np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2")
            is_bad |= ~np.isfinite(scale[:, 0])
    return int(is_bad.argmax()) * kind.n_bytes if is_bad.any() else None


def compare_exact(
    data: NDArray[np.uint8], expected: NDArray[np.uint8], kind: type[TensorType]
) -> Difference:
    if np.array_equal(data, expected):
        return Difference()
    differs = _differing(data, expected, kind.layout.itemsize)
    n_blocks, first = _count(differs, kind.layout.itemsize)
    with np.errstate(all="ignore"):
        values = kind.dequantize(expected)
        distance = kind.dequantize(data) - values
        error, power = _squares(distance), _squares(values)
    return Difference(n_blocks, first, n_blocks, _worst(distance), error, power)


def compare_rounded(
    data: NDArray[np.uint8], values: NDArray[np.float32], kind: type[TensorType]
) -> Difference:
    """Compare with a checkpoint's values that were rounded to one of our types."""
    expected, exact = kind.quantize(values), values.reshape(-1, kind.n_values)
    with np.errstate(all="ignore"):
        distance = kind.dequantize(data)
        distance = np.abs(distance - exact)
        error, power = _squares(distance), _squares(exact)
    if np.array_equal(data, expected):
        return Difference(worst_error=_worst(distance), error=error, power=power)
    differs = _differing(data, expected, kind.layout.itemsize)
    with np.errstate(all="ignore"):
        # NaN is beyond every bound.
        is_beyond = ~(distance <= kind.bound(exact) * _SLACK).all(axis=1)
    n_blocks, first = _count(differs, kind.layout.itemsize)
    return Difference(
        n_blocks, first, int((differs & is_beyond).sum()), _worst(distance), error, power
    )


def compare_alike(
    data: NDArray[np.uint8], values: NDArray[np.float32], kind: GgmlType
) -> Difference | None:
    """Compare values rounded by unknown rules; None if the type cannot be read here."""
    try:
        qtype = GGMLQuantizationType[kind.name]
        with np.errstate(all="ignore"):
            read = quants.dequantize(data.reshape(-1, kind.n_bytes), qtype).reshape(-1)
            distance = np.abs(read - values.reshape(-1))
            return Difference(
                worst_error=_worst(distance), error=_squares(distance), power=_squares(values)
            )
    except (KeyError, NotImplementedError):
        return None


def _differing(
    data: NDArray[np.uint8], expected: NDArray[np.uint8], n_block_bytes: int
) -> NDArray[np.bool_]:
    is_other = data.reshape(-1, n_block_bytes) != expected.reshape(-1, n_block_bytes)
    differs: NDArray[np.bool_] = is_other.any(axis=1)
    return differs


def _count(differs: NDArray[np.bool_], n_block_bytes: int) -> tuple[int, int]:
    return int(differs.sum()), int(differs.argmax()) * n_block_bytes


def _worst(distance: NDArray[np.float32]) -> float:
    worst = float(np.abs(distance).max(initial=0))
    return worst if np.isfinite(worst) else float("inf")


def _squares(values: NDArray[np.float32]) -> float:
    flat = values.reshape(-1).astype(np.float64)
    return float(flat @ flat)
