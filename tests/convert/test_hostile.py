"""Broken weights: a clear ConvertError, and nothing of ours left behind."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from convert import DenseType, ExpertType
from tests.convert.refusing import header_of, refuse
from tests.convert.tiny import tiny_tensors, write_safetensors, write_tiny

LAYER = "model.layers.0"
EXPERTS = f"{LAYER}.mlp.experts.down_proj"
BLOCKS = f"{EXPERTS}_blocks"


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (lambda data: data[:-1], r"holds \d+ bytes of tensors where its header promises \d+"),
        (lambda data: data + b"\0", r"holds \d+ bytes of tensors where its header promises \d+"),
        (lambda data: data[:100], "too short for its own header"),
        (lambda data: data[:5], "too short for its own header"),
        (lambda data: b"", "too short for its own header"),
        (lambda data: b"\xff" * 8 + data[8:], "too short for its own header"),
        (lambda data: data[:8] + b"[" + data[9:], "no valid safetensors header"),
        (lambda data: data.replace(b'"shape"', b'"shame"', 1), "no valid safetensors header"),
        (lambda data: data.replace(b"[24,64]", b"[24,65]", 1), "misplaces the tensor"),
        (lambda data: data.replace(b"[24,64]", b"[-4,64]", 1), "no valid safetensors header"),
        (
            lambda data: data.replace(b"lm_head.weight", b"lm_head.wei\xffht"),
            "no valid safetensors",
        ),
        (lambda data: with_header(data, b"[" * 100_000), "header: it nests too deeply"),
        (lambda data: with_header(data, b'{"a":' * 100_000), "header: it nests too deeply"),
        (lambda data: with_header(data, b'{"a":{"shape":[%s]}}' % (b"1," * 99)), "no valid safe"),
    ],
)
def test_damaged_safetensors(
    tiny_checkpoint: Path, damage: Callable[[bytes], bytes], match: str
) -> None:
    path = tiny_checkpoint / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    refuse(tiny_checkpoint, match)


def with_header(data: bytes, header: bytes) -> bytes:
    n_header = int.from_bytes(data[:8], "little")
    return len(header).to_bytes(8, "little") + header + data[8 + n_header :]


def test_name_given_twice(tiny_checkpoint: Path) -> None:
    """JSON readers keep the first or the last, so two programs would see two models."""
    path = tiny_checkpoint / "model.safetensors"
    data = path.read_bytes()
    head = msgspec.json.encode(header_of(data))
    entry = msgspec.json.encode(header_of(data)["model.norm.weight"])
    path.write_bytes(with_header(data, head[:-1] + b',"model.norm.weight":' + entry + b"}"))
    refuse(tiny_checkpoint, "header: it names 'model.norm.weight' twice")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_gigabytes_of_header_are_not_read(tiny_checkpoint: Path, name: str) -> None:
    n_bytes = 5 << 30
    with (tiny_checkpoint / name).open("wb") as file:  # sparse: takes no disk
        file.write((n_bytes - 8).to_bytes(8, "little"))
        file.truncate(n_bytes)
    tracemalloc.start()
    refuse(tiny_checkpoint, rf"{name} (has a header of|has an implausible size|is too long)")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000


def test_overlapping_tensors(tiny_checkpoint: Path) -> None:
    """Two names for the same bytes would be read as two weights."""
    path = tiny_checkpoint / "model.safetensors"
    data = path.read_bytes()
    n_head = int.from_bytes(data[:8], "little")
    header = msgspec.json.decode(data[8 : 8 + n_head])
    header["lm_head.weight"] = header["model.embed_tokens.weight"]
    head = msgspec.json.encode(header)
    path.write_bytes(len(head).to_bytes(8, "little") + head + data[8 + n_head :])
    refuse(tiny_checkpoint, "misplaces the tensor")


def test_no_weights(tiny_checkpoint: Path) -> None:
    (tiny_checkpoint / "model.safetensors").unlink()
    refuse(tiny_checkpoint, "holds neither model.safetensors nor")


def test_no_folder(tmp_path: Path) -> None:
    refuse(tmp_path / "missing", "There is no folder")


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda t: t.pop(f"{LAYER}.self_attn.sinks"), "lacks the tensor model.layers.0.self_attn"),
        (lambda t: [t.pop(n) for n in list(t)[:3]], "lacks the tensor lm_head.weight and 2 more"),
        (lambda t: t.pop(BLOCKS), "lacks the tensor .*down_proj_blocks"),
        (lambda t: t.update(extra=t["model.norm.weight"]), "holds the tensor extra, which gpt-oss"),
        (lambda t: t.update({BLOCKS: ("U8", t[BLOCKS][1][1:])}), r"is U8 \[4, 64, 1, 16\] where"),
        (
            lambda t: t.update({"model.norm.weight": ("F64", np.zeros(64, np.float64))}),
            r"model.norm.weight in .* is F64, in which no gpt-oss is published",
        ),
        (
            lambda t: t.update({BLOCKS: ("BF16", np.zeros((5, 64, 1, 16), np.uint16))}),
            "is BF16 .* where .* calls for U8",
        ),
    ],
)
def test_wrong_tensors(tiny_checkpoint: Path, edit: Callable[[Any], object], match: str) -> None:
    tensors = tiny_tensors()
    edit(tensors)
    write_safetensors(tiny_checkpoint / "model.safetensors", tensors)
    refuse(tiny_checkpoint, match)


@pytest.mark.parametrize("name", ["lm_head.weight", "model.norm.weight", f"{EXPERTS}_bias"])
@pytest.mark.parametrize("dense", ["q8_0", "bf16"])
@pytest.mark.parametrize("bits", [0x7FC0, 0xFF80])
def test_not_a_number_in_a_weight(
    tiny_checkpoint: Path, name: str, dense: DenseType, bits: int
) -> None:
    """Found while writing, so the unfinished file must go."""
    tensors = tiny_tensors()
    tensors[name][1].reshape(-1)[-2] = bits
    write_safetensors(tiny_checkpoint / "model.safetensors", tensors)
    match = f"{name} in .* cannot become .*: a value is not finite"
    refuse(tiny_checkpoint, match, dense=dense)


@pytest.mark.parametrize("experts", ["mxfp4", "bf16"])
def test_not_a_number_in_a_bf16_expert(tmp_path: Path, experts: ExpertType) -> None:
    tensors = tiny_tensors(experts="bf16")
    tensors[EXPERTS][1][4, 30, 60] = 0x7F80
    folder = write_tiny(tmp_path / "tiny", tensors=tensors)
    refuse(folder, "down_proj in .* cannot become .*: a value is not finite", experts=experts)


@pytest.mark.parametrize("scale", [253, 255])
def test_scale_that_is_not_finite(tiny_checkpoint: Path, scale: int) -> None:
    tensors = tiny_tensors()
    tensors[f"{EXPERTS}_scales"][1][4, 63, 0] = scale
    write_safetensors(tiny_checkpoint / "model.safetensors", tensors)
    refuse(tiny_checkpoint, f"down_proj_blocks in .* cannot become MXFP4: .*scale {scale}")


def test_published_experts_do_not_become_bf16(tiny_checkpoint: Path) -> None:
    refuse(tiny_checkpoint, "experts of this checkpoint are MXFP4 already", experts="bf16")


def test_experts_in_both_forms(tiny_checkpoint: Path) -> None:
    tensors = tiny_tensors(experts="bf16") | tiny_tensors()
    write_safetensors(tiny_checkpoint / "model.safetensors", tensors)
    refuse(tiny_checkpoint, "holds the tensor .*down_proj_blocks and 3 more, which")
