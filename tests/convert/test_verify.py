"""`verify` without a checkpoint: it finds every kind of damage, and nothing else."""

import re
import struct
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from hypothesis import given
from hypothesis import strategies as st

from convert import convert_checkpoint
from convert.verify import Report, verify_model
from gptoss_local.base.errors import ModelNotFoundError
from gptoss_local.base.formats.gguf_file import read_array, read_info
from gptoss_local.base.formats.o200k import CHAR_OF_BYTE, MERGES_SHA256, derive_merges
from gptoss_local.models.nano.ranks import load_ranks
from tests.convert.gguf_file import Tensor, read_gguf
from tests.convert.tiny import tiny_config, write_tiny
from tests.convert.write_gguf import without_sums, write_gguf


class Model:
    """A converted checkpoint; tests may change its bytes; every variant is a file of its own."""

    def __init__(self, folder: Path, name: str, **options: Any) -> None:
        experts = options.pop("source_experts", "mxfp4")
        self.source = write_tiny(folder / f"{name}-source", experts=experts)
        (self.path,) = convert_checkpoint(self.source, folder / f"{name}.gguf", **options)
        self.data = self.path.read_bytes()
        self.info = read_info(self.path)
        self.data_start = -(-self.info.n_header_bytes // 32) * 32

    def verify(self, data: bytes, *, against: bool = False) -> Report:
        path = self.path.with_name(f"{self.path.stem}-changed.gguf")
        path.write_bytes(data)
        source = self.source if against else None
        return verify_model(path, against=source, tokenizer=self.source, n_workers=1)

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
    report = verify_model(models[0].path)
    assert report.findings == []
    assert report.notes == [
        "its 24 tokens are not gpt-oss's, and are not checked without the checkpoint"
    ]


@given(data=st.data())
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


HARMLESS = re.compile(
    r"general\..*|.*yarn_beta.*|.*\.add_.*|gptoss\.tensor_sums.*|.*padding_token_id"
    r"|gpt-oss\.feed_forward_length"  # llama.cpp reads the experts' own
)


@given(data=st.data())
def test_any_header_gives_a_report(model: Model, data: st.DataObject) -> None:
    """With the checkpoint at hand only keys of no consequence and roundings go unseen."""
    at = data.draw(st.integers(0, model.info.n_header_bytes - 8))
    flipped = st.integers(0, 7).map(lambda bit: model.flip(at, bit)[at : at + 8])
    word = data.draw(flipped | st.binary(min_size=8, max_size=8) | st.just(b"\xff" * 8))
    changed = model.data[:at] + word + model.data[at + 8 :]
    report = model.verify(changed, against=True)
    if report.is_proven:
        stated = read_header(report.files[0])
        for key, value in read_header(model.path).items():
            rounded = isinstance(value, float) and stated.get(key) == pytest.approx(value, rel=1e-5)
            assert stated.get(key) == value or rounded or HARMLESS.fullmatch(key), key


def read_header(path: Path) -> dict[str, Any]:
    info = read_info(path)
    arrays = {key: read_array(path, key) for key, v in info.metadata.items() if v is None}
    return info.metadata | arrays | {"tensors": info.tensors}


@given(data=st.data())
def test_cut_off_anywhere(model: Model, data: st.DataObject) -> None:
    n_bytes = data.draw(st.integers(0, len(model.data) - 1))
    found = messages(model.verify(model.data[:n_bytes]))
    assert ("is cut off" in found) == (n_bytes >= model.info.n_header_bytes)
    assert found


def test_a_tail_or_no_file(model: Model, tmp_path: Path) -> None:
    """llama.cpp does not look behind the tensors, where others write zeros."""
    found = model.verify(model.data + b"\1")
    assert messages(found) == "The file has 1 bytes after the end of its tensors."
    assert model.verify(model.data + bytes(4096)).findings == []
    assert len(model.verify(model.data + bytes(4096) + b"\1").findings) == 1
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


F16, F32 = GGMLQuantizationType.F16, GGMLQuantizationType.F32


def dense(qtype: GGMLQuantizationType, value: int) -> Tensor:
    return Tensor(qtype, (24, 64), np.full(24 * 64, value, np.uint16).view(np.uint8))


TENSORS: dict[str, tuple[dict[str, Tensor | None], str]] = {
    "missing": ({"output_norm.weight": None}, "1 tensors are missing, the first is output_norm"),
    "too many": (
        {"rope.weight": Tensor(F32, (64,), np.zeros(256, np.uint8))},
        "gpt-oss has no tensor rope.weight, or has it once only.",
    ),
    "too short": (
        {"output_norm.weight": Tensor(F32, (32,), np.zeros(128, np.uint8))},
        "output_norm.weight is [32] where the keys call for [64].",
    ),
    "of another type": (
        {"output_norm.weight": Tensor(F16, (64,), np.zeros(128, np.uint8))},
        "output_norm.weight is of type F16; llama.cpp needs F32 there.",
    ),
    "F16": ({"output.weight": dense(F16, 0x3C00)}, ""),
    "F16, NaN": ({"output.weight": dense(F16, 0x7F80)}, "output.weight holds a value"),
    "BF16": ({"output.weight": dense(GGMLQuantizationType.BF16, 0x3C00)}, ""),
    "BF16, infinite": (
        {"output.weight": dense(GGMLQuantizationType.BF16, 0x7F80)},
        "output.weight holds a value",
    ),
}


@pytest.mark.parametrize("name", TENSORS)
def test_other_tensors(model: Model, tmp_path: Path, name: str) -> None:
    changes, message = TENSORS[name]
    file = read_gguf(model.path)
    tensors = {n: t for n, t in (file.tensors | changes).items() if t is not None}
    write_gguf(tmp_path / "m.gguf", without_sums(file), tensors)
    report = verify_model(tmp_path / "m.gguf", tokenizer=model.source)
    assert messages(report).startswith(message)
    assert len(report.findings) == bool(message)


KEYS: dict[str, tuple[tuple[str, Any] | None, str]] = {
    "gpt-oss.block_count": (("UINT32", 2), "tensors are missing"),
    "gpt-oss.attention.head_count": (None, "'gpt-oss.attention.head_count' is missing"),
    "gpt-oss.attention.head_count_kv": (("UINT32", 2), "not a multiple of the 2 key-value heads"),
    "gpt-oss.attention.value_length": (("UINT32", 64), "but gpt-oss.attention.key_length is 32"),
    "gpt-oss.expert_count": (("UINT32", 4), r"where the keys call for \[64, 4\]"),
    "gpt-oss.expert_used_count": (("INT32", 2), "is not of type UINT32"),
    "gpt-oss.embedding_length": (("UINT32", 65), "not a multiple of 32"),
    "gpt-oss.rope.freq_base": (("FLOAT32", -1.0), "gpt-oss.rope.freq_base"),
    "general.alignment": (("STRING", "32"), "general.alignment is 32; .* of type UINT32"),
    "tokenizer.ggml.merges": (("ARRAY/INT32", [1]), "merges of another type than llama.cpp reads"),
    "tokenizer.ggml.eos_token_id": (("UINT64", 21), "eos_token_id is not of type UINT32"),
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


@pytest.mark.parametrize(
    ("key", "value", "note"),
    [
        ("tokenizer.chat_template", ("STRING", "<|im_start|>"), "chat template is not harmony's"),
        ("general.sampling.temp", ("FLOAT32", 0.6), "general.sampling.temp: not used here"),
    ],
)
def test_what_is_for_other_programs_is_named(
    model: Model, tmp_path: Path, key: str, value: Any, note: str
) -> None:
    file = read_gguf(model.path)
    write_gguf(tmp_path / "m.gguf", file.keys | {key: value}, file.tensors)
    report = verify_model(tmp_path / "m.gguf", tokenizer=model.source)
    assert report.is_proven
    assert [note in each for each in report.notes] == [True]


@pytest.mark.nightly
def test_the_hash_of_the_merges() -> None:
    tokens = (token.decode("latin-1").translate(CHAR_OF_BYTE) for token in load_ranks())
    ranks = {text: rank for rank, text in enumerate(tokens)}
    lines = "\n".join(f"{left} {right}" for left, right in derive_merges(ranks))
    assert sha256(lines.encode()).hexdigest() == MERGES_SHA256


def test_the_vocabulary_is_o200k(q8_0_gguf: Path, tmp_path: Path) -> None:
    """All of it is; with another token, special token or merge it is not."""
    report = verify_model(q8_0_gguf)
    assert report.is_proven, report.findings
    length = b"\x05\0\0\0\0\0\0\0"
    data, path = q8_0_gguf.read_bytes(), tmp_path / "m.gguf"
    for old, new in (
        ("\u0120the".encode(), "\u0120teh".encode()),
        (b"<|call|>", b"<|cull|>"),
        (length + "\u0120 t".encode(), length + "\u0120 u".encode()),
    ):
        assert old in data
        data = data.replace(old, new, 1)
    path.write_bytes(data)
    found = messages(verify_model(path))
    for message in ("The tokens differ", "Token 200012 is '<|cull|>'", "The merges differ"):
        assert message in found


def exchange(paths: list[Path]) -> None:
    content = paths[1].read_bytes()
    paths[2].replace(paths[1])
    paths[2].write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda paths: None, ""),
        (lambda paths: paths[0].rename(paths[0].with_suffix(".away")), "the first is m-00001-of"),
        (lambda paths: paths[1].rename(paths[1].with_suffix(".away")), "the first is m-00002-of"),
        (exchange, "split.no is 2 where 1 is expected"),
    ],
)
def test_split_files_given_any(
    tmp_path: Path, damage: Callable[[list[Path]], object], message: str
) -> None:
    source = write_tiny(tmp_path / "source", config=tiny_config(num_hidden_layers=3))
    paths = convert_checkpoint(source, tmp_path / "m.gguf", max_shard_bytes=40_000)
    assert len(paths) > 2
    damage(paths)
    for path in filter(Path.exists, paths):
        report = verify_model(path, against=source)
        assert message in messages(report)
        assert report.is_proven == (not message), report.findings
        assert message or report.files == paths


def test_a_part_alone(tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "source", config=tiny_config(num_hidden_layers=3))
    paths = convert_checkpoint(source, tmp_path / "m.gguf", max_shard_bytes=40_000)
    alone = paths[0].rename(tmp_path / "alone.gguf")
    found = messages(verify_model(alone, tokenizer=source))
    assert f"split.count is {len(paths)} where 1 is expected" in found
