"""Broken checkpoints and full disks: a clear ConvertError, and nothing of ours left behind."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from convert import convert_checkpoint
from gptoss_local.errors import ConvertError
from tests.convert.tiny import (
    tiny_config,
    tiny_tensors,
    write_json,
    write_safetensors,
    write_sharded,
    write_tiny,
)

LAYER = "model.layers.0"
BLOCKS = f"{LAYER}.mlp.experts.down_proj_blocks"


def refuse(folder: Path, match: str) -> None:
    """Convert over an existing file: it must be refused and leave that file alone."""
    target_dir = folder.parent / "out"
    target_dir.mkdir()
    target = target_dir / "model.gguf"
    target.write_bytes(b"the old one")
    with pytest.raises(ConvertError, match=match):
        convert_checkpoint(folder, target)
    assert target.read_bytes() == b"the old one"
    assert list(target_dir.iterdir()) == [target]


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
    ],
)
def test_damaged_safetensors(
    tiny_checkpoint: Path, damage: Callable[[bytes], bytes], match: str
) -> None:
    path = tiny_checkpoint / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    refuse(tiny_checkpoint, match)


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
            lambda t: t.update({"model.norm.weight": ("F32", np.zeros(64, np.float32))}),
            r"model.norm.weight is F32 \[64\] where .* calls for BF16 \[64\]",
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


def test_not_a_number_in_a_weight(tiny_checkpoint: Path) -> None:
    """Found while writing, so the unfinished file must go."""
    tensors = tiny_tensors()
    tensors["lm_head.weight"][1][7, 9] = 0x7FC0
    write_safetensors(tiny_checkpoint / "model.safetensors", tensors)
    refuse(tiny_checkpoint, "lm_head.weight cannot become Q8_0: a value is not finite")


@pytest.fixture
def sharded_checkpoint(tmp_path: Path) -> Path:
    folder = write_tiny(tmp_path / "tiny")
    (folder / "model.safetensors").unlink()
    write_sharded(folder, tiny_tensors(), n_shards=2)
    return folder


def test_missing_shard(sharded_checkpoint: Path) -> None:
    (sharded_checkpoint / "model-00002-of-00002.safetensors").unlink()
    refuse(sharded_checkpoint, "shard .*model-00002-of-00002.safetensors is missing")


def test_index_that_lies(sharded_checkpoint: Path) -> None:
    path = sharded_checkpoint / "model.safetensors.index.json"
    index = msgspec.json.decode(path.read_bytes())
    index["weight_map"]["invented"] = "model-00001-of-00002.safetensors"
    write_json(path, index)
    refuse(sharded_checkpoint, "does not hold invented")


@pytest.mark.parametrize("shard", ["../secret.safetensors", "/secret.safetensors"])
def test_index_that_leaves_its_folder(sharded_checkpoint: Path, shard: str) -> None:
    write_json(sharded_checkpoint / "model.safetensors.index.json", {"weight_map": {"x": shard}})
    refuse(sharded_checkpoint, "which is not a file name")


def test_index_that_is_none(sharded_checkpoint: Path) -> None:
    (sharded_checkpoint / "model.safetensors.index.json").write_bytes(b"\xff{}")
    refuse(sharded_checkpoint, "is not a safetensors index")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"num_hidden_layers": None}, "config.json does not fit gpt-oss: .*num_hidden_layers"),
        ({"num_hidden_layers": 10**12}, "config.json does not fit gpt-oss: .*num_hidden_layers"),
        ({"vocab_size": 10**12}, r"embed_tokens.weight is BF16 \[24, 64\] where"),
        ({"head_dim": "64"}, "config.json does not fit gpt-oss: .*head_dim"),
        ({"hidden_size": 0}, "config.json does not fit gpt-oss: .*hidden_size"),
        ({"rope_theta": None, "rope_scaling": "x"}, "does not fit gpt-oss: .*rope_theta"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "lacks original_max_position_embeddings"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "rope_type 'llama3' is not known"),
        ({"architectures": ["LlamaForCausalLM"]}, "not a gpt-oss checkpoint: .*LlamaForCausalLM"),
        ({"architectures": None}, "not a gpt-oss checkpoint"),
        ({"layer_types": ["full_attention"]}, "layer_types in a way that llama.cpp cannot run"),
        ({"swiglu_limit": 5.0}, "swiglu_limit of 5.0"),
        ({"intermediate_size": 48}, "intermediate_size is 48 .* not a multiple of 32"),
        ({"num_local_experts": 6}, r"router.bias is BF16 \[5\] where .* BF16 \[6\]|is .* where"),
    ],
)
def test_wrong_config(tiny_checkpoint: Path, change: dict[str, Any], match: str) -> None:
    config = {k: v for k, v in (tiny_config() | change).items() if v is not None}
    write_json(tiny_checkpoint / "config.json", config)
    refuse(tiny_checkpoint, match)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_missing_json(tiny_checkpoint: Path, name: str) -> None:
    (tiny_checkpoint / name).unlink()
    refuse(tiny_checkpoint, f"{name} is missing")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff"])
def test_broken_json(tiny_checkpoint: Path, name: str, content: bytes) -> None:
    (tiny_checkpoint / name).write_bytes(content)
    refuse(tiny_checkpoint, f"{name} is not")


def test_token_beyond_the_embedding(tiny_checkpoint: Path) -> None:
    path = tiny_checkpoint / "tokenizer.json"
    path.write_bytes(path.read_bytes().replace(b'"abc":9', b'"abc":24'))
    refuse(tiny_checkpoint, "token id 24; vocab_size is 24")


def test_special_id_beyond_the_embedding(tiny_checkpoint: Path) -> None:
    write_json(tiny_checkpoint / "generation_config.json", {"pad_token_id": 1000})
    refuse(tiny_checkpoint, "pad_token_id is 1000, beyond vocab_size, 24")


def test_broken_model_card(tiny_checkpoint: Path) -> None:
    (tiny_checkpoint / "README.md").write_text("---\nlicense: [\n---\n")
    refuse(tiny_checkpoint, "README.md is not valid YAML")


def test_chat_template_that_is_no_text(tiny_checkpoint: Path) -> None:
    (tiny_checkpoint / "chat_template.jinja").write_bytes(b"\xff\xfe")
    refuse(tiny_checkpoint, "Reading .* failed: .*utf-8")


def test_target_name_too_long(tiny_checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match=r"Writing .* failed: .*too long"):
        convert_checkpoint(tiny_checkpoint, tmp_path / ("x" * 250))


def test_target_folder_missing(tiny_checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match="There is no folder"):
        convert_checkpoint(tiny_checkpoint, tmp_path / "missing" / "model.gguf")
    assert not (tmp_path / "missing").exists()


def test_target_is_a_folder(tiny_checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "model.gguf").mkdir()
    with pytest.raises(ConvertError, match="is a folder"):
        convert_checkpoint(tiny_checkpoint, tmp_path / "model.gguf")


def test_no_space_is_seen_before_writing(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("usage", (), {"free": 5_000_000})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    refuse(tiny_checkpoint, "The GGUF takes .* GB, but .* has 0.0 GB free")
