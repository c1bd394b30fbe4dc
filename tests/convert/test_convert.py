"""Conversions: vocabulary, progress, memory, and output in several files, as llama.cpp splits."""

import tracemalloc
from pathlib import Path

import msgspec
import numpy as np
import pytest

from convert import convert_checkpoint
from convert.pieces import word_sum
from convert.plan import SUMS_KEY
from gptoss_local.base.errors import ConvertError
from gptoss_local.engine.llama import Model
from tests.convert.gguf_file import read_gguf
from tests.convert.large import write_shard
from tests.convert.tiny import tiny_config, tiny_shapes, write_json, write_tiny
from tests.engine.run import make_context


def test_vocabulary_special_ids_and_progress(tiny_checkpoint: Path, tmp_path: Path) -> None:
    target = tmp_path / "tiny.gguf"
    calls: list[tuple[int, int]] = []
    convert_checkpoint(tiny_checkpoint, target, progress=lambda _, *call: calls.append(call))
    n_bytes = sum(tensor.data.nbytes for tensor in read_gguf(target).tensors.values())
    assert calls == sorted(calls)
    assert calls[-1] == (n_bytes, n_bytes)
    keys = {key: value for key, (_, value) in read_gguf(target).keys.items()}
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


def test_old_string_merges(tiny_checkpoint: Path, tmp_path: Path) -> None:
    convert_checkpoint(tiny_checkpoint, tmp_path / "pairs.gguf")
    path = tiny_checkpoint / "tokenizer.json"
    tokenizer = msgspec.json.decode(path.read_bytes())
    tokenizer["model"]["merges"] = ["a b", "ab c"]
    write_json(path, tokenizer)
    convert_checkpoint(tiny_checkpoint, tmp_path / "strings.gguf")
    assert (tmp_path / "pairs.gguf").read_bytes() == (tmp_path / "strings.gguf").read_bytes()


def test_memory_does_not_grow_with_the_model(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Embedding and head of 134 MB each, written as a sparse file, pass in pieces."""
    config = tiny_config() | {"vocab_size": 1 << 15, "hidden_size": 2048}
    write_json(tiny_checkpoint / "config.json", config)
    write_shard(tiny_checkpoint / "model.safetensors", tiny_shapes(config), seed=None)
    tracemalloc.start()
    try:
        convert_checkpoint(tiny_checkpoint, tmp_path / "big.gguf")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64_000_000


def test_names_sizes_keys_and_tensors_of_several_files(tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "tiny", config=tiny_config(num_hidden_layers=3))
    (tmp_path / "out").mkdir()
    (whole,) = convert_checkpoint(source, tmp_path / "whole.gguf")
    target, max_bytes = tmp_path / "out" / "nano.v1.gguf", 40_000
    parts = convert_checkpoint(source, target, max_shard_bytes=max_bytes)
    whole_file = read_gguf(whole)
    n = len(parts)
    assert n > 2
    assert [p.name for p in parts] == [f"nano.v1-{i:05d}-of-{n:05d}.gguf" for i in range(1, n + 1)]
    assert sorted(parts) == sorted(parts[0].parent.iterdir())
    assert max(path.stat().st_size for path in parts) <= max_bytes
    files, tensors = [read_gguf(path) for path in parts], {}
    n_tensors = len(whole_file.tensors)
    split = {"split.no": None, "split.count": ("UINT16", n)}
    split |= {"split.tensors.count": ("INT32", n_tensors)}
    for i, file in enumerate(files):
        split["split.no"] = ("UINT16", i)
        assert split.items() <= file.keys.items()
        sums = [word_sum(tensor.data) for tensor in file.tensors.values()]
        assert file.keys[SUMS_KEY] == ("ARRAY/UINT64", sums)
        tensors |= file.tensors
    assert files[0].keys.keys() == whole_file.keys.keys() | split.keys()
    assert all(len(file.keys) == 5 for file in files[1:])  # and the tensors of the sums
    assert list(tensors) == list(whole_file.tensors)
    for name, tensor in whole_file.tensors.items():
        np.testing.assert_array_equal(tensors[name].data, tensor.data)


@pytest.mark.nightly
def test_llama_cpp_loads_them(nano_checkpoint: Path, q8_0_gguf: Path, tmp_path: Path) -> None:
    target, found = tmp_path / "nano.gguf", []
    parts = convert_checkpoint(nano_checkpoint, target, max_shard_bytes=70_000_000)
    for path in (parts[0], q8_0_gguf):
        model = Model(path)
        context = make_context(model, n_ctx=256)
        context.decode(range(1000, 1010), position=0)
        found.append(context.logits(-1).copy())
        model.close()
    np.testing.assert_array_equal(*found)


def test_one_file_if_everything_fits(tiny_checkpoint: Path, tmp_path: Path) -> None:
    target, whole = tmp_path / "tiny.gguf", tmp_path / "whole.gguf"
    assert convert_checkpoint(tiny_checkpoint, target, max_shard_bytes=10**12) == [target]
    convert_checkpoint(tiny_checkpoint, whole)
    assert target.read_bytes() == whole.read_bytes()


def test_a_tensor_that_fits_in_no_file(tiny_checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match=r"token_embd.weight and the header take \d+ bytes"):
        convert_checkpoint(tiny_checkpoint, tmp_path / "t.gguf", max_shard_bytes=5000)
    assert not list(tmp_path.glob("t*.gguf*"))
