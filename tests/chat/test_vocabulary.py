"""There is one vocabulary, and a model with another one is refused."""

from pathlib import Path

import pytest

from gptoss_local.base.errors import ModelLoadError
from gptoss_local.base.formats.o200k import FIRST_SPECIAL, VOCAB_SIZE
from gptoss_local.harmony import Vocabulary
from gptoss_local.models.store import read_tokens


def test_a_model_has_it(nano_gguf: Path, vocabulary: Vocabulary) -> None:
    assert Vocabulary.from_model(read_tokens(nano_gguf)) is vocabulary


def test_token_bytes_agree_with_the_encoding(vocabulary: Vocabulary) -> None:
    text = "Zażółć 漢字 🙂 def f(x):\n\treturn x"
    tokens = vocabulary.encode(text)
    assert b"".join(vocabulary.token_bytes[t] for t in tokens).decode() == text
    assert b"".join(map(vocabulary.bytes_of, tokens)).decode() == text
    special = range(FIRST_SPECIAL, VOCAB_SIZE)
    assert [vocabulary.bytes_of(t).decode() for t in special] == [
        vocabulary.encoding.decode([t]) for t in special
    ]


def test_another_tokenizer_is_refused(nano_gguf: Path) -> None:
    tokens = read_tokens(nano_gguf)
    tokens[5000], tokens[5001] = tokens[5001], tokens[5000]
    for wrong in (tokens, ["▁the", "▁a"], [*tokens[:100], "\ud800"], []):
        with pytest.raises(ModelLoadError, match="tokenizer is not o200k_harmony"):
            Vocabulary.from_model(wrong)
