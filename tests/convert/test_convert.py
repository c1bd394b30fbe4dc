"""Converting tiny checkpoints: layouts, keys, vocabulary, progress and memory."""

import tracemalloc
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from convert import convert_checkpoint
from tests.convert.gguf_file import read_gguf
from tests.convert.tiny import (
    tiny_config,
    tiny_shapes,
    write_json,
)


def keys_of(path: Path) -> dict[str, Any]:
    return {key: value for key, (_, value) in read_gguf(path).keys.items()}


def test_vocabulary_and_special_ids(tiny_checkpoint: Path, tmp_path: Path) -> None:
    target = tmp_path / "tiny.gguf"
    convert_checkpoint(tiny_checkpoint, target)
    keys = keys_of(target)
    tokens, types = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"]
    assert tokens[:10] == [*"abcdefgh", "ab", "abc"]
    assert types[:10] == [1] * 10  # NORMAL
    assert tokens[10:20] == [f"[PAD{i}]" for i in range(10, 20)]
    assert types[10:20] == [5] * 10  # UNUSED
    assert tokens[20:] == ["<|startoftext|>", "<|return|>", "plain", "[PAD23]"]
    assert types[20:] == [3, 3, 4, 5]  # CONTROL by flag, CONTROL by looks, USER_DEFINED, UNUSED
    assert keys["tokenizer.ggml.merges"] == ["a b", "ab c"]
    assert keys["tokenizer.ggml.bos_token_id"] == 20
    assert keys["tokenizer.ggml.eos_token_id"] == 21
    assert keys["tokenizer.ggml.padding_token_id"] == 22  # from generation_config.json
    assert keys["tokenizer.ggml.add_bos_token"] is False
    assert "tokenizer.chat_template" not in keys


def test_chat_template_and_model_card(tiny_checkpoint: Path, tmp_path: Path) -> None:
    (tiny_checkpoint / "chat_template.jinja").write_text("{{ messages }} ä", encoding="utf-8")
    (tiny_checkpoint / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Tiny\n")
    convert_checkpoint(tiny_checkpoint, tmp_path / "tiny.gguf")
    keys = keys_of(tmp_path / "tiny.gguf")
    assert keys["tokenizer.chat_template"] == "{{ messages }} ä"
    assert keys["general.license"] == "apache-2.0"
    assert keys["general.name"] == "Tiny"


def test_config_of_transformers_5(tiny_checkpoint: Path, tmp_path: Path) -> None:
    convert_checkpoint(tiny_checkpoint, tmp_path / "old.gguf")
    config = tiny_config()
    config["rope_parameters"] = {"rope_theta": config.pop("rope_theta")}
    config["rope_parameters"] |= config.pop("rope_scaling")
    write_json(tiny_checkpoint / "config.json", config)
    convert_checkpoint(tiny_checkpoint, tmp_path / "new.gguf")
    assert (tmp_path / "old.gguf").read_bytes() == (tmp_path / "new.gguf").read_bytes()


def test_old_string_merges(tiny_checkpoint: Path, tmp_path: Path) -> None:
    convert_checkpoint(tiny_checkpoint, tmp_path / "pairs.gguf")
    path = tiny_checkpoint / "tokenizer.json"
    tokenizer = msgspec.json.decode(path.read_bytes())
    tokenizer["model"]["merges"] = ["a b", "ab c"]
    write_json(path, tokenizer)
    convert_checkpoint(tiny_checkpoint, tmp_path / "strings.gguf")
    assert (tmp_path / "pairs.gguf").read_bytes() == (tmp_path / "strings.gguf").read_bytes()


def test_progress_ends_with_everything(tiny_checkpoint: Path, tmp_path: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    convert_checkpoint(
        tiny_checkpoint, tmp_path / "tiny.gguf", progress=lambda *call: calls.append(call)
    )
    done = [call[1] for call in calls]
    assert done == sorted(done)
    tensors = read_gguf(tmp_path / "tiny.gguf").tensors
    assert done[-1] == calls[-1][2] == sum(t.data.nbytes for t in tensors.values())


def test_memory_does_not_grow_with_the_model(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Embedding and head of 268 MB each, written as a sparse file, pass in pieces."""
    config = tiny_config() | {"vocab_size": 1 << 16, "hidden_size": 2048}
    write_json(tiny_checkpoint / "config.json", config)
    header: dict[str, Any] = {}
    end = 0
    for name, (dtype, shape) in tiny_shapes(config).items():
        start, end = end, end + prod(shape) * (1 if dtype == "U8" else 2)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    head = msgspec.json.encode(header)
    with (tiny_checkpoint / "model.safetensors").open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        file.truncate(8 + len(head) + end)
    tracemalloc.start()
    try:
        convert_checkpoint(tiny_checkpoint, tmp_path / "big.gguf")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64_000_000
