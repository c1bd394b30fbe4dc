"""`verify` with the checkpoint at hand proves every tensor of any program's file.

Unknown parts of another program's file are noted, never called wrong.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import pytest
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

from convert import DenseType, ExpertType, convert_checkpoint
from convert.tensor_types import Q8_0 as Q8_0_TYPE
from convert.verify import ClassReport, Report, verify_model
from gptoss_local.base.errors import ConvertError
from gptoss_local.base.formats.gguf_file import read_info
from gptoss_local.machine.plan.facts import read_facts
from tests.convert.gguf_file import GgufFile, Tensor, read_gguf
from tests.convert.tiny import (
    Experts,
    Layout,
    tiny_config,
    tiny_tensors,
    write_tiny,
    write_tokenizer,
)
from tests.convert.write_gguf import without_sums, write_gguf

Q4_K_M = 15
Q8_0, F16, F32 = GGMLQuantizationType.Q8_0, GGMLQuantizationType.F16, GGMLQuantizationType.F32
CLASSES = {"embedding", "attention", "router", "experts", "norms", "head"}


@pytest.fixture
def converted(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    (path,) = convert_checkpoint(tiny_checkpoint, tmp_path / "m.gguf")
    return path


def messages(report: Report) -> str:
    return "\n".join(finding.message for finding in report.findings)


def classes(report: Report) -> dict[str, ClassReport]:
    return {each.name: each for each in report.classes}


def rewritten(converted: Path, **tensors: Tensor) -> Path:
    """Another program's file: other tensors, other order, no checksums."""
    file = read_gguf(converted)
    changed = file.tensors | {name.replace("__", "."): t for name, t in tensors.items()}
    target = converted.with_name("theirs.gguf")
    write_gguf(target, without_sums(file), dict(reversed(changed.items())))
    return target


@pytest.mark.parametrize(
    ("layout", "experts", "kept", "dense"),
    [
        ("hugging_face", "mxfp4", "mxfp4", "q8_0"),
        ("original", "mxfp4", "mxfp4", "bf16"),
        ("original", "bf16", "mxfp4", "q8_0"),
        ("hugging_face", "bf16", "bf16", "bf16"),
    ],
)
@pytest.mark.parametrize("n_piece_bytes", [None, 700])
def test_our_conversions_are_proven(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    layout: Layout,
    experts: Experts,
    kept: ExpertType,
    dense: DenseType,
    n_piece_bytes: int | None,
) -> None:
    """However tensors are cut."""
    if n_piece_bytes:
        monkeypatch.setattr("convert.pieces.CHUNK_BYTES", 3 * n_piece_bytes)
        monkeypatch.setattr("convert.pieces.PIECE_BYTES", n_piece_bytes)
        monkeypatch.setattr("convert.verify.scan.CHUNK_BYTES", 34 * 17 * 8 * 2)
        monkeypatch.setattr("convert.verify.scan.PIECE_BYTES", 34 * 17 * 8)
    config = tiny_config(num_hidden_layers=2)
    source = tmp_path / "source"
    write_tiny(source, config=config, layout=layout, experts=experts, n_shards=3)
    write_tokenizer(source)
    (path,) = convert_checkpoint(source, tmp_path / "m.gguf", dense=dense, experts=kept)
    assert not messages(verify_model(path, tokenizer=source))
    calls: list[tuple[int, int]] = []
    report = verify_model(path, against=source, progress=lambda _, *call: calls.append(call))
    assert calls == sorted(calls)
    assert calls[-1] == (report.n_bytes, report.n_bytes)
    assert report.is_proven, report.findings
    found = classes(report)
    assert found.keys() == CLASSES
    for name, each in found.items():
        assert each.n_equal == each.n_tensors > 0
        is_rounded = dense == "q8_0" and name in ("embedding", "attention", "head")
        is_rounded |= name == "experts" and experts != kept
        assert (each.worst_error or 0) > 0 if is_rounded else each.worst_error == 0


def test_another_models_weights(converted: Path, tmp_path: Path) -> None:
    other = write_tiny(tmp_path / "other", tensors=tiny_tensors(seed=1))
    report = verify_model(converted, against=other)
    assert len(report.findings) == len(report.tensors) == 22
    assert all(each.n_different == each.n_tensors for each in report.classes)
    assert all(each.worst_error for each in report.classes)


def test_another_models_config(converted: Path, tmp_path: Path) -> None:
    changes = {"num_experts_per_tok": 3, "rms_norm_eps": 1e-6, "rope_theta": 10000}
    config = tiny_config(**changes, num_local_experts=6)
    other = write_tiny(tmp_path / "other", config=config)
    found = messages(verify_model(converted, against=other))
    for key in ("expert_used_count is 2", "rms_epsilon is ", "freq_base is 150000.0"):
        assert key in found
    assert "8 tensors could not be compared with the checkpoint" in found
    weights = other / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ConvertError, match=r"model\.safetensors"):
        verify_model(converted, against=other)


def test_one_bit_without_checksums(converted: Path, tiny_checkpoint: Path) -> None:
    for name in ("blk.0.ffn_up_exps.weight", "blk.0.attn_q.bias", "blk.0.ffn_gate_inp.weight"):
        tensor = read_gguf(converted).tensors[name]
        data = tensor.data.copy()
        data[-1] ^= 1
        changed = {name.replace(".", "__"): Tensor(tensor.qtype, tensor.shape, data)}
        report = verify_model(rewritten(converted, **changed), against=tiny_checkpoint)
        (finding,) = report.findings
        assert finding.where == name
        assert "1 of" in finding.message


def head_blocks(converted: Path) -> NDArray[Any]:
    return read_gguf(converted).tensors["output.weight"].data.copy().view(Q8_0_TYPE.layout)


def with_head(converted: Path, blocks: NDArray[Any]) -> Path:
    tensor = Tensor(Q8_0, (24, 64), blocks.view(np.uint8).reshape(-1))
    return rewritten(converted, output__weight=tensor)


def test_another_rounding_within_the_bound(converted: Path, tiny_checkpoint: Path) -> None:
    """A scale of float16 that is rounded the other way, as by truncation, changes no value much."""
    blocks = head_blocks(converted)
    exact = tiny_tensors()["lm_head.weight"][1].astype(np.uint32) << 16
    largest = np.abs(exact.view(np.float32)).reshape(-1, 32).max(axis=1)
    up = blocks["d"].astype(np.float32) > largest / 127
    blocks["d"].view("<u2")[up] -= 1
    assert up.any()
    report = verify_model(with_head(converted, blocks), against=tiny_checkpoint)
    assert report.is_proven, report.findings
    head = classes(report)["head"]
    assert (head.n_equal, head.n_rounded) == (0, 1)
    assert f"the fewest blocks, {up.sum()}, in output.weight" in report.notes[1]


@pytest.mark.parametrize("by", ["scale", "values"])
def test_another_rounding_beyond_the_bound(converted: Path, tiny_checkpoint: Path, by: str) -> None:
    """A wrong scale does not widen the bound."""
    blocks = head_blocks(converted)
    if by == "scale":
        blocks["d"][3] *= 2
    else:
        blocks["qs"][3, 5] ^= 2
    report = verify_model(with_head(converted, blocks), against=tiny_checkpoint)
    (finding,) = report.findings
    assert "output.weight is not what the checkpoint holds: 1 of 48 blocks" in finding.message
    assert "first at byte 102" in finding.message


def test_float16(converted: Path, tiny_checkpoint: Path) -> None:
    exact = (tiny_tensors()["lm_head.weight"][1].astype(np.uint32) << 16).view(np.float32)
    half = exact.astype(np.float16)
    path = rewritten(converted, output__weight=Tensor(F16, (24, 64), half.view(np.uint8).ravel()))
    assert classes(verify_model(path, against=tiny_checkpoint))["head"].n_equal == 1
    half[3, 5] += half[3, 5] / 256
    path = rewritten(converted, output__weight=Tensor(F16, (24, 64), half.view(np.uint8).ravel()))
    assert "1 of 1,536 values" in messages(verify_model(path, against=tiny_checkpoint))


def test_mxfp4_made_f32(converted: Path, tiny_checkpoint: Path) -> None:
    tensor = read_gguf(converted).tensors["blk.0.ffn_up_exps.weight"]
    wide = Tensor(F32, tensor.shape, tensor.values().reshape(-1).view(np.uint8))
    path = rewritten(converted, blk__0__ffn_up_exps__weight=wide)
    report = verify_model(path, against=tiny_checkpoint)
    assert report.is_proven, report.findings
    assert {tensor.match for tensor in report.tensors} <= {"equal", "rounded"}  # zeros' signs
    assert classes(report)["experts"].worst_error == 0


@pytest.mark.parametrize("layout", ["hugging_face", "original"])
def test_shards_that_arrive_and_go(tmp_path: Path, layout: Layout) -> None:
    """One is gone as soon as nothing is left to compare with it; partners are in other shards."""
    source, away = tmp_path / "source", tmp_path / "away"
    write_tiny(source, layout=layout, n_shards=4)
    write_tokenizer(source)
    (path,) = convert_checkpoint(source, tmp_path / "m.gguf")
    shards = sorted(source.glob("*.safetensors"))
    away.mkdir()
    for shard in shards:
        shard.rename(away / shard.name)
    used: list[Path] = []
    n_held = []

    def arrivals() -> Any:
        for shard in shards:
            n_held.append(len(list(source.glob("*.safetensors"))))
            yield Path(shutil.copy(away / shard.name, source))

    def on_used(shard: Path) -> None:
        shard.unlink()
        used.append(shard)

    report = verify_model(path, against=source, arrivals=arrivals(), on_used=on_used)
    assert report.is_proven, report.findings
    assert {tensor.match for tensor in report.tensors} == {"equal"}
    assert sorted(used) == shards
    assert max(n_held) < 3
    first = [Path(shutil.copy(away / shards[0].name, source))]
    with pytest.raises(ConvertError, match="never arrived"):
        verify_model(path, against=source, arrivals=first)


@pytest.mark.nightly
def test_nano_against_its_checkpoint(nano_checkpoint: Path, q8_0_gguf: Path) -> None:
    """The rows of its embedding are not cut where its blocks are."""
    report = verify_model(q8_0_gguf, against=nano_checkpoint)
    assert report.is_proven, report.findings
    assert {tensor.match for tensor in report.tensors} == {"equal"}


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with rows long enough for K-quants."""
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
    """Equal values per layer are read as a number, by the plan as by llama.cpp."""
    folder, file = tiny
    keys = without_sums(file)
    write_gguf(tmp_path / "plain.gguf", keys, file.tensors)
    write_gguf(tmp_path / "m.gguf", keys | OTHER_KEYS[name], file.tensors)
    assert verify_model(tmp_path / "m.gguf", tokenizer=folder).findings == []
    assert read_facts(tmp_path / "m.gguf") == read_facts(tmp_path / "plain.gguf")


def test_text_that_is_not_utf_8(tiny: tuple[Path, GgufFile], tmp_path: Path) -> None:
    """llama.cpp does not look at it either."""
    folder, file = tiny
    text = r"C:\Modèles\imatrix.dat".encode("latin-1")
    keys = without_sums(file) | {"quantize.imatrix.file": ("STRING", "A" * len(text))}
    path = tmp_path / "Author_latin1.gguf"
    write_gguf(path, keys, file.tensors)
    path.write_bytes(path.read_bytes().replace(b"A" * len(text), text))
    info = read_info(path)
    assert info.metadata["quantize.imatrix.file"] == "C:\\Mod\ufffdles\\imatrix.dat"
    assert info.quantization == "MXFP4"
    assert verify_model(path, tokenizer=folder).findings == []
