"""Long words are cut before openai-harmony's tokenizer takes seconds for them, or panics."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai_harmony import Role

from gptoss_local.chat import Vocabulary
from gptoss_local.chat.parts import Part
from gptoss_local.chat.pieces import split_text

N = 300_000  # characters: 40 s in one piece
WORDS = ["a", " ", "\n", "👋🏽", "a\u0301", "漢", ".", "─", "ACGT", "\r\n", "A", "'s", "é"]


@pytest.mark.parametrize("word", WORDS)
def test_long_words_take_a_moment(vocabulary: Vocabulary, word: str) -> None:
    """Each a thing that a tool prints: dots, lines, an alphabet that knows no spaces."""
    text = "Output: " + word * (N // len(word)) + " end"
    start_s = time.monotonic()
    tokens = vocabulary.encode(text)
    assert time.monotonic() - start_s < 10
    assert vocabulary.encoding.decode(tokens) == text
    rendered = vocabulary.rendered.tokens(
        Part(Role.TOOL, text, "commentary", "assistant", name="f")
    )
    assert vocabulary.encoding.decode(rendered) == (
        f"<|start|>f to=assistant<|channel|>commentary<|message|>{text}<|end|>"
    )


def test_a_million_characters_are_no_panic(vocabulary: Vocabulary) -> None:
    assert len(vocabulary.encode_tagged(" " * 10**6 + "<|end|>")) > 1000


@pytest.mark.parametrize(
    "sentence",
    ['f(x);g[y]="it\'s";', "漢字かな交じり文。", "/usr/share/doc/a.b,c", "word word 123 "],
)
def test_tokens_stay_where_words_end(vocabulary: Vocabulary, sentence: str) -> None:
    text = sentence * 500
    whole = vocabulary.encoding.encode(text, disallowed_special=())
    assert vocabulary.encode(text) == whole
    assert (len(split_text(text)) > 1) == (" " not in sentence)


@given(st.lists(st.tuples(st.sampled_from([*WORDS, "1", "x, y"]), st.integers(1, 1500))))
def test_nothing_is_lost(words: list[tuple[str, int]]) -> None:
    text = "".join(word * n for word, n in words)
    pieces = split_text(text)
    assert "".join(pieces) == text
    assert all(pieces) or pieces == [""]
