"""Every tensor and key as llama.cpp's own converter writes them.

golden_llama_cpp.json was made from its output for nano by make_golden.py. At night the real
converter runs, from the sources of the llama.cpp that we run, on checkpoints of several shapes.
"""

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from convert import DenseType, ExpertType, convert_checkpoint
from convert.plan import SUMS_KEY, SUMS_OF_KEY
from convert.verify import verify_model
from tests.convert.gguf_file import GgufFile, read_gguf
from tests.convert.llama_cpp_source import convert_with_llama_cpp
from tests.convert.make_golden import GOLDEN, describe
from tests.convert.tiny import Experts, tiny_config, write_tiny

N_VOCAB = 201088  # their converter knows the vocabulary by its tokens of a text
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


@pytest.mark.parametrize("dense", [pytest.param("bf16", marks=pytest.mark.nightly), "q8_0"])
def test_same_keys_and_tensors(dense: str, request: pytest.FixtureRequest) -> None:
    converted = describe(request.getfixturevalue(f"{dense}_file"))
    golden: dict[str, Any] = json.loads(GOLDEN.read_text())[dense]
    # A deliberate difference: the experts name the file's type, not the other weights.
    golden["keys"]["general.file_type"] = ["UINT32", 38]
    assert converted["keys"].pop(SUMS_KEY)[0] == "ARRAY/UINT64"  # one that only we write
    assert converted["keys"].pop(SUMS_OF_KEY)[0] == "STRING"
    assert converted["keys"] == golden["keys"]
    assert converted["tensors"] == golden["tensors"]


def test_scalars_come_before_the_vocabulary(q8_0_file: GgufFile) -> None:
    """A reader that wants a number need not skip 12 MB of tokens."""
    keys = [key for key in q8_0_file.keys if key != SUMS_OF_KEY]  # of the file, as the sums are
    is_array = [key.endswith((".tokens", ".token_type", ".merges", "_sums")) for key in keys]
    assert is_array == [False] * (len(keys) - 4) + [True] * 4


def test_tensor_sums(q8_0_file: GgufFile) -> None:
    """Each is the sum of the tensor's 64-bit words, here taken in halves that cannot overflow."""
    _, sums = q8_0_file.keys[SUMS_KEY]
    assert len(sums) == len(q8_0_file.tensors)
    for value, tensor in zip(sums, q8_0_file.tensors.values(), strict=True):
        data = tensor.data.tobytes()
        words = np.frombuffer(data.ljust(-(-len(data) // 8) * 8, b"\0"), "<u4")
        low, high = (int(words[i::2].sum(dtype=np.uint64)) for i in (0, 1))
        assert value == (low + (high << 32)) % 2**64


class Case(NamedTuple):
    """A checkpoint and how to convert it; `outtype` is theirs, `dense` and `kept` are ours."""

    shape: dict[str, Any]
    experts: Experts
    n_shards: int
    dense: DenseType
    kept: ExpertType = "mxfp4"


CASES = {
    "mxfp4, bf16": Case({"num_hidden_layers": 2}, "mxfp4", 1, "bf16"),
    "mxfp4, q8_0": Case(
        {
            "num_hidden_layers": 3,
            "hidden_size": 96,
            "intermediate_size": 160,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 64,
            "num_local_experts": 4,
            "num_experts_per_tok": 3,
        },
        "mxfp4",
        1,
        "q8_0",
    ),
    "bf16, bf16": Case({"num_hidden_layers": 2}, "bf16", 2, "bf16", "bf16"),
}


@pytest.fixture(scope="module")
def root(nano_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with each case's checkpoint and their conversion of it, by number."""
    root = tmp_path_factory.mktemp("oracle")
    jobs = []
    for i, case in enumerate(CASES.values()):
        write_checkpoint(root / f"tiny-{i}", case, nano_checkpoint)
        jobs.append((root / f"tiny-{i}", root / f"theirs-{i}.gguf", case.dense))
    convert_with_llama_cpp(jobs)
    return root


@pytest.fixture(scope="module")
def converted(root: Path) -> dict[str, tuple[GgufFile, GgufFile]]:
    """Their conversion and ours of each case."""
    found = {}
    for i, (name, case) in enumerate(CASES.items()):
        ours = root / f"ours-{i}.gguf"
        convert_checkpoint(root / f"tiny-{i}", ours, dense=case.dense, experts=case.kept)
        found[name] = read_gguf(root / f"theirs-{i}.gguf"), read_gguf(ours)
    return found


def write_checkpoint(folder: Path, case: Case, nano_checkpoint: Path) -> None:
    stated = {"quantization_config": {"quant_method": "mxfp4"}} if case.experts == "mxfp4" else {}
    config = tiny_config(**case.shape, **stated, vocab_size=N_VOCAB)
    write_tiny(folder, config=config, experts=case.experts, n_shards=case.n_shards)
    for name in TOKENIZER_FILES:
        shutil.copyfile(nano_checkpoint / name, folder / name)


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
def test_every_key(converted: dict[str, tuple[GgufFile, GgufFile]], name: str) -> None:
    theirs, ours = (file.keys for file in converted[name])
    if CASES[name].kept == "mxfp4":  # deliberate: named after the experts, see docs/convert.md
        theirs["general.file_type"] = ("UINT32", 38)
    assert {key: ours[key] for key in theirs} == theirs
    assert {key for key in ours.keys() - theirs if not key.startswith("gptoss.")} == set()


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
def test_every_tensor(converted: dict[str, tuple[GgufFile, GgufFile]], name: str) -> None:
    theirs, ours = (file.tensors for file in converted[name])
    assert ours.keys() == theirs.keys()
    for tensor_name, tensor in ours.items():
        expected = theirs[tensor_name]
        assert tensor.shape == expected.shape
        assert tensor.qtype == expected.qtype, tensor_name
        assert tensor.data.tobytes() == expected.data.tobytes(), tensor_name


@pytest.mark.nightly
@pytest.mark.parametrize("i", range(len(CASES)))
def test_their_file_is_verified(root: Path, i: int) -> None:
    """Other order of tensors, no checksums: every tensor is proven by the checkpoint."""
    report = verify_model(root / f"theirs-{i}.gguf", against=root / f"tiny-{i}")
    assert report.is_proven, report.findings
    assert {tensor.match for tensor in report.tensors} == {"equal"}
    assert report.notes == ["no checksums in the file"]
