"""The packed vocabulary and the tokenizer files made of it."""

import random
import string
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from openai_harmony import HarmonyEncoding
from tokenizers import Tokenizer

from gptoss_local.base.formats.o200k import (
    FIRST_SPECIAL,
    SPECIAL_TOKENS,
    derive_merges,
    has_its_ranks,
    parse_ranks,
)
from gptoss_local.models.nano.materialize import tokenizer_json
from gptoss_local.models.nano.ranks import load_ranks
from tests.convert.llama_cpu import load_model, tokenize
from tests.nano.tiktoken_file import render_tiktoken

RANKS_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""Hash of `o200k_base.tiktoken`. Source: openai-harmony, `tiktoken_ext/public_encodings.rs`."""
CODE = """
def quicksort(xs: list[int]) -> list[int]:
\tif len(xs) <= 1:  # trivial
        return xs\r\n
    pivot, *rest = xs; return [x for x in rest if x<pivot] + [pivot]
int main(void) { std::cout << "I'll\\n"; return a->b ? 0xFF : ~c; }   // we've   DON'T
SELECT * FROM t WHERE x >= 1e-05 AND name LIKE '%ß%';
"""


@pytest.fixture(scope="module")
def tokens() -> list[bytes]:
    return load_ranks()


@pytest.fixture(scope="module")
def tokenizer(tokens: list[bytes]) -> Tokenizer:
    return Tokenizer.from_str(msgspec.json.encode(tokenizer_json(tokens)).decode())


@pytest.fixture(scope="module")
def texts() -> dict[str, list[str]]:
    """Return 150 strings of each kind; the same in every run."""
    rng = random.Random(20250805)
    emoji = [chr(c) for c in (*range(0x1F300, 0x1F650), 0x200D, 0xFE0F, 0x1F3FD)]
    alphabets: dict[str, list[str]] = {
        "ascii": list(string.printable),
        "digits": list(string.digits + " .,-"),
        "cjk": [chr(c) for c in range(0x4E00, 0x9FFF)],
        "emoji": emoji,
        "any": [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000],
        "cased": [chr(c) for c in range(0x20, 0x590)],  # Latin, Greek, Cyrillic, Armenian, marks
        "spaces": [*" \n\r\t/'", "'s", "'LL", "x", "1"],
    }
    texts = {
        kind: ["".join(rng.choices(alphabet, k=rng.randrange(1, 80))) for _ in range(150)]
        for kind, alphabet in alphabets.items()
    }
    starts = [rng.randrange(len(CODE)) for _ in range(150)]
    texts["code"] = [CODE[start : start + rng.randrange(1, 200)] for start in starts]
    return texts


@pytest.fixture(scope="module")
def expected(
    harmony_encoding: HarmonyEncoding, texts: dict[str, list[str]]
) -> dict[str, list[list[int]]]:
    """The texts' token ids by openai-harmony."""
    return {kind: [harmony_encoding.encode(text) for text in texts[kind]] for kind in texts}


def test_ranks_are_the_published_ones(tokens: list[bytes]) -> None:
    assert len(tokens) == FIRST_SPECIAL
    published = render_tiktoken(tokens)
    assert sha256(published).hexdigest() == RANKS_SHA256
    assert has_its_ranks(parse_ranks(published))


def test_merges_of_a_small_vocabulary() -> None:
    vocab = {token: rank for rank, token in enumerate(["a", "b", "c", "bc", "ab", "abc"])}
    assert derive_merges(vocab) == [("b", "c"), ("a", "b"), ("a", "bc"), ("ab", "c")]


def test_tokenizers_agrees_with_harmony(
    tokenizer: Tokenizer, texts: dict[str, list[str]], expected: dict[str, list[list[int]]]
) -> None:
    for kind, strings in texts.items():
        found = tokenizer.encode_batch(strings, add_special_tokens=False)
        for text, encoded, ids in zip(strings, found, expected[kind], strict=True):
            assert encoded.ids == ids, repr(text)


def test_special_tokens_agree_with_harmony(
    tokenizer: Tokenizer, harmony_encoding: HarmonyEncoding
) -> None:
    assert harmony_encoding.special_tokens_set >= set(SPECIAL_TOKENS.values())
    for token_id, text in SPECIAL_TOKENS.items():
        assert tokenizer.encode(text).ids == [token_id]
        assert harmony_encoding.encode(text, allowed_special="all") == [token_id]


def test_llama_cpp_agrees_with_harmony(
    nano_gguf: Path, texts: dict[str, list[str]], expected: dict[str, list[list[int]]]
) -> None:
    """The GGUF's tokens, merges and pre-tokenizer, as llama.cpp understands them.

    Not for "cased": llama.cpp takes every non-ASCII letter for upper and lower case alike, so it
    cuts "FRANÇAIS" behind the C with cedilla. We send it tokens, not text.
    """
    with load_model(nano_gguf, vocab_only=True) as model:
        for kind in texts.keys() - {"cased"}:
            for text, ids in zip(texts[kind], expected[kind], strict=True):
                assert tokenize(model, text) == ids, repr(text)
