"""The packed weights: what goes in through the exporter comes out of the reader, bit for bit."""

import json
import lzma
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from bench.nano.export import (
    FINAL_NORM,
    INT16_MAX,
    SHARPNESS,
    export,
    fixed_point_exponent,
    pack,
    sharpen,
)
from gptoss_local.errors import ModelLoadError
from gptoss_local.harmony import load_vocabulary
from gptoss_local.models.nano import materialize as materialize_module
from gptoss_local.models.nano.codes import N_BITS, N_PIECES, bf16_bits, coded_rows, spelling
from gptoss_local.models.nano.compact import CODED, EMBEDDING, HEAD, CompactModel, vocabulary_codes
from gptoss_local.models.nano.ranks import load_ranks

N_VOCAB, D = 201_088, 32
MAX_BITS = 255  # the longest code for which rows are exact
USED_IDS = [0, 3, 8191, 8192, 70_000, 199_997, 199_999, 200_006, 201_087]
RARE_IDS = [1, 2, 8190, 8193, 16383, 16384, 123_456, 199_996]
UNUSED_SPECIALS = [199_998, 200_000, 201_086]
CONFIG = {"vocab_size": N_VOCAB, "hidden_size": D}

Arrays = dict[str, NDArray[Any]]


@pytest.fixture(scope="module")
def tensors() -> Arrays:
    """A checkpoint as the trainer leaves it; the embedding's codes outweigh its shared row."""
    rng = np.random.default_rng(5)

    def bf16(*shape: int) -> NDArray[np.uint16]:
        return bf16_bits(rng.standard_normal(shape, np.float32))

    made: Arrays = {
        FINAL_NORM: bf16(D),
        "model.layers.0.mlp.experts.down_proj_blocks": rng.integers(0, 256, (2, D, 1, 16), "u1"),
        "model.layers.0.mlp.experts.down_proj_scales": rng.integers(0, 256, (2, D, 1), "u1"),
        "model.layers.0.self_attn.sinks": bf16(3),
        EMBEDDING: bf16(len(USED_IDS), D),
        HEAD: bf16(len(USED_IDS), D),
    }
    for stem, map_scale, shared_scale in (("embed_code", 1.0, 0.01), ("head_code", 1e-3, 5.0)):
        made[f"{stem}_map"] = rng.normal(0, map_scale, (N_BITS, D)).astype(np.float32)
        made[f"{stem}_shared"] = rng.normal(0, shared_scale, D).astype(np.float32)
    return made


@pytest.fixture(scope="module")
def packed(tensors: Arrays, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("trained")
    save_file(tensors, folder / "nano.safetensors")
    (folder / "nano.json").write_text(json.dumps({"config": CONFIG, "used_ids": USED_IDS}))
    return export(folder)


@pytest.fixture(scope="module")
def model(packed: bytes) -> CompactModel:
    return CompactModel(packed)


def python_signs(kind: int, fact: int, n_bits: int) -> list[int]:
    """splitmix64 in Python's own integers."""
    z = (256 * (2**32 * kind + fact) + 1) * 0x9E3779B97F4A7C15 & 2**64 - 1
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & 2**64 - 1
    z = (z ^ z >> 27) * 0x94D049BB133111EB & 2**64 - 1
    z ^= z >> 31
    return [2 * (z >> b & 1) - 1 for b in range(n_bits)]


def python_code(token: int) -> list[int]:
    """The code of a token: its prefix, three pieces, itself."""
    ranks = load_ranks()
    prefix, pieces = spelling(ranks[token], {text: rank for rank, text in enumerate(ranks)})
    facts = [*(piece + 1 for piece in pieces), 0, 0, 0][:3]
    pieces_code = [sign for fact in facts for sign in python_signs(1, fact, 64)]
    return python_signs(0, prefix, 16) + pieces_code + python_signs(2, token, 32)


def python_bf16(value: float) -> int:
    """Round a number that float32 holds exactly to bf16, ties to even."""
    (bits,) = np.array([value], np.float32).view(np.uint32).tolist()
    low, high = bits & 0xFFFF, bits >> 16
    return int(high + (low > 0x8000 or (low == 0x8000 and high % 2 == 1)))


def python_row(tensors: Arrays, stem: str, code: list[int]) -> list[int]:
    """A row that is computed, in exact integers."""
    code_map, shared = tensors[f"{stem}_map"], tensors[f"{stem}_shared"]
    k = fixed_point_exponent(code_map, shared)
    factors = [[round(v * 2.0**k) for v in row] for row in code_map.tolist()]
    sums = [
        round(offset * 2.0**k) + sum(c * f for c, f in zip(code, column, strict=True))
        for offset, *column in zip(shared.tolist(), *factors, strict=True)
    ]
    return [python_bf16(s * 2.0**-k) for s in sums]


def test_codes_are_pinned() -> None:
    """The shipped weights know their tokens by these bits."""
    every = vocabulary_codes()
    assert every.dtype == np.int8
    assert every.shape == (len(load_ranks()), N_BITS)
    for token in RARE_IDS:
        assert every[token].tolist() == python_code(token)
    pinned = "7aed2475f5b61de77d9283f407324c3a60dd58dbc567389c0e3d7853ca8344f6"
    assert sha256(every.tobytes()).hexdigest() == pinned


def test_codes_are_far_apart() -> None:
    """Also those of words that begin alike: " Springfield" and " Springer"."""
    every = vocabulary_codes()
    assert len(np.unique(every, axis=0)) == len(every)
    some = every[::50].astype(np.float32)
    products = some @ some.T - N_BITS * np.eye(len(some), dtype=np.float32)
    assert products.max() < 0.9 * N_BITS


def test_a_piece_has_one_hash_in_every_slot() -> None:
    """What is read as the second piece of a word must be known when it stands alone."""
    ranks = load_ranks()
    springfield, field = (ranks.index(text) for text in (b" Springfield", b"field"))
    codes = vocabulary_codes()
    assert codes[springfield, 80:144].tolist() == codes[field, 16:80].tolist()


def test_words_are_spelled_as_the_tokenizer_encodes_them() -> None:
    ranks, encode = load_ranks(), load_vocabulary().encoding.encode
    rank_of = {text: rank for rank, text in enumerate(ranks)}
    n_split = 0
    for token in ranks[::37]:
        prefix, pieces = spelling(token, rank_of)
        assert b"".join(ranks[p] for p in pieces) == token[bool(prefix) :]
        if (
            prefix
            and token[1:].isascii()
            and len(encoded := encode(token[1:].decode())) <= N_PIECES
        ):
            assert encoded == pieces
            n_split += 1
    assert n_split > 500


@pytest.mark.parametrize(
    ("word", "pieces"),
    [("Ukrainian", "Uk rain ian"), ("safeguard", "safe guard"), ("própria", "pr óp ria")],
)
def test_long_words_are_spelled_in_fewer_tokens(word: str, pieces: str) -> None:
    """The tokenizer's own way takes four, for which a code has no room."""
    ranks, encode = load_ranks(), load_vocabulary().encoding.encode
    rank_of = {text: rank for rank, text in enumerate(ranks)}
    prefix, found = spelling(f" {word}".encode(), rank_of)
    assert (chr(prefix), [ranks[p].decode() for p in found]) == (" ", pieces.split())
    assert len(encode(word)) > N_PIECES


def test_sharpening_scales_the_logits_and_rounds_nothing(tensors: Arrays) -> None:
    """All of them by one factor, so the likeliest token stays it."""
    norm = tensors[FINAL_NORM]
    before, after = (
        (bits.astype(np.uint32) << 16).view(np.float32) for bits in (norm, sharpen(norm))
    )
    np.testing.assert_array_equal(after, SHARPNESS * before, strict=True)


def test_tensors_come_back(tensors: Arrays, model: CompactModel) -> None:
    assert model.config == CONFIG
    assert model.used_ids.tolist() == USED_IDS
    assert set(model.names) == {n for n in tensors if "_code_" not in n}
    for name in model.names:
        full = model.read(name)
        assert full.shape == model.shape(name)
        kept = full[USED_IDS] if name in CODED else full
        expected = sharpen(tensors[name]) if name == FINAL_NORM else tensors[name]
        np.testing.assert_array_equal(kept, expected, strict=True)


@pytest.mark.parametrize("name", CODED)
def test_other_rows_are_computed_exactly(tensors: Arrays, model: CompactModel, name: str) -> None:
    full = model.read(name)
    assert full.shape == (N_VOCAB, D)
    for token in RARE_IDS:
        expected = python_row(tensors, CODED[name], python_code(token))
        assert full[token].tolist() == expected
    shared = python_row(tensors, CODED[name], [0] * N_BITS)
    for token in UNUSED_SPECIALS:
        assert full[token].tolist() == (shared if name == HEAD else [0] * D)


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


@pytest.mark.parametrize("largest", [3.99996, 4.0, 1e-9, 60_000.0, 1 / 3, 32767.0, 32767.6])
def test_fixed_point_uses_all_of_int16(largest: float) -> None:
    k = fixed_point_exponent(np.array([largest / 9, -largest], np.float32))
    exact = float(np.float32(largest))
    assert round(exact * 2.0**k) <= INT16_MAX < round(exact * 2.0 ** (k + 1))


def test_rounding_to_bf16() -> None:
    values = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8 - 2**-20, 0.0], np.float32)
    assert bf16_bits(values).tolist() == [0x3F80, 0x3F80, 0x3F82, 0xBF81, 0]


@pytest.mark.parametrize("header", [{}, {"format": "gpt-oss-nano-compact-1", "tensors": []}])
def test_other_formats_are_refused(header: dict[str, object]) -> None:
    head = json.dumps(header).encode()
    with pytest.raises(ModelLoadError, match=r"format .*, this version reads 'gpt-oss"):
        CompactModel(lzma.compress(len(head).to_bytes(8, "little") + head))


def test_what_does_not_fit_together_is_refused(tensors: Arrays) -> None:
    with pytest.raises(ValueError, match="must ascend"):
        pack(tensors, CONFIG, USED_IDS[::-1])
    with pytest.raises(ValueError, match="not all in the vocabulary"):
        pack(tensors, CONFIG, [*USED_IDS[:-1], N_VOCAB])
    with pytest.raises(ValueError, match=r"embed_tokens.* expected .*8, 32"):
        pack(tensors, CONFIG, USED_IDS[:-1])
    with pytest.raises(ValueError, match="not finite"):
        pack(tensors | {FINAL_NORM: np.array([0x7F80], np.uint16)}, CONFIG, USED_IDS)
    other_codes = np.zeros((N_BITS + 1, D), np.float32)
    with pytest.raises(ValueError, match=r"head_code_map is .* expected"):
        pack(tensors | {"head_code_map": other_codes}, CONFIG, USED_IDS)


def test_checkpoint_reads_back(
    model: CompactModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """safetensors.numpy has no bf16, so the header's type is replaced by one of the same size."""
    monkeypatch.setattr(materialize_module, "load_compact", lambda: model)
    materialize_module.materialize(tmp_path)
    path = tmp_path / "model.safetensors"
    data = path.read_bytes()
    head_end = 8 + int.from_bytes(data[:8], "little")
    head = data[:head_end].replace(b'"BF16"', b'"U16" ')
    path.write_bytes(head + data[head_end:])
    found = load_file(path)
    assert found.keys() == set(model.names)
    for name, values in found.items():
        np.testing.assert_array_equal(values, model.read(name), strict=True)
    assert json.loads((tmp_path / "config.json").read_bytes()) == CONFIG
