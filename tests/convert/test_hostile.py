"""Broken checkpoints and full disks: a clear ConvertError, and nothing of ours left behind."""

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from convert import DenseType, ExpertType, convert_checkpoint
from convert.json_file import MAX_JSON_BYTES
from gptoss_local.errors import ConvertError
from tests.convert.tiny import (
    Layout,
    tiny_config,
    tiny_tensors,
    write_json,
    write_safetensors,
    write_sharded,
    write_tiny,
    write_tokenizer,
)

LAYER = "model.layers.0"
EXPERTS = f"{LAYER}.mlp.experts.down_proj"
BLOCKS = f"{EXPERTS}_blocks"


def refuse(folder: Path, match: str, **options: Any) -> None:
    """Convert over an existing file: it must be refused and leave that file alone."""
    target_dir = folder.parent / "out"
    target_dir.mkdir()
    target = target_dir / "model.gguf"
    target.write_bytes(b"the old one")
    with pytest.raises(ConvertError, match=match):
        convert_checkpoint(folder, target, **options)
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


def header_of(data: bytes) -> dict[str, Any]:
    header: dict[str, Any] = msgspec.json.decode(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return header


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
    refuse(tiny_checkpoint, rf"{name} (has a header of|is not plausible|is too long)")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000


def test_longest_header_takes_bounded_memory(tiny_checkpoint: Path) -> None:
    """The most entries that fit into the longest header that is looked at."""
    entry = b'"%06d":{"dtype":"U8","shape":[],"data_offsets":[0,0]}'
    n = (MAX_JSON_BYTES - 2) // (len(entry % 0) + 1)
    header = b"{" + b",".join(entry % i for i in range(n)) + b"}"
    path = tiny_checkpoint / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    tracemalloc.start()
    refuse(tiny_checkpoint, "misplaces the tensor 000000")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300_000_000


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
            r"model.norm.weight in .* is F32 \[64\] where .* calls for BF16 \[64\]",
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
    refuse(tiny_checkpoint, "gate_up_proj_blocks is MXFP4 already", experts="bf16")


def test_experts_in_both_forms(tiny_checkpoint: Path) -> None:
    tensors = tiny_tensors(experts="bf16") | tiny_tensors()
    write_safetensors(tiny_checkpoint / "model.safetensors", tensors)
    refuse(tiny_checkpoint, "holds the tensor .*down_proj_blocks and 3 more, which")


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


def test_tensor_in_two_shards(sharded_checkpoint: Path) -> None:
    path = sharded_checkpoint / "model-00001-of-00002.safetensors"
    held = header_of(path.read_bytes())
    tensors = {name: tensor for name, tensor in tiny_tensors().items() if name in held}
    write_safetensors(path, tensors | {"zzz": tensors["model.embed_tokens.weight"]})
    refuse(sharded_checkpoint, "00001-of-00002.safetensors holds zzz, though .* says otherwise")


@pytest.mark.parametrize(
    "shard",
    [
        "../secret.safetensors",
        "/secret.safetensors",
        "a/b.safetensors",
        "a\\b.safetensors",
        "C:b.safetensors",
        "..",
        "",
        "a\0.safetensors",
        "a\n.safetensors",
        "config.json",
    ],
)
def test_index_that_leaves_its_folder(sharded_checkpoint: Path, shard: str) -> None:
    write_json(sharded_checkpoint / "model.safetensors.index.json", {"weight_map": {"x": shard}})
    refuse(sharded_checkpoint, "which is not the name of a safetensors file")


def test_index_with_a_lone_surrogate(sharded_checkpoint: Path) -> None:
    path = sharded_checkpoint / "model.safetensors.index.json"
    path.write_bytes(path.read_bytes().replace(b"model-00002", b"\\ud800"))
    refuse(sharded_checkpoint, "index.json is not valid")


def test_index_with_a_name_twice(sharded_checkpoint: Path) -> None:
    path = sharded_checkpoint / "model.safetensors.index.json"
    twice = b'"weight_map":{"lm_head.weight":"model-00001-of-00002.safetensors",'
    path.write_bytes(path.read_bytes().replace(b'"weight_map":{', twice))
    refuse(sharded_checkpoint, "index.json is not valid: it names 'lm_head.weight' twice")


LINKABLE = ["model-00001-of-00002.safetensors", "config.json", "model.safetensors.index.json"]


@pytest.mark.parametrize("name", [*LINKABLE, "tokenizer.json", "tokenizer_config.json"])
def test_link_out_of_the_folder(sharded_checkpoint: Path, tmp_path: Path, name: str) -> None:
    (sharded_checkpoint / name).rename(tmp_path / name)
    (sharded_checkpoint / name).symlink_to(tmp_path / name)
    refuse(sharded_checkpoint, f"{name} is a link that leaves its folder")


def test_single_file_that_is_a_link(tiny_checkpoint: Path, tmp_path: Path) -> None:
    (tiny_checkpoint / "model.safetensors").rename(tmp_path / "elsewhere")
    (tiny_checkpoint / "model.safetensors").symlink_to(tmp_path / "elsewhere")
    refuse(tiny_checkpoint, "model.safetensors is a link that leaves its folder")


@pytest.mark.parametrize("layout", ["hugging_face", "original"])
def test_links_of_the_hubs_cache_are_followed(tmp_path: Path, layout: Layout) -> None:
    folder = tmp_path / "models--x--tiny" / "snapshots" / "0123abc"
    folder = folder / "original" if layout == "original" else folder
    write_tiny(folder, layout=layout, n_shards=2)
    write_tokenizer(folder)
    blobs = tmp_path / "models--x--tiny" / "blobs"
    blobs.mkdir()
    for path in list(folder.iterdir()):
        blob = path.rename(blobs / f"blob-of-{path.name}")
        path.symlink_to(os.path.relpath(blob, folder))
    convert_checkpoint(folder, tmp_path / "tiny.gguf")
    (folder / "config.json").unlink()
    (tmp_path / "models--x--tiny" / "config.json").write_text("{}")
    (folder / "config.json").symlink_to(tmp_path / "models--x--tiny" / "config.json")
    refuse(folder, "config.json is a link that leaves its folder")


def test_index_that_is_none(sharded_checkpoint: Path) -> None:
    (sharded_checkpoint / "model.safetensors.index.json").write_bytes(b"\xff{}")
    refuse(sharded_checkpoint, "index.json is not valid")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"num_hidden_layers": None}, "config.json does not fit gpt-oss: .*num_hidden_layers"),
        ({"num_hidden_layers": 10**12}, "config.json does not fit gpt-oss: .*num_hidden_layers"),
        ({"vocab_size": 10**12}, "config.json does not fit gpt-oss: .*vocab_size"),
        ({"head_dim": "64"}, "config.json does not fit gpt-oss: .*head_dim"),
        ({"hidden_size": 0}, "config.json does not fit gpt-oss: .*hidden_size"),
        ({"rope_theta": None, "rope_scaling": "x"}, "does not fit gpt-oss: .*rope_theta"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "lacks original_max_position_embeddings"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "rope_type 'llama3', which is not known"),
        ({"architectures": ["LlamaForCausalLM"]}, "not a gpt-oss checkpoint: .*LlamaForCausalLM"),
        ({"architectures": None}, "not a gpt-oss checkpoint"),
        ({"layer_types": ["full_attention"]}, "layer_types in a way that llama.cpp cannot run"),
        ({"swiglu_limit": 5.0}, "swiglu_limit of 5.0"),
        ({"hidden_size": 2**62}, "config.json does not fit gpt-oss: .*hidden_size"),
        (
            {"num_hidden_layers": 1000, "layer_types": None},
            "lacks .* model.layers.1.* and [0-9]+ more",
        ),
        ({"intermediate_size": 1 << 24}, r"is (U8|BF16) .* where"),
        ({"max_position_embeddings": 2**64}, "does not fit gpt-oss: .*max_position_embeddings"),
        ({"rms_norm_eps": 0}, "does not fit gpt-oss: .*rms_norm_eps"),
        ({"rope_theta": 1e300}, "does not fit gpt-oss: .*rope.rope_theta"),
        ({"num_experts_per_tok": 6}, "more experts per token than there are experts"),
        ({"num_key_value_heads": 2}, "3 attention heads, not a multiple of the 2 key-value heads"),
        ({"num_hidden_layers": True}, "does not fit gpt-oss: .*num_hidden_layers"),
        ({"intermediate_size": 48}, "intermediate_size is 48 .* not a multiple of 32"),
        ({"num_local_experts": 6}, r"is BF16 \[5.*\] where .* BF16 \[6"),
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
    refuse(tiny_checkpoint, "pad_token_id is 1000 in .*, beyond vocab_size, 24")


def test_broken_model_card(tiny_checkpoint: Path) -> None:
    (tiny_checkpoint / "README.md").write_text("---\nlicense: [\n---\n")
    refuse(tiny_checkpoint, "README.md is not valid YAML")


@pytest.mark.parametrize(
    "line",
    ["name: [1, 2]", "version: 2024-01-01", "tags: [1]", "base_model: [{name: 3}]", "license: 1.0"],
)
def test_model_card_of_wrong_types(tiny_checkpoint: Path, line: str) -> None:
    (tiny_checkpoint / "README.md").write_text(f"---\n{line}\n---\n")
    refuse(tiny_checkpoint, "README.md or a JSON file beside it")


def test_generation_config_of_wrong_types(tiny_checkpoint: Path) -> None:
    write_json(tiny_checkpoint / "generation_config.json", {"top_k": 2**40})
    refuse(tiny_checkpoint, "gives a sampling_top_k that a GGUF cannot hold: 1099511627776")


def test_chat_template_that_is_no_text(tiny_checkpoint: Path) -> None:
    (tiny_checkpoint / "chat_template.jinja").write_bytes(b"\xff\xfe")
    refuse(tiny_checkpoint, "chat_template.jinja is not text in UTF-8")


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
