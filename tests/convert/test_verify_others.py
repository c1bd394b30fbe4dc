"""`verify` and GGUFs of other programs: unknown parts are noted, never called wrong."""

import json
from pathlib import Path
from typing import Any

import llama_cpp
import pytest

from convert import convert_checkpoint
from convert.verify import verify_model
from gptoss_local.base.formats.gguf_file import GGUFInfo, read_info
from gptoss_local.machine.plan.facts import read_facts
from tests.convert.gguf_file import GgufFile, Tensor, read_gguf
from tests.convert.tiny import tiny_config, tiny_tensors, write_tiny
from tests.convert.write_gguf import without_sums, write_gguf

Q4_K_M = 15


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose rows are long enough for K-quants."""
    config = tiny_config(hidden_size=256, intermediate_size=256, num_attention_heads=8)
    return write_tiny(tmp_path_factory.mktemp("wide") / "wide", config=config)


@pytest.fixture(scope="module")
def k_quant(wide: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return quantize(wide, tmp_path_factory.mktemp("k") / "Wide-Q4_K_M.GGUF", Q4_K_M)


def quantize(checkpoint: Path, target: Path, ftype: int) -> Path:
    """Quantize our file with llama.cpp, which copies our keys, even the checksums."""
    bf16_gguf = target.with_name("bf16.gguf")
    convert_checkpoint(checkpoint, bf16_gguf, dense="bf16")
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.nthread = ftype, 1
    params.allow_requantize = True
    assert (
        llama_cpp.llama_model_quantize(str(bf16_gguf).encode(), str(target).encode(), params) == 0
    )
    return target


@pytest.mark.parametrize(("kind", "ftype"), [("Q4_1", 3), ("Q5_0", 8), ("IQ4_NL", 25)])
def test_types_that_we_do_not_write(wide: Path, tmp_path: Path, kind: str, ftype: int) -> None:
    path = quantize(wide, tmp_path / "other.gguf", ftype)
    file = read_gguf(path)
    name = next(n for n, t in file.tensors.items() if t.qtype.name == kind)
    report = verify_model(path, against=wide)
    assert report.findings == []
    assert {t.name: t.match for t in report.tensors}[name] == "alike"
    tensor = file.tensors[name]
    for at in (0, 2) if kind == "Q4_1" else (0,):  # its scale, and of Q4_1 its least value
        data = tensor.data.copy()
        data[at : at + 2] = 0xFF, 0x7F
        broken = file.tensors | {name: Tensor(tensor.qtype, tensor.shape, data)}
        write_gguf(tmp_path / "broken.gguf", without_sums(file), broken)
        report = verify_model(tmp_path / "broken.gguf", tokenizer=wide)
        assert [each.where for each in report.findings] == [name]


def test_a_k_quant_is_not_wrong(k_quant: Path, wide: Path) -> None:
    info = read_info(k_quant)
    assert info.quantization == "Q4_K_M"
    report = verify_model(k_quant, tokenizer=wide)
    assert report.findings == []
    notes = " | ".join(report.notes)
    assert "of types that are only checked for their sizes and scales: Q" in notes
    assert "checksums are those of the file that another program made it from" in notes
    assert report.unproven
    report = verify_model(k_quant, against=wide)
    assert report.findings == []
    kinds = {tensor.type: tensor.match for tensor in report.tensors}
    assert kinds["F32"] == "equal"
    assert "alike" in kinds.values()
    assert "they resemble the checkpoint" in " | ".join(report.notes)
    assert read_facts(k_quant).weight_bytes < k_quant.stat().st_size


def test_a_k_quant_that_is_damaged_is_found(k_quant: Path, wide: Path, tmp_path: Path) -> None:
    """By scales that are NaN, and by values that have nothing to do with the checkpoint's."""
    file = read_gguf(k_quant)
    name = next(n for n, t in file.tensors.items() if t.qtype.name.endswith("_K"))
    tensor = file.tensors[name]
    data = tensor.data.copy()
    data[:2] = 0xFF, 0x7F  # of Q4_K the first scale
    if tensor.qtype.name == "Q6_K":
        data[208:210] = 0xFF, 0x7F
    broken = file.tensors | {name: Tensor(tensor.qtype, tensor.shape, data)}
    write_gguf(tmp_path / "broken.gguf", without_sums(file), broken)
    report = verify_model(tmp_path / "broken.gguf", tokenizer=wide)
    assert [each.where for each in report.findings] == [name]
    assert "not finite" in report.findings[0].message
    config = json.loads((wide / "config.json").read_bytes())
    other = write_tiny(tmp_path / "other", config=config, tensors=tiny_tensors(config, seed=1))
    report = verify_model(k_quant, against=other)
    assert name in {each.where for each in report.findings}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, GgufFile]:
    folder = write_tiny(tmp_path_factory.mktemp("tiny") / "tiny")
    (target,) = convert_checkpoint(folder, folder.with_suffix(".gguf"))
    return folder, read_gguf(target)


OTHER_KEYS: dict[str, dict[str, tuple[str, Any]]] = {
    "add_bos_token": {"tokenizer.ggml.add_bos_token": ("BOOL", True)},
    "pre-tokenizer": {"tokenizer.ggml.pre": ("STRING", "default")},
    "per layer": {
        "gpt-oss.attention.head_count": ("ARRAY/UINT32", [3]),
        "gpt-oss.attention.head_count_kv": ("ARRAY/INT32", [1]),
        "gpt-oss.feed_forward_length": ("ARRAY/UINT32", [32]),
    },
    "pattern as a list": {"gpt-oss.attention.sliding_window_pattern": ("ARRAY/BOOL", [True])},
}


@pytest.mark.parametrize("name", OTHER_KEYS)
def test_keys_as_others_write_them(tiny: tuple[Path, GgufFile], tmp_path: Path, name: str) -> None:
    folder, file = tiny
    write_gguf(tmp_path / "m.gguf", without_sums(file) | OTHER_KEYS[name], file.tensors)
    report = verify_model(tmp_path / "m.gguf", tokenizer=folder)
    assert report.findings == []


def test_equal_values_per_layer_are_read_as_a_number(
    tiny: tuple[Path, GgufFile], tmp_path: Path
) -> None:
    """By the plan and by `show`, as by llama.cpp."""
    _, file = tiny
    keys = without_sums(file)
    write_gguf(tmp_path / "plain.gguf", keys, file.tensors)
    write_gguf(tmp_path / "lists.gguf", keys | OTHER_KEYS["per layer"], file.tensors)
    assert read_facts(tmp_path / "lists.gguf") == read_facts(tmp_path / "plain.gguf")


def test_a_tail_of_zeros(tiny: tuple[Path, GgufFile], tmp_path: Path) -> None:
    folder, file = tiny
    path = tmp_path / "m.gguf"
    write_gguf(path, without_sums(file), file.tensors)
    for tail, n_findings in ((bytes(4096), 0), (bytes(4095) + b"\1", 1)):
        with path.open("ab") as out:
            out.write(tail)
        report = verify_model(path, tokenizer=folder)
        assert len(report.findings) == n_findings, report.findings
    assert "after the end of its tensors" in report.findings[0].message


def text_info(path: Path, text: bytes) -> GGUFInfo:
    """Put bytes into a key's text, as many as were there."""
    data = path.read_bytes()
    assert data.count(b"A" * len(text)) == 1
    path.write_bytes(data.replace(b"A" * len(text), text))
    return read_info(path)


def test_text_that_is_not_utf_8(tiny: tuple[Path, GgufFile], tmp_path: Path) -> None:
    """llama.cpp does not look at it either."""
    folder, file = tiny
    text = r"C:\Modèles\imatrix.dat".encode("latin-1")
    keys = without_sums(file) | {"quantize.imatrix.file": ("STRING", "A" * len(text))}
    path = tmp_path / "Author_latin1.gguf"
    write_gguf(path, keys, file.tensors)
    info = text_info(path, text)
    assert info.metadata["quantize.imatrix.file"] == "C:\\Mod\ufffdles\\imatrix.dat"
    assert info.quantization == "MXFP4"
    assert verify_model(path, tokenizer=folder).findings == []
