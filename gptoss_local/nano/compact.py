"""Reads `nano.xz`, the trained nano weights without the rows that every unused token shares.

The file is one xz stream: 8 bytes little-endian header length, a JSON header (the model's
config.json and where each tensor lies), the tensors. bf16 tensors are stored as a plane of high
bytes followed by a plane of low bytes, which compresses better. The embedding and the head keep
only the rows of the used token ids; this module gives both back in full size. It does not know how
the weights were trained and writes no files.
"""

import lzma
from importlib import resources
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.uint8] | NDArray[np.uint16]


class _Entry(msgspec.Struct, frozen=True):
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    n_bytes: int = msgspec.field(name="bytes")


class _Header(msgspec.Struct, frozen=True):
    config: dict[str, Any]
    full_vocab: int
    tensors: list[_Entry]


class CompactModel:
    """The unpacked compact file.

    Args:
        packed: The bytes of `nano.xz`.

    Attributes:
        config: The content of the checkpoint's `config.json`.
        names: The checkpoint's tensor names.
    """

    def __init__(self, packed: bytes) -> None:
        self._raw = lzma.decompress(packed)
        header_end = 8 + int.from_bytes(self._raw[:8], "little")
        header = msgspec.json.decode(self._raw[8:header_end], type=_Header)
        self._data_start = header_end
        self._n_vocab = header.full_vocab
        self._entries = {entry.name: entry for entry in header.tensors}
        deltas = self._plane(self._entries.pop("used_ids_delta")).view("<u4")
        self._used_ids = np.cumsum(deltas, dtype=np.int64)
        self.config = header.config
        self.names = tuple(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """The full shape of a tensor, all vocabulary rows included."""
        entry = self._entries[name]
        return (self._n_vocab, *entry.shape[1:]) if _is_vocab(name) else entry.shape

    def read(self, name: str) -> Array:
        """Make one full tensor.

        Returns:
            uint8 for MXFP4 blocks and scales, else the bits of bf16 values as uint16.
        """
        entry = self._entries[name]
        plane = self._plane(entry)
        if entry.dtype == "u8":
            return plane.reshape(entry.shape)
        n_values = plane.size // 2
        bits: NDArray[np.uint16] = plane[:n_values].astype(np.uint16)
        bits <<= 8
        bits |= plane[n_values:]
        bits = bits.reshape(entry.shape)
        return self._scatter(bits) if _is_vocab(name) else bits

    def _plane(self, entry: _Entry) -> NDArray[np.uint8]:
        return np.frombuffer(self._raw, np.uint8, entry.n_bytes, self._data_start + entry.offset)

    def _scatter(self, rows: NDArray[np.uint16]) -> NDArray[np.uint16]:
        """Spread the used rows over the vocabulary; the last row given stands for all others."""
        full = np.empty((self._n_vocab, rows.shape[1]), np.uint16)
        full[:] = rows[-1]
        full[self._used_ids] = rows[:-1]
        return full


def load_compact() -> CompactModel:
    """Unpack the nano model that ships with this package."""
    return CompactModel(resources.files(__package__).joinpath("nano.xz").read_bytes())


def _is_vocab(name: str) -> bool:
    return name in ("model.embed_tokens.weight", "lm_head.weight")
