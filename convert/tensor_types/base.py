"""Registers the tensor types, and scales and packs blocks of 32 values for all of them."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray

Values = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Blocks = NDArray[Any]
"""One structure per block, as `TensorType.layout` says."""

ABS = np.uint32(0x7FFFFFFF)
"""Clears the sign bit of a float's bits; the rest orders like an integer."""

INFINITY = np.uint32(0x7F800000)
"""The bits of the least number that is not finite."""

F16_ULP, F16_LEAST = np.float32(2.0**-11), np.float32(2.0**-25)
"""A float16 scale is off by up to the first of itself, or the second below its normal range."""


class TensorType(ABC):
    """One of ggml's types; `layout` has the fields of a block, of which floats are scales."""

    name: ClassVar[str]
    qtype: ClassVar[GGMLQuantizationType]
    layout: ClassVar[np.dtype[Any]]
    n_values: ClassVar[int]

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
            return cls.dequantize_blocks(data.view(cls.layout))

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
    @abstractmethod
    def dequantize_blocks(cls, blocks: Blocks) -> Values: ...

    @classmethod
    @abstractmethod
    def bound(cls, values: Values) -> Values:
        """Return how far any sound rounding may move values, (n_blocks, n_values).

        The result has that shape, or (n_blocks, 1).
        """

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


def scaled(scale: NDArray[np.float16], steps: NDArray[Any]) -> Values:
    values = steps.astype(np.float32)
    values *= scale.astype(np.float32)[:, None]
    return values


def set_codes(blocks: Blocks, codes: Bytes) -> None:
    """Store 32 codes: the low four bits of two in a byte, fifth bits in `qh`."""
    if "qh" in (blocks.dtype.names or ()):
        blocks["qh"] = np.packbits(codes >> np.uint8(4), axis=1, bitorder="little")
        codes = codes & np.uint8(0x0F)
    blocks["qs"] = codes[:, :16] | codes[:, 16:] << np.uint8(4)


def get_codes(blocks: Blocks) -> Bytes:
    packed = blocks["qs"]
    codes = np.concatenate([packed & np.uint8(0x0F), packed >> np.uint8(4)], axis=1)
    if "qh" in (blocks.dtype.names or ()):
        codes |= np.unpackbits(blocks["qh"], axis=1, bitorder="little") << np.uint8(4)
    return codes
