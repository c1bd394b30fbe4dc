"""The shipped weights: rows that are computed rather than kept, exactly the same everywhere."""

import json
import lzma
from hashlib import sha256

import numpy as np
import pytest
from numpy.typing import NDArray

from gptoss_local.base.errors import ModelLoadError
from gptoss_local.harmony import load_vocabulary
from gptoss_local.models.nano.compact import (
    CODED,
    HEAD,
    N_BITS,
    N_PIECES,
    CompactModel,
    bf16_bits,
    coded_rows,
    load_compact,
    spelling,
    vocabulary_codes,
)
from gptoss_local.models.nano.ranks import load_ranks

MAX_BITS = 255  # the longest code for which rows are exact
TOKENS = [1, 2, 8190, 8193, 16383, 16384, 123_456, 199_996]


@pytest.fixture(scope="module")
def model() -> CompactModel:
    return load_compact()


@pytest.fixture(scope="module")
def rank_of() -> dict[bytes, int]:
    return {text: rank for rank, text in enumerate(load_ranks())}


def python_signs(kind: int, fact: int, n_bits: int) -> list[int]:
    """splitmix64 in Python's own integers."""
    z = (256 * (2**32 * kind + fact) + 1) * 0x9E3779B97F4A7C15 & 2**64 - 1
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & 2**64 - 1
    z = (z ^ z >> 27) * 0x94D049BB133111EB & 2**64 - 1
    z ^= z >> 31
    return [2 * (z >> b & 1) - 1 for b in range(n_bits)]


def python_code(token: int, rank_of: dict[bytes, int]) -> list[int]:
    """The code of a token: its prefix, three pieces, itself."""
    prefix, pieces = spelling(load_ranks()[token], rank_of)
    facts = [*(piece + 1 for piece in pieces), 0, 0, 0][:3]
    pieces_code = [sign for fact in facts for sign in python_signs(1, fact, 64)]
    return python_signs(0, prefix, 16) + pieces_code + python_signs(2, token, 32)


def python_bf16(value: float) -> int:
    """Round a number that float32 holds exactly to bf16, ties to even."""
    (bits,) = np.array([value], np.float32).view(np.uint32).tolist()
    low, high = bits & 0xFFFF, bits >> 16
    return int(high + (low > 0x8000 or (low == 0x8000 and high % 2 == 1)))


def test_codes_are_pinned(rank_of: dict[bytes, int]) -> None:
    """The shipped weights know their tokens by these bits."""
    every = vocabulary_codes()
    assert every.dtype == np.int8
    assert every.shape == (len(load_ranks()), N_BITS)
    for token in TOKENS:
        assert every[token].tolist() == python_code(token, rank_of)
    pinned = "7aed2475f5b61de77d9283f407324c3a60dd58dbc567389c0e3d7853ca8344f6"
    assert sha256(every.tobytes()).hexdigest() == pinned


def test_codes_are_far_apart() -> None:
    """Also those of words that begin alike: " Springfield" and " Springer"."""
    every = vocabulary_codes()
    assert len(np.unique(every, axis=0)) == len(every)
    some = every[::50].astype(np.float32)
    products = some @ some.T - N_BITS * np.eye(len(some), dtype=np.float32)
    assert products.max() < 0.9 * N_BITS


def test_a_piece_has_one_hash_in_every_slot(rank_of: dict[bytes, int]) -> None:
    """What is read as the second piece of a word must be known when it stands alone."""
    codes, (springfield, field) = vocabulary_codes(), map(rank_of.get, (b" Springfield", b"field"))
    assert codes[springfield, 80:144].tolist() == codes[field, 16:80].tolist()


def test_words_are_spelled_as_the_tokenizer_encodes_them(rank_of: dict[bytes, int]) -> None:
    ranks, encode = load_ranks(), load_vocabulary().encoding.encode
    n_split = 0
    for token in ranks[::37]:
        prefix, pieces = spelling(token, rank_of)
        assert b"".join(ranks[p] for p in pieces) == token[bool(prefix) :]
        if prefix and token[1:].isascii():
            encoded = encode(token[1:].decode())
            assert encoded == pieces or len(encoded) > N_PIECES
            n_split += 1
    assert n_split > 500


@pytest.mark.parametrize(
    ("word", "pieces"),
    [("Ukrainian", "Uk rain ian"), ("safeguard", "safe guard"), ("própria", "pr óp ria")],
)
def test_long_words_are_spelled_in_fewer_tokens(
    word: str, pieces: str, rank_of: dict[bytes, int]
) -> None:
    """The tokenizer's own way takes four, for which a code has no room."""
    ranks, encode = load_ranks(), load_vocabulary().encoding.encode
    prefix, found = spelling(f" {word}".encode(), rank_of)
    assert (chr(prefix), [ranks[p].decode() for p in found]) == (" ", pieces.split())
    assert len(encode(word)) > N_PIECES


@pytest.mark.parametrize("name", CODED)
def test_other_rows_are_sums_of_integers(
    model: CompactModel, name: str, rank_of: dict[bytes, int]
) -> None:
    full, stem = model.read(name), CODED[name]
    assert full.shape == model.shape(name)
    code_map, shared = model.code_part(f"{stem}_map"), model.code_part(f"{stem}_shared")
    used = set(model.used_ids.tolist())
    rare = [token for token in (*TOKENS, 150_001, 180_003) if token not in used]
    assert len(rare) > 4
    for token in rare:
        code = np.array(python_code(token, rank_of), np.float64)
        expected = map(python_bf16, (code @ code_map.astype(np.float64) + shared).tolist())
        assert full[token].tolist() == list(expected)
    idle = next(token for token in range(200_000, 201_088) if token not in used)
    wanted = map(python_bf16, shared.tolist()) if name == HEAD else [0] * full.shape[1]
    assert full[idle].tolist() == list(wanted)


def test_chunks_and_columns_do_not_matter() -> None:
    """Other chunks and shapes make BLAS add in other orders; the largest factors leave no room."""
    rng = np.random.default_rng(6)
    code_map = rng.integers(-32768, 32768, (MAX_BITS, 96)).astype(np.int16)
    code_map[:, 0] = code_map[:, 1] = 32767
    code_map[:, 2] = 0
    shared = rng.integers(-32768, 32768, 96).astype(np.int16)
    shared[:3] = 32767, 32767, 0
    codes = rng.choice(np.array([-1, 1], np.int8), (1000, MAX_BITS))
    codes[:2] = 1  # all factors of one sign: the largest sum

    def rows(chunk: int, part: slice = slice(None)) -> NDArray[np.uint16]:
        made = coded_rows(codes, code_map[:, part], shared[part], 12, chunk_rows=chunk)
        return np.concatenate(list(made))

    whole = rows(1000)
    sums = codes.astype(np.int64) @ code_map.astype(np.int64) + shared
    assert whole.tolist() == [[python_bf16(s / 4096) for s in row] for row in sums.tolist()]
    for chunk in (1, 7, 999, 4096):
        np.testing.assert_array_equal(rows(chunk), whole)
    np.testing.assert_array_equal(rows(64, slice(0, 5)), whole[:, :5])


def test_rounding_to_bf16() -> None:
    values = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8 - 2**-20, 0.0], np.float32)
    assert bf16_bits(values).tolist() == [0x3F80, 0x3F80, 0x3F82, 0xBF81, 0]


@pytest.mark.parametrize("header", [{}, {"format": "gpt-oss-nano-compact-1", "tensors": []}])
def test_other_formats_are_refused(header: dict[str, object]) -> None:
    head = json.dumps(header).encode()
    with pytest.raises(ModelLoadError, match=r"format .*, this version reads 'gpt-oss"):
        CompactModel(lzma.compress(len(head).to_bytes(8, "little") + head))
