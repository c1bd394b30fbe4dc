"""Reads `nano.xz`, the trained nano weights without the rows that can be computed (see `codes`).

One xz stream: 8 bytes little-endian header length, a JSON header (config.json and the tensors'
places), the tensors. 16-bit tensors are a plane of high bytes, then one of low bytes.
"""

import functools
import lzma
from importlib import resources
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gptoss_local.errors import ModelLoadError
from gptoss_local.formats.o200k import FIRST_SPECIAL
from gptoss_local.models.nano.codes import coded_rows, token_codes
from gptoss_local.models.nano.ranks import load_ranks

Array = NDArray[np.uint8] | NDArray[np.uint16]

FORMAT = "gpt-oss-nano-compact-2"
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
CODED = {EMBEDDING: "embed_code", HEAD: "head_code"}
"""A vocabulary matrix, and the stem of the tensors `_map` and `_shared` for its other rows."""


class _Entry(msgspec.Struct, frozen=True):
    """The place of a tensor; `dtype` is "u8", "u32", "bf16-planes" or "i16-planes".

    The values of an "i16-planes" tensor are its integers times `2**-exponent`.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    n_bytes: int = msgspec.field(name="bytes")
    exponent: int = 0


class _Format(msgspec.Struct, frozen=True):
    format: str = ""


class _Header(msgspec.Struct, frozen=True):
    config: dict[str, Any]
    full_vocab: int
    tensors: list[_Entry]


class CompactModel:
    """The unpacked compact file; `used_ids` are the tokens with rows of their own, ascending."""

    def __init__(self, packed: bytes) -> None:
        self._raw = lzma.decompress(packed)
        header_end = 8 + int.from_bytes(self._raw[:8], "little")
        header = _decode_header(self._raw[8:header_end])
        self._data_start = header_end
        self._n_vocab = header.full_vocab
        self._entries = {entry.name: entry for entry in header.tensors}
        parts = {f"{stem}_{part}" for stem in CODED.values() for part in ("map", "shared")}
        self.config = header.config
        self.names = tuple(n for n in self._entries if n not in parts | {"used_ids_delta"})
        deltas = self._plane(self._entries["used_ids_delta"]).view("<u4")
        self.used_ids = np.cumsum(deltas, dtype=np.int64)

    def shape(self, name: str) -> tuple[int, ...]:
        entry = self._entries[name]
        return (self._n_vocab, *entry.shape[1:]) if name in CODED else entry.shape

    def read(self, name: str) -> Array:
        """Make one full tensor: uint8 for MXFP4 blocks and scales, else bf16 bits as uint16."""
        entry = self._entries[name]
        if entry.dtype == "u8":
            return self._plane(entry).reshape(entry.shape)
        bits = self._join_planes(entry)
        return self._fill_vocabulary(name, bits) if name in CODED else bits

    def code_part(self, name: str) -> NDArray[np.float32]:
        entry = self._entries[name]
        values = self._join_planes(entry).view(np.int16).astype(np.float32)
        return np.ldexp(values, -entry.exponent)

    def _plane(self, entry: _Entry) -> NDArray[np.uint8]:
        return np.frombuffer(self._raw, np.uint8, entry.n_bytes, self._data_start + entry.offset)

    def _join_planes(self, entry: _Entry) -> NDArray[np.uint16]:
        plane = self._plane(entry)
        n_values = plane.size // 2
        bits: NDArray[np.uint16] = plane[:n_values].astype(np.uint16)
        bits <<= 8
        bits |= plane[n_values:]
        return bits.reshape(entry.shape)

    def _fill_vocabulary(self, name: str, used_rows: NDArray[np.uint16]) -> NDArray[np.uint16]:
        """Make all rows of a vocabulary matrix.

        Unused specials get rows that the model can neither read nor say: zeros in the embedding,
        the shared row without a code in the head.
        """
        code_map, shared = (self._entries[f"{CODED[name]}_{part}"] for part in ("map", "shared"))
        offset = self._join_planes(shared).view(np.int16)
        factors = self._join_planes(code_map).view(np.int16)
        full = np.zeros((self._n_vocab, used_rows.shape[1]), np.uint16)
        n_text, at = min(FIRST_SPECIAL, self._n_vocab), 0
        codes = vocabulary_codes()[:n_text]
        for rows in coded_rows(codes, factors, offset, code_map.exponent):
            full[at : at + len(rows)] = rows
            at += len(rows)
        if name == HEAD:
            full[n_text:] = next(coded_rows(codes[:1], 0 * factors, offset, code_map.exponent))
        full[self.used_ids] = used_rows
        return full


@functools.cache
def vocabulary_codes() -> NDArray[np.int8]:
    return token_codes(load_ranks())


def load_compact() -> CompactModel:
    return CompactModel(resources.files(__package__).joinpath("nano.xz").read_bytes())


def _decode_header(data: bytes) -> _Header:
    found = msgspec.json.decode(data, type=_Format).format
    if found != FORMAT:
        raise ModelLoadError(
            f"The nano weights have the format {found!r}, this version reads {FORMAT!r}.",
            hint="Reinstall gptoss: nano.xz is of another release.",
        )
    return msgspec.json.decode(data, type=_Header)
