"""Every tensor and key as llama.cpp's own converter writes them, for checkpoints of several shapes.

The real converter runs here, from the sources of the llama.cpp that we run; test_golden.py compares
with what it once made of nano.
"""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from gguf import GGMLQuantizationType, quants

from convert import DenseType, ExpertType, convert_checkpoint
from convert.verify import verify_model
from tests.convert.gguf_file import GgufFile, read_gguf
from tests.convert.llama_cpp_source import convert_with_llama_cpp
from tests.convert.tiny import Experts, tiny_config, write_tiny

pytestmark = pytest.mark.nightly

N_VOCAB = 201088  # their converter knows the vocabulary by what it makes of a text
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


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


@pytest.mark.parametrize("name", CASES)
def test_every_key(converted: dict[str, tuple[GgufFile, GgufFile]], name: str) -> None:
    theirs, ours = (file.keys for file in converted[name])
    if CASES[name].kept == "mxfp4":  # deliberate: named after the experts, see docs/convert.md
        theirs["general.file_type"] = ("UINT32", 38)
    assert {key: ours[key] for key in theirs} == theirs
    assert {key for key in ours.keys() - theirs if not key.startswith("gptoss.")} == set()


@pytest.mark.parametrize("name", CASES)
def test_every_tensor(converted: dict[str, tuple[GgufFile, GgufFile]], name: str) -> None:
    theirs, ours = (file.tensors for file in converted[name])
    assert ours.keys() == theirs.keys()
    for tensor_name, tensor in ours.items():
        expected = theirs[tensor_name]
        assert tensor.shape == expected.shape
        assert tensor.qtype == expected.qtype, tensor_name
        assert tensor.data.tobytes() == expected.data.tobytes(), tensor_name


@pytest.mark.parametrize("i", range(len(CASES)))
def test_their_file_is_verified(root: Path, i: int) -> None:
    """Other order of tensors, no checksums: every tensor is proven by the checkpoint."""
    report = verify_model(root / f"theirs-{i}.gguf", against=root / f"tiny-{i}")
    assert report.is_proven, report.findings
    assert {tensor.match for tensor in report.tensors} == {"equal"}
    assert report.notes == ["no checksums in the file"]


def test_quantized_experts_equal_the_reference_quantizer(tmp_path: Path) -> None:
    """Their converter cannot make bf16 experts MXFP4, so its bf16 output is the input here."""
    write_tiny(tmp_path / "tiny", experts="bf16")
    convert_checkpoint(tmp_path / "tiny", tmp_path / "kept.gguf", experts="bf16")
    convert_checkpoint(tmp_path / "tiny", tmp_path / "rounded.gguf", experts="mxfp4")
    kept = read_gguf(tmp_path / "kept.gguf").tensors
    for name, tensor in read_gguf(tmp_path / "rounded.gguf").tensors.items():
        if tensor.qtype == GGMLQuantizationType.MXFP4:
            expected = quants.quantize(kept[name].values(), GGMLQuantizationType.MXFP4)
            assert tensor.data.tobytes() == expected.tobytes()
        else:
            assert tensor.data.tobytes() == kept[name].data.tobytes()
