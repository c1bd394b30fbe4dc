"""Output in several files, as llama.cpp splits them."""

from pathlib import Path

import numpy as np
import pytest

from convert import convert_checkpoint
from convert.pieces import word_sum
from convert.plan import SUMS_KEY
from gptoss_local.base.errors import ConvertError
from tests.convert.gguf_file import GgufFile, read_gguf
from tests.convert.llama_cpu import load_model, logits, tokenize

MAX_BYTES = 70_000_000
PROMPT = "<|start|>user<|message|>What is the capital of France?<|end|><|start|>assistant"


@pytest.fixture(scope="module")
def parts(nano_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    target = tmp_path_factory.mktemp("split") / "nano.v1.gguf"
    return convert_checkpoint(nano_checkpoint, target, max_shard_bytes=MAX_BYTES)


def test_names_sizes_and_keys(parts: list[Path], q8_0_file: GgufFile) -> None:
    n = len(parts)
    assert n > 2
    assert [p.name for p in parts] == [f"nano.v1-{i:05d}-of-{n:05d}.gguf" for i in range(1, n + 1)]
    assert sorted(parts) == sorted(parts[0].parent.iterdir())
    assert max(path.stat().st_size for path in parts) <= MAX_BYTES
    files = [read_gguf(path) for path in parts]
    for i, file in enumerate(files):
        assert file.keys["split.no"] == ("UINT16", i)
        assert file.keys["split.count"] == ("UINT16", n)
        assert file.keys["split.tensors.count"] == ("INT32", len(q8_0_file.tensors))
        expected = [word_sum(tensor.data) for tensor in file.tensors.values()]
        assert file.keys[SUMS_KEY] == ("ARRAY/UINT64", expected)
    assert files[0].keys.keys() - q8_0_file.keys.keys() == {
        "split.no",
        "split.count",
        "split.tensors.count",
    }
    assert q8_0_file.keys.keys() <= files[0].keys.keys()
    assert all(len(file.keys) == 5 for file in files[1:])  # and what the sums are of


def test_tensors_equal_a_single_file(parts: list[Path], q8_0_file: GgufFile) -> None:
    tensors = {}
    for path in parts:
        tensors |= read_gguf(path).tensors
    assert list(tensors) == list(q8_0_file.tensors)
    for name, tensor in q8_0_file.tensors.items():
        np.testing.assert_array_equal(tensors[name].data, tensor.data)


def test_llama_cpp_loads_them_and_says_the_same(parts: list[Path], q8_0_gguf: Path) -> None:
    split, whole = (greedy(path, n_tokens=6) for path in (parts[0], q8_0_gguf))
    assert split == whole
    assert len(set(whole)) > 3


def greedy(path: Path, n_tokens: int) -> list[int]:
    with load_model(path) as model:
        prompt = tokenize(model, PROMPT)
        n_prompt = len(prompt)
        for _ in range(n_tokens):
            (rows,) = logits(model, [prompt])
            prompt.append(int(rows[-1].argmax()))
        return prompt[n_prompt:]


def test_one_file_if_everything_fits(
    nano_checkpoint: Path, q8_0_gguf: Path, tmp_path: Path
) -> None:
    target = tmp_path / "nano.gguf"
    assert convert_checkpoint(nano_checkpoint, target, max_shard_bytes=10**12) == [target]
    assert target.read_bytes() == q8_0_gguf.read_bytes()


def test_a_tensor_that_fits_in_no_file(tiny_checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match=r"token_embd.weight and the header take \d+ bytes"):
        convert_checkpoint(tiny_checkpoint, tmp_path / "t.gguf", max_shard_bytes=5000)
    assert not list(tmp_path.glob("t*.gguf*"))
