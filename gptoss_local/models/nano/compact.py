"""Reads `nano.xz`, the trained nano weights without the rows that can be computed (see `codes`).

One xz stream: 8 bytes little-endian header length, a JSON header (config.json and the tensors'
places), the tensors. 16-bit tensors are a plane of high bytes, then one of low bytes.
"""

import functools
import lzma
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from convert.tensor_types import BF16
from gptoss_local.base.formats.o200k import FIRST_SPECIAL
from gptoss_local.models.nano.ranks import load_ranks

N_PIECES = 3  # only 569 tokens have more
PREFIX_BITS, PIECE_BITS, TOKEN_BITS = 16, 64, 32
N_BITS = PREFIX_BITS + N_PIECES * PIECE_BITS + TOKEN_BITS

_NO_RANK = 1 << 30  # above every rank
_MAX_BITS = 255  # up to here `coded_rows` is exact
_MAX_EXPONENT = 96  # keeps every value, the smallest too, a normal float32
_CHUNK_ROWS = 4096  # 4 MB of float32 at 256 columns: stays in the cache


def token_codes(tokens: Sequence[bytes]) -> NDArray[np.int8]:
    """Compute codes, (n_tokens, N_BITS) of +1 or -1, of all tokens' bytes in rank order."""
    rank_of = {token: rank for rank, token in enumerate(tokens)}
    prefixes = np.zeros(len(tokens), np.int64)
    pieces = np.zeros((len(tokens), N_PIECES), np.int64)  # id + 1, or 0 without one
    for rank, token in enumerate(tokens):
        prefixes[rank], found = spelling(token, rank_of)
        pieces[rank, : len(found)] = [piece + 1 for piece in found[:N_PIECES]]
    slots = [
        _signs(0, prefixes, PREFIX_BITS),
        *(_signs(1, pieces[:, i], PIECE_BITS) for i in range(N_PIECES)),
        _signs(2, np.arange(len(tokens)), TOKEN_BITS),
    ]
    return np.concatenate(slots, axis=1)


def spelling(token: bytes, rank_of: Mapping[bytes, int]) -> tuple[int, list[int]]:
    """Split a token into the ASCII code of the mark before its word, or 0, and the word.

    The word is encoded as it is alone, or in as few tokens as possible if a code has no room.
    """
    first, rest = token[:1], token[1:]
    is_prefix = first.isascii() and not first.isalnum() and first not in b"\r\n"
    if is_prefix and rest and (rest[:1].isalpha() or rest[0] >= 128 or first == b" " != rest[:1]):
        pieces = encode_word(rest, rank_of)
        return first[0], pieces if len(pieces) <= N_PIECES else _fewest_pieces(rest, rank_of)
    return 0, [rank_of[token]]


def encode_word(word: bytes, rank_of: Mapping[bytes, int]) -> list[int]:
    """Encode a word of the pre-tokenizer: merge the neighbours of lowest rank, repeatedly.

    Source: tiktoken, `src/lib.rs`, `_byte_pair_merge`.
    """
    if word in rank_of:
        return [rank_of[word]]
    parts = [word[i : i + 1] for i in range(len(word))]
    ranks = [rank_of.get(left + right, _NO_RANK) for left, right in pairwise(parts)]
    while ranks and (lowest := min(ranks)) != _NO_RANK:
        i = ranks.index(lowest)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
        del ranks[i]
        if i < len(ranks):
            ranks[i] = rank_of.get(parts[i] + parts[i + 1], _NO_RANK)
        if i > 0:
            ranks[i - 1] = rank_of.get(parts[i - 1] + parts[i], _NO_RANK)
    return [rank_of[part] for part in parts]


def _fewest_pieces(word: bytes, rank_of: Mapping[bytes, int]) -> list[int]:
    ways: list[tuple[int, int, list[int]]] = [(0, 0, [])]  # to each end: length, highest rank
    for end in range(1, len(word) + 1):
        cuts = ((ways[start], rank_of.get(word[start:end])) for start in range(end))
        ways.append(
            min(
                (n + 1, max(highest, rank), [*ranks, rank])
                for (n, highest, ranks), rank in cuts
                if rank is not None
            )
        )
    return ways[-1][2]


def _signs(kind: int, facts: NDArray[np.int64], n_bits: int) -> NDArray[np.int8]:
    """Hash facts, (n,) below 2**32, to signs, (n, n_bits) of +1 or -1.

    Bit `b` of fact `f` is bit `b % 64`, lowest first, of output number `256 * (2**32 * kind + f) +
    b // 64` of splitmix64 with seed 0; set means +1.

    Source: S. Vigna's splitmix64.c (public domain).
    """
    n_words = -(-n_bits // 64)
    words = np.arange(n_words, dtype=np.uint64)
    number = (facts.astype(np.uint64)[:, None] << np.uint64(8)) + words
    number += np.uint64(kind << 40)
    z = (number + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)  # wraps, as all products here do
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    octets = z.astype("<u8", copy=False).view(np.uint8)
    bits = np.unpackbits(octets, axis=1, count=n_bits, bitorder="little").view(np.int8)
    bits *= 2
    bits -= 1
    return bits


def coded_rows(
    codes: NDArray[np.int8],
    code_map: NDArray[np.int16],
    shared: NDArray[np.int16],
    exponent: int,
    *,
    chunk_rows: int = _CHUNK_ROWS,
) -> Iterator[NDArray[np.uint16]]:
    """Make the rows of tokens from their codes, `chunk_rows` at a time, as bits of bf16 values.

    The rows have the same bits on every machine although BLAS adds in an order of its own: the
    factors are integers, and no partial sum exceeds (255 + 1) * 2**15 = 2**23, up to which float32
    holds every integer. So no step rounds but the last one, to bf16.

    Shapes:
        codes: (n_rows, n_bits), +1 or -1
        code_map: (n_bits, n_columns), times 2**-exponent, for +1 in each bit
        shared: (n_columns,), times 2**-exponent, of all rows
    """
    assert code_map.dtype == shared.dtype == np.int16
    assert 0 < len(code_map) <= _MAX_BITS
    assert abs(exponent) <= _MAX_EXPONENT
    scale = np.float32(2.0**-exponent)  # a power of two: scaling rounds nothing either
    factors, offset = code_map.astype(np.float32), shared.astype(np.float32)
    for start in range(0, len(codes), chunk_rows):
        rows = codes[start : start + chunk_rows].astype(np.float32) @ factors
        rows += offset  # also makes a -0, which depends on the order too, +0
        rows *= scale
        yield BF16.quantize_blocks(rows)


Array = NDArray[np.uint8] | NDArray[np.uint16]

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
CODED = {EMBEDDING: "embed_code", HEAD: "head_code"}
"""A vocabulary matrix, and the stem of the tensors `_map` and `_shared` for its other rows."""


class _Entry(msgspec.Struct, frozen=True):
    """A tensor of "u8", "u32", "bf16-planes", or "i16-planes", which are times 2**-exponent."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    n_bytes: int = msgspec.field(name="bytes")
    exponent: int = 0


class _Header(msgspec.Struct, frozen=True):
    config: dict[str, Any]
    full_vocab: int
    tensors: list[_Entry]


class CompactModel:
    """The unpacked compact file; `used_ids` are the tokens with rows of their own, ascending."""

    def __init__(self, packed: bytes) -> None:
        self._raw = lzma.decompress(packed)
        header_end = 8 + int.from_bytes(self._raw[:8], "little")
        header = msgspec.json.decode(self._raw[8:header_end], type=_Header)
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
        """Make all rows; the model can neither read nor say unused specials."""
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
