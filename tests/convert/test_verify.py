"""`verify` without a checkpoint: it finds every kind of damage, and nothing else."""

import re
import struct
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st

from convert import convert_checkpoint
from convert.verify import Report, verify_model
from gptoss_local.base.errors import ModelNotFoundError
from gptoss_local.base.formats.gguf_file import read_info
from gptoss_local.base.formats.o200k import MERGES_SHA256, derive_merges, parse_ranks
from gptoss_local.models.nano.ranks import load_ranks
from tests.convert.gguf_file import GgufFile, Tensor, read_gguf
from tests.convert.tiny import tiny_config, write_tiny
from tests.convert.write_gguf import without_sums, write_gguf
from tests.nano.tiktoken_file import render_tiktoken


class Model:
    """A converted checkpoint whose bytes tests may change; every variant is a file of its own."""

    def __init__(self, folder: Path, name: str, **options: Any) -> None:
        experts = options.pop("source_experts", "mxfp4")
        self.source = write_tiny(folder / f"{name}-source", experts=experts)
        (self.path,) = convert_checkpoint(self.source, folder / f"{name}.gguf", **options)
        self.data = self.path.read_bytes()
        self.info = read_info(self.path)
        self.data_start = -(-self.info.n_header_bytes // 32) * 32
        self._n = 0

    def verify(self, data: bytes, *, against: bool = False) -> Report:
        self._n += 1
        path = self.path.with_name(f"{self.path.stem}-{self._n}.gguf")
        path.write_bytes(data)
        try:
            source = self.source if against else None
            return verify_model(path, against=source, tokenizer=self.source, n_workers=1)
        finally:
            path.unlink()

    def flip(self, at: int, bit: int) -> bytes:
        changed = bytearray(self.data)
        changed[at] ^= 1 << bit
        return bytes(changed)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Model]:
    """Together they hold tensors of every type that we write."""
    folder = tmp_path_factory.mktemp("models")
    return [
        Model(folder, "q8_0"),
        Model(folder, "bf16", dense="bf16", source_experts="bf16", experts="bf16"),
    ]


@pytest.fixture(scope="module")
def model(models: list[Model]) -> Model:
    return models[0]


def messages(report: Report) -> str:
    return "\n".join(finding.message for finding in report.findings)


def test_a_right_file_is_proven(models: list[Model]) -> None:
    types = set()
    for model in models:
        report = verify_model(model.path, tokenizer=model.source)
        assert report.is_proven, report.findings
        assert report.notes == []
        assert report.n_bytes == sum(tensor.size_bytes for tensor in report.tensors)
        assert all(tensor.is_sum_right for tensor in report.tensors)
        types |= {tensor.type for tensor in report.tensors}
    assert types == {"F32", "BF16", "Q8_0", "MXFP4"}


@given(data=st.data())
@settings(max_examples=60)
def test_any_flipped_bit_of_data_and_padding(models: list[Model], data: st.DataObject) -> None:
    model = data.draw(st.sampled_from(models))
    at = data.draw(st.integers(model.info.n_header_bytes, len(model.data) - 1))
    report = model.verify(model.flip(at, data.draw(st.integers(0, 7))))
    (finding, *more) = report.findings
    held = [t for t in model.info.tensors if model.data_start + t.offset <= at]
    if finding.where == "padding":
        assert "is not zero" in finding.message
    else:
        assert held[-1].name == finding.where
    assert {each.where for each in more} <= {finding.where}


def test_a_flipped_bit_of_every_tensor(models: list[Model]) -> None:
    for model in models:
        for i, tensor in enumerate(model.info.tensors):
            changed = model.flip(model.data_start + tensor.offset + i % 4, i % 8)
            assert tensor.name in {f.where for f in model.verify(changed).findings}


def test_flipped_bits_of_the_header(model: Model) -> None:
    """With the checkpoint at hand only names of no consequence go unseen."""
    rng = np.random.default_rng(0)
    harmless = (b"general.", b"yarn_beta", b".add_", b"gptoss.tensor_sums", b"padding_token_id")
    for at in rng.integers(0, model.info.n_header_bytes, 120):
        report = model.verify(model.flip(int(at), int(rng.integers(8))), against=True)
        if report.is_proven:
            around = model.data[max(0, at - 120) : at + 30]
            assert any(key in around for key in harmless), around


@given(data=st.data())
@settings(max_examples=40)
def test_any_header_gives_a_report(model: Model, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, model.info.n_header_bytes - 8))
    word = data.draw(st.one_of(st.binary(min_size=8, max_size=8), st.just(b"\xff" * 8)))
    changed = model.data[:at] + word + model.data[at + 8 :]
    assert isinstance(model.verify(changed, against=True), Report)


@given(data=st.data())
@settings(max_examples=40)
def test_cut_off_anywhere(model: Model, data: st.DataObject) -> None:
    n_bytes = data.draw(st.integers(0, len(model.data) - 1))
    found = messages(model.verify(model.data[:n_bytes]))
    assert ("is cut off" in found) == (n_bytes >= model.info.n_header_bytes)
    assert found


def test_a_tail(model: Model) -> None:
    found = model.verify(model.data + b"\1")
    assert messages(found) == "The file has 1 bytes after the end of its tensors."


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"none\.gguf"):
        verify_model(tmp_path / "none.gguf")


INFINITE = {
    "blk.0.ffn_up_exps.weight": b"\xff",  # E8M0's NaN
    "blk.0.ffn_down_exps.weight": b"\xfd",  # values beyond float32
    "output.weight": struct.pack("<e", float("inf")),  # of a Q8_0 block
    "blk.0.attn_sinks.weight": struct.pack("<f", float("nan")),
}


@pytest.mark.parametrize("name", INFINITE)
def test_infinite_values_are_found(model: Model, tmp_path: Path, name: str) -> None:
    """In a file without checksums, as another program writes it."""
    file = read_gguf(model.path)
    tensor, block = file.tensors[name], INFINITE[name]
    data, n_block_bytes = tensor.data.copy(), GGML_QUANT_SIZES[tensor.qtype][1]
    data[n_block_bytes : n_block_bytes + len(block)] = np.frombuffer(block, np.uint8)
    changed = file.tensors | {name: Tensor(tensor.qtype, tensor.shape, data)}
    write_gguf(tmp_path / "m.gguf", without_sums(file), changed)
    report = verify_model(tmp_path / "m.gguf", tokenizer=model.source)
    at = f"{name} holds a value or a scale that is not finite, at byte {n_block_bytes} of its data."
    assert messages(report) == at
    assert report.notes == ["no checksums in the file; use --against to prove its data"]


@pytest.mark.parametrize("qtype", [GGMLQuantizationType.F16, GGMLQuantizationType.BF16])
def test_other_dense_types_not_finite(
    model: Model, tmp_path: Path, qtype: GGMLQuantizationType
) -> None:
    file = read_gguf(model.path)
    tensor = file.tensors["output.weight"]
    for value, n_findings in ((0x3C00, 0), (0x7F80, 1)):  # NaN as float16, infinity as bf16
        data = np.full(tensor.shape, value, np.uint16).view(np.uint8).reshape(-1)
        changed = file.tensors | {"output.weight": Tensor(qtype, tensor.shape, data)}
        write_gguf(tmp_path / f"{value}.gguf", without_sums(file), changed)
        report = verify_model(tmp_path / f"{value}.gguf", tokenizer=model.source)
        assert len(report.findings) == n_findings


def edited(file: GgufFile, **tensors: Tensor | None) -> dict[str, Tensor]:
    found: dict[str, Tensor | None] = {**file.tensors}
    found |= {name.replace("__", "."): tensor for name, tensor in tensors.items()}
    return {name: tensor for name, tensor in found.items() if tensor is not None}


def test_tensors_that_do_not_belong(model: Model, tmp_path: Path) -> None:
    file = read_gguf(model.path)
    norm = file.tensors["output_norm.weight"]
    half = Tensor(norm.qtype, (32,), norm.data[:128])
    as_f16 = Tensor(GGMLQuantizationType.F16, norm.shape, norm.data[:128])
    cases = {
        "1 tensors are missing, the first is output_norm.weight.": edited(
            file, output_norm__weight=None
        ),
        "gpt-oss has no tensor rope.weight, or has it once only.": edited(file, rope__weight=norm),
        "output_norm.weight is [32] where the keys call for [64].": edited(
            file, output_norm__weight=half
        ),
        "output_norm.weight is of type F16; llama.cpp needs F32 there.": edited(
            file, output_norm__weight=as_f16
        ),
    }
    for i, (message, tensors) in enumerate(cases.items()):
        path = tmp_path / f"{i}.gguf"
        write_gguf(path, without_sums(file), tensors)
        assert messages(verify_model(path, tokenizer=model.source)) == message


KEYS: dict[str, tuple[tuple[str, Any] | None, str]] = {
    "gpt-oss.block_count": (("UINT32", 2), "tensors are missing"),
    "gpt-oss.attention.head_count": (None, "'gpt-oss.attention.head_count' is missing"),
    "gpt-oss.attention.head_count_kv": (("UINT32", 2), "not a multiple of the 2 key-value heads"),
    "gpt-oss.attention.value_length": (("UINT32", 64), "but gpt-oss.attention.key_length is 32"),
    "gpt-oss.expert_count": (("UINT32", 4), r"where the keys call for \[64, 4\]"),
    "gpt-oss.expert_used_count": (("INT32", 2), "is not of type UINT32"),
    "gpt-oss.embedding_length": (("UINT32", 65), "not a multiple of 32"),
    "gpt-oss.rope.freq_base": (("FLOAT32", -1.0), "gpt-oss.rope.freq_base"),
    "general.alignment": (("STRING", "32"), "The alignment 32 is not plausible"),
    "tokenizer.ggml.pre": (("STRING", "gpt-2"), "needs gpt-4o"),
    "tokenizer.ggml.bos_token_id": (("UINT32", 3), "special ids is not that of the checkpoint"),
    "tokenizer.ggml.token_type": (("ARRAY/INT32", [1]), "There are 1 types for 24 tokens"),
    "tokenizer.ggml.tokens": (("ARRAY/STRING", ["a"]), "holds the token id 22; vocab_size is 1"),
    "gptoss.tensor_sums": (("ARRAY/UINT64", [1]), "does not hold one checksum for each tensor"),
}


@pytest.mark.parametrize("key", KEYS)
def test_keys(model: Model, tmp_path: Path, key: str) -> None:
    file = read_gguf(model.path)
    value, match = KEYS[key]
    changed = {k: v for k, v in file.keys.items() if k != key}
    if value is not None:
        changed[key] = value
    write_gguf(tmp_path / "m.gguf", changed, file.tensors)
    report = verify_model(tmp_path / "m.gguf", tokenizer=model.source)
    assert re.search(match, messages(report)), messages(report)


def test_the_hash_of_the_merges() -> None:
    tokens = parse_ranks(render_tiktoken(load_ranks()))
    ranks = {text: rank for rank, text in enumerate(tokens)}
    lines = "\n".join(f"{left} {right}" for left, right in derive_merges(ranks))
    assert sha256(lines.encode()).hexdigest() == MERGES_SHA256


def test_nano_is_proven_by_its_vocabulary(q8_0_gguf: Path) -> None:
    report = verify_model(q8_0_gguf)
    assert report.is_proven, report.findings


def test_a_vocabulary_that_is_not_o200k(q8_0_gguf: Path, tmp_path: Path) -> None:
    """A token, a special token, a merge."""
    length = b"\x05\0\0\0\0\0\0\0"
    data = q8_0_gguf.read_bytes()
    cases = {
        "The tokens differ": ("\u0120the".encode(), "\u0120teh".encode()),
        "Token 200012 is '<|cull|>'": (b"<|call|>", b"<|cull|>"),
        "The merges differ": (length + "\u0120 t".encode(), length + "\u0120 u".encode()),
    }
    for i, (message, (old, new)) in enumerate(cases.items()):
        assert old in data
        path = tmp_path / f"{i}.gguf"
        path.write_bytes(data.replace(old, new, 1))
        assert message in messages(verify_model(path))
        path.unlink()


def test_another_vocabulary_without_its_source(model: Model) -> None:
    report = verify_model(model.path)
    assert report.findings == []
    assert report.notes == [
        "its 24 tokens are not gpt-oss's, and are not checked without the checkpoint"
    ]


class Split:
    """A model in several files."""

    def __init__(self, folder: Path) -> None:
        config = tiny_config(num_hidden_layers=3)
        self.source = write_tiny(folder / "source", config=config)
        self.paths = convert_checkpoint(self.source, folder / "m.gguf", max_shard_bytes=40_000)
        assert len(self.paths) > 2


@pytest.fixture
def split(tmp_path: Path) -> Split:
    return Split(tmp_path)


def test_split_files_given_any(split: Split) -> None:
    for path in split.paths:
        report = verify_model(path, against=split.source)
        assert report.is_proven, report.findings
        assert report.files == split.paths


def test_a_part_is_missing(split: Split) -> None:
    for missing in (0, 1):
        hidden = split.paths[missing].rename(split.paths[missing].with_suffix(".away"))
        report = verify_model(split.paths[2], tokenizer=split.source)
        assert f"are missing, the first is {split.paths[missing].name}" in messages(report)
        hidden.rename(split.paths[missing])


def test_parts_exchanged(split: Split) -> None:
    a, b = split.paths[1], split.paths[2]
    content = a.read_bytes()
    b.replace(a)
    b.write_bytes(content)
    found = messages(verify_model(split.paths[0], tokenizer=split.source))
    assert "split.no is 2 where 1 is expected" in found


def test_a_part_alone(split: Split, tmp_path: Path) -> None:
    alone = split.paths[0].rename(tmp_path / "alone.gguf")
    n = len(split.paths)
    found = messages(verify_model(alone, tokenizer=split.source))
    assert f"split.count is {n} where 1 is expected" in found
