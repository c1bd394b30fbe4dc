"""`verify` with the checkpoint at hand proves every tensor of any program's file."""

import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

from convert import DenseType, ExpertType, convert_checkpoint
from convert.tensor_types import Q8_0 as Q8_0_TYPE
from convert.verify import ClassReport, Report, verify_model
from gptoss_local.base.errors import ConvertError
from tests.convert.gguf_file import GgufFile, Tensor, read_gguf
from tests.convert.large import MEDIUM, write_large
from tests.convert.tiny import (
    Experts,
    Layout,
    tiny_config,
    tiny_tensors,
    write_tiny,
    write_tokenizer,
)
from tests.convert.write_gguf import without_sums, write_gguf

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


@pytest.mark.parametrize("layout", ["hugging_face", "original"])
@pytest.mark.parametrize(
    ("experts", "kept"), [("mxfp4", "mxfp4"), ("bf16", "mxfp4"), ("bf16", "bf16")]
)
@pytest.mark.parametrize("dense", ["q8_0", "bf16"])
def test_our_conversions_are_proven(
    tmp_path: Path,
    layout: Layout,
    experts: Experts,
    kept: ExpertType,
    dense: DenseType,
) -> None:
    config = tiny_config(num_hidden_layers=2)
    source = tmp_path / "source"
    write_tiny(source, config=config, layout=layout, experts=experts, n_shards=3)
    write_tokenizer(source)
    (path,) = convert_checkpoint(source, tmp_path / "m.gguf", dense=dense, experts=kept)
    report = verify_model(path, against=source)
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
    exact = exact * np.float32(1)
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


def fused(file: GgufFile) -> dict[str, Tensor]:
    """With q, k and v in one tensor, as `--fuse-qkv` of llama.cpp's converter writes it."""
    tensors = dict(file.tensors)
    for kind in ("weight", "bias"):
        parts = [tensors.pop(f"blk.0.attn_{part}.{kind}") for part in "qkv"]
        shape = (sum(part.shape[0] for part in parts), *parts[0].shape[1:])
        data = np.concatenate([part.data for part in parts])
        tensors[f"blk.0.attn_qkv.{kind}"] = Tensor(parts[0].qtype, shape, data)
    return tensors


def test_fused_qkv(converted: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    file = read_gguf(converted)
    write_gguf(tmp_path / "fused.gguf", without_sums(file), fused(file))
    report = verify_model(tmp_path / "fused.gguf", against=tiny_checkpoint)
    assert report.is_proven, report.findings
    assert classes(report)["attention"].n_equal == 5
    data = bytearray((tmp_path / "fused.gguf").read_bytes())
    data[-40] ^= 0x80  # the bias comes last: this is of v
    (tmp_path / "fused.gguf").write_bytes(data)
    report = verify_model(tmp_path / "fused.gguf", against=tiny_checkpoint)
    assert [finding.where for finding in report.findings] == ["blk.0.attn_qkv.bias"]


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


def test_a_shard_that_never_arrives(tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "source", n_shards=2)
    (path,) = convert_checkpoint(source, tmp_path / "m.gguf")
    with pytest.raises(ConvertError, match="never arrived"):
        verify_model(path, against=source, arrivals=[next(source.glob("*.safetensors"))])


def test_a_broken_checkpoint(converted: Path, tiny_checkpoint: Path) -> None:
    weights = tiny_checkpoint / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ConvertError, match=r"model\.safetensors"):
        verify_model(converted, against=tiny_checkpoint)


def test_nano_against_its_checkpoint(nano_checkpoint: Path, q8_0_gguf: Path) -> None:
    """The rows of its embedding are not cut where its blocks are."""
    calls: list[tuple[int, int]] = []
    report = verify_model(
        q8_0_gguf, against=nano_checkpoint, progress=lambda _, *call: calls.append(call)
    )
    assert report.is_proven, report.findings
    assert {tensor.match for tensor in report.tensors} == {"equal"}
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert calls[-1][0] == calls[-1][1] == report.n_bytes


def test_pieces_may_be_cut_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_tiny(tmp_path / "source", experts="bf16")
    (path,) = convert_checkpoint(source, tmp_path / "m.gguf")
    for n_bytes in (64, 700, 5000):
        monkeypatch.setattr("convert.pieces.CHUNK_BYTES", 3 * n_bytes)
        monkeypatch.setattr("convert.pieces.PIECE_BYTES", n_bytes)
        monkeypatch.setattr("convert.verify.scan.CHUNK_BYTES", 34 * 17 * 8 * 2)
        monkeypatch.setattr("convert.verify.scan.PIECE_BYTES", 34 * 17 * 8)
        assert verify_model(path, against=source).is_proven
        assert verify_model(path, tokenizer=source).is_proven


def test_memory_does_not_grow_with_the_model(tmp_path: Path) -> None:
    """536 MB of tensors, written as sparse files."""
    sizes = MEDIUM | {"vocab_size": 1 << 16, "hidden_size": 2048}
    source = write_large(tmp_path / "large", sizes, sparse=True)
    (path,) = convert_checkpoint(source, tmp_path / "m.gguf", dense="bf16")
    tracemalloc.start()
    try:
        assert verify_model(path, against=source).is_proven
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64_000_000
