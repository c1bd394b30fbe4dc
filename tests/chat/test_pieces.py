"""Texts are cut where words end; words that take seconds elsewhere, or a panic, take a moment."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai_harmony import HarmonyEncoding

from gptoss_local.harmony import Vocabulary, pieces
from gptoss_local.harmony.budget import TokenBudget
from gptoss_local.harmony.parts import Part
from gptoss_local.harmony.vocabulary import split_text

N = 300_000  # characters: openai-harmony takes 40 s
WORDS = ["a", " ", "\n", "👋🏽", "a\u0301", "漢", ".", "─", "ACGT", "\r\n", "A", "'s", "é"]


@pytest.mark.timing
@pytest.mark.parametrize("word", WORDS)
def test_long_words_take_a_moment(vocabulary: Vocabulary, word: str) -> None:
    """Each a thing that a tool prints: dots, lines, an alphabet that knows no spaces."""
    text = "Output: " + word * (N // len(word)) + " end"
    start_s = time.monotonic()
    tokens = vocabulary.encode(text)
    assert time.monotonic() - start_s < 10
    assert vocabulary.encoding.decode(tokens) == text
    rendered = vocabulary.rendered.tokens(
        Part("tool", text, "commentary", "assistant", name="f"), TokenBudget()
    )
    assert vocabulary.encoding.decode(rendered) == (
        f"<|start|>f to=assistant<|channel|>commentary<|message|>{text}<|end|>"
    )


@given(st.lists(st.tuples(st.sampled_from([*WORDS, "1", "x, y"]), st.integers(1, 50_000))))
def test_nothing_is_lost(words: list[tuple[str, int]]) -> None:
    text = "".join(word * n for word, n in words)
    found = list(split_text(text))
    assert "".join(found) == text
    assert all(found) or found == [""]


UNITS = [
    *("word", "Zürich", "don't", "it's", "HTTPServer", "a1b2", "3.14", "12345", "x²", "½"),
    *("漢字かな", "。", "Привет", "नमस्ते", "e\u0301té", "👋🏽", "ﬁ", "ǅ", "def f(x):", "return"),
    *("->", "...", "'", "’s", "/", "//", "\n", "\r\n", "\n\n    ", "\t", " ", "  ", "\u00a0"),
    *("\u3000", "\x1c", "<|end|>", "_", "-", '"', "$5"),
]


@given(st.lists(st.sampled_from(UNITS), max_size=60), st.integers(5, 50))
def test_short_pieces_have_the_tokens_of_the_whole(
    vocabulary: Vocabulary, harmony_encoding: HarmonyEncoding, units: list[str], piece: int
) -> None:
    """A space is a border wherever it comes, so each of these has one before it is too long."""
    text = "".join(unit + " x" * (i % 3 == 0) for i, unit in enumerate(units))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "_MAX_PIECE", 50 + piece)
        assert "".join(split_text(text)) == text
        tokens = vocabulary.encode(text)
    assert tokens == harmony_encoding.encode(text, disallowed_special=())


@given(st.text(alphabet="aZ漢1 .,'\n\u0301é²", max_size=400))
def test_any_text_has_the_tokens_of_the_whole_where_a_piece_ends_at_a_border(
    vocabulary: Vocabulary, text: str
) -> None:
    for border in pieces._BORDER.finditer(text):
        parts = text[: border.start()], text[border.start() :]
        tokens = [token for part in parts for token in vocabulary.encode(part)]
        assert tokens == vocabulary.encoding.encode(text, disallowed_special=()), parts
