"""The vocabulary comes from the model and only the right one is accepted."""

import os
from hashlib import sha256
from pathlib import Path

import pytest

from gptoss_local.errors import ModelLoadError
from gptoss_local.harmony import Vocabulary
from gptoss_local.models.store import read_tokens

O200K_BASE_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"


def test_file_equals_the_published_one(nano_gguf: Path, tmp_path: Path) -> None:
    Vocabulary.from_model(read_tokens(nano_gguf), tmp_path)
    (path,) = tmp_path.glob("*/o200k_base.tiktoken")
    assert sha256(path.read_bytes()).hexdigest() == O200K_BASE_SHA256


def test_token_bytes_agree_with_the_encoding(vocabulary: Vocabulary) -> None:
    text = "Zażółć 漢字 🙂 def f(x):\n\treturn x"
    tokens = vocabulary.encoding.encode(text)
    assert b"".join(vocabulary.token_bytes[t] for t in tokens).decode() == text


def test_another_tokenizer_is_refused(nano_gguf: Path, tmp_path: Path) -> None:
    tokens = read_tokens(nano_gguf)
    tokens[5000], tokens[5001] = tokens[5001], tokens[5000]
    with pytest.raises(ModelLoadError, match="tokenizer is not o200k_harmony"):
        Vocabulary.from_model(tokens, tmp_path)
    assert not list(tmp_path.glob("*/*"))
    with pytest.raises(ModelLoadError, match="tokenizer is not o200k_harmony"):
        Vocabulary.from_model(["▁the", "▁a"], tmp_path)


def test_another_process_with_the_same_id_is_faster(
    nano_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in two containers that share a folder."""
    tokens, replace, n_written = read_tokens(nano_gguf), os.replace, 0

    def replace_later(path: Path, target: Path) -> None:
        nonlocal n_written
        n_written += 1
        if n_written == 1:
            Vocabulary.from_model(tokens, tmp_path)
        replace(path, target)

    monkeypatch.setattr(os, "replace", replace_later)
    Vocabulary.from_model(tokens, tmp_path)
    assert n_written == 2
    (path,) = tmp_path.glob("*/*")
    assert sha256(path.read_bytes()).hexdigest() == O200K_BASE_SHA256
