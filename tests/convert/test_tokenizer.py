"""Where a vocabulary may come from, and that it is the right one."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from convert.tokenizer import read_tokenizer
from convert.tokenizer_files import Tokenizer
from gptoss_local.base.errors import ConvertError
from gptoss_local.base.formats.o200k import FIRST_SPECIAL, VOCAB_SIZE
from gptoss_local.models.nano.ranks import load_ranks
from tests.convert.tiny import write_json, write_tiny
from tests.nano.tiktoken_file import render_tiktoken


@pytest.fixture(scope="module")
def published(nano_checkpoint: Path) -> Tokenizer:
    return read_tokenizer(nano_checkpoint, VOCAB_SIZE)


@pytest.fixture(scope="module")
def rank_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ranks") / "o200k_base.tiktoken"
    path.write_bytes(render_tiktoken(load_ranks()))
    return path


def test_from_a_gguf_as_from_its_checkpoint(
    q8_0_gguf: Path, published: Tokenizer, tmp_path: Path
) -> None:
    assert read_tokenizer(tmp_path, VOCAB_SIZE, q8_0_gguf) == published


def test_from_a_folder_or_its_file(
    nano_checkpoint: Path, published: Tokenizer, tmp_path: Path
) -> None:
    for source in (nano_checkpoint, nano_checkpoint / "tokenizer.json"):
        assert read_tokenizer(tmp_path, VOCAB_SIZE, source) == published


def test_from_a_rank_file(rank_file: Path, published: Tokenizer, tmp_path: Path) -> None:
    tokenizer = read_tokenizer(tmp_path, VOCAB_SIZE, rank_file)
    assert tokenizer.tokens[:200018] == published.tokens[:200018]
    assert tokenizer.types[:200018] == published.types[:200018]
    assert tokenizer.tokens[200018:200020] == ["<|endofprompt|>", "[PAD200019]"]
    assert tokenizer.types[200018:] == [3] + [5] * (VOCAB_SIZE - 200019)
    assert tokenizer.merges == published.merges
    assert tokenizer.special_ids == published.special_ids
    assert tokenizer.chat_template is None


def test_the_named_one_wins_over_the_checkpoints_own(tmp_path: Path) -> None:
    own, named = write_tiny(tmp_path / "own"), write_tiny(tmp_path / "named")
    edit_tokenizer(named, lambda t: t["added_tokens"][2].update(content="other"))
    assert read_tokenizer(own, 24).tokens[22] == "plain"
    assert read_tokenizer(own, 24, named).tokens[22] == "other"


def test_one_token_exchanged(nano_checkpoint: Path, tmp_path: Path) -> None:
    write_json(tmp_path / "tokenizer.json", exchange(nano_checkpoint, "Ġthe", "Ġof"))
    with pytest.raises(ConvertError, match="does not hold o200k_harmony") as caught:
        read_tokenizer(tmp_path, VOCAB_SIZE, tmp_path)
    assert "--tokenizer" in caught.value.hint


def test_special_token_exchanged(nano_checkpoint: Path, tmp_path: Path) -> None:
    content = exchange(nano_checkpoint)
    named = {token["content"]: token for token in content["added_tokens"]}
    named["<|call|>"]["content"] = "<|end|>"
    write_json(tmp_path / "tokenizer.json", content)
    with pytest.raises(ConvertError, match=r"Token 200012 is '<\|end\|>'"):
        read_tokenizer(tmp_path, VOCAB_SIZE, tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("x.tiktoken", b"YQ== 0\nYg== 2\n", "line 2 does not state the rank 1"),
        ("x.tiktoken", b"YQ= 0\n", "line 1 is not base64"),
        ("x.tiktoken", b"YQ== 0\n", "does not hold o200k_harmony"),
        ("x.tiktoken", b"", "does not hold o200k_harmony"),
        ("x.gguf", b"", "gives no vocabulary"),
        ("x.gguf", b"GGUF\3\0\0\0" + b"\xff" * 16, "gives no vocabulary"),
        ("x.gguf", b"GGUF\3\0\0\0" + b"\0" * 16, "gives no vocabulary: x.gguf has no tokenizer"),
        ("x.json", b"{}", "is not a BPE tokenizer"),
        ("x.json", b"[" * 100_000, "is not a BPE tokenizer"),
    ],
)
def test_broken_sources(tmp_path: Path, name: str, content: bytes, match: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConvertError, match=match):
        read_tokenizer(tmp_path, VOCAB_SIZE, tmp_path / name)


@pytest.mark.parametrize("name", ["x", "x.json", "x.tiktoken", "x.gguf"])
def test_missing_sources(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConvertError, match=name):
        read_tokenizer(tmp_path, VOCAB_SIZE, tmp_path / name)


def test_two_tokens_with_one_id(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path / "tiny")
    edit_tokenizer(folder, lambda t: t["model"]["vocab"].update(ab=1))
    with pytest.raises(ConvertError, match="two tokens the same id"):
        read_tokenizer(folder, 24)


def edit_tokenizer(folder: Path, edit: Any) -> None:
    content = msgspec.json.decode((folder / "tokenizer.json").read_bytes())
    edit(content)
    write_json(folder / "tokenizer.json", content)


def exchange(folder: Path, *tokens: str) -> dict[str, Any]:
    """The content of a tokenizer.json, in which two tokens have each other's id."""
    content: dict[str, Any] = msgspec.json.decode((folder / "tokenizer.json").read_bytes())
    vocab = content["model"]["vocab"]
    assert list(vocab.values())[:FIRST_SPECIAL] == list(range(FIRST_SPECIAL))
    if tokens:
        a, b = tokens
        vocab[a], vocab[b] = vocab[b], vocab[a]
    return content
