"""Broken weights, folders and files: a clear ConvertError, and nothing of ours left behind."""

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from convert import DenseType, ExpertType, convert_checkpoint
from gptoss_local.base.errors import ConvertError
from tests.convert.tiny import (
    Layout,
    Tensors,
    refuse,
    tiny_tensors,
    to_original,
    write_json,
    write_safetensors,
    write_sharded,
    write_tiny,
    write_tokenizer,
)

LAYER = "model.layers.0"
EXPERTS = f"{LAYER}.mlp.experts.down_proj"
BLOCKS = f"{EXPERTS}_blocks"
INDEX = "model.safetensors.index.json"
SHARDS = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
Bytes = Callable[[bytes], bytes]


def header_of(data: bytes) -> dict[str, Any]:
    header: dict[str, Any] = msgspec.json.decode(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return header


def with_header(data: bytes, header: bytes) -> bytes:
    n_header = int.from_bytes(data[:8], "little")
    return len(header).to_bytes(8, "little") + header + data[8 + n_header :]


def name_twice(data: bytes) -> bytes:
    """JSON readers keep the first or the last, so two programs would see two models."""
    header = header_of(data)
    entry = msgspec.json.encode(header["model.norm.weight"])
    twice = msgspec.json.encode(header)[:-1] + b',"model.norm.weight":' + entry + b"}"
    return with_header(data, twice)


def overlap(data: bytes) -> bytes:
    """Two names for the same bytes would be read as two weights."""
    header = header_of(data)
    header["lm_head.weight"] = header["model.embed_tokens.weight"]
    return with_header(data, msgspec.json.encode(header))


def replaced(old: bytes, new: bytes) -> Bytes:
    return lambda data: data.replace(old, new, 1)


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
CONFIG = "tokenizer_config.json"
NO_HEADER = "no valid safetensors header"
LENGTH = r"holds \d+ bytes of tensors where its header promises \d+"
DAMAGES: list[tuple[str, Bytes, str]] = [
    ("model.safetensors", lambda data: data[:-1], LENGTH),
    ("model.safetensors", lambda data: data + b"\0", LENGTH),
    *(
        ("model.safetensors", lambda data, n=n: data[:n], "too short for its own header")
        for n in (100, 5, 0)
    ),
    ("model.safetensors", lambda _: LFS, "pointer of Git LFS; `git lfs pull` fetches"),
    ("model.safetensors", lambda _: b"<!DOCTYPE html><html>", "is a web page; .*/resolve/"),
    ("model.safetensors", lambda data: b"\xff" * 8 + data[8:], "too short for its own header"),
    ("model.safetensors", lambda data: data[:8] + b"[" + data[9:], NO_HEADER),
    ("model.safetensors", replaced(b'"shape"', b'"shame"'), NO_HEADER),
    ("model.safetensors", replaced(b"[24,64]", b"[24,65]"), "misplaces the tensor"),
    ("model.safetensors", replaced(b"[24,64]", b"[-4,64]"), NO_HEADER),
    ("model.safetensors", replaced(b"lm_head.weight", b"lm_head.wei\xffht"), NO_HEADER),
    ("model.safetensors", lambda data: with_header(data, b"[" * 100_000), "nests too deeply"),
    ("model.safetensors", lambda data: with_header(data, b'{"a":' * 100_000), "nests too deeply"),
    ("model.safetensors", name_twice, "header: it names 'model.norm.weight' twice"),
    ("model.safetensors", overlap, "misplaces the tensor"),
    *(
        (name, lambda _, content=content: content, f"{name} is not")
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json")
        for content in (b"", b"[]", b"{", b"\xff")
    ),
    ("tokenizer.json", replaced(b'"abc":9', b'"abc":24'), "token id 24; vocab_size is 24"),
    ("tokenizer.json", replaced(b'"ab":8', b'"ab":1'), "two tokens the same id"),
    ("tokenizer.json", replaced(b'"id":22', b'"id":20'), "two tokens the same id"),
    *(
        (name, lambda _, content=content: content, match)
        for name, content, match in (
            (
                CONFIG,
                b'{"added_tokens_decoder": {"22": {"content": "x"}}}',
                "calls the token 22 'x'",
            ),
            (CONFIG, b'{"added_tokens_decoder": {"x": {}}}', "valid: a key must be a whole number"),
            (CONFIG, b'{"eos_token": "<|no|>"}', r"names the eos_token '<\|no\|>', which is not"),
            ("added_tokens.json", b'{"x": 22}', "calls the token 22 'x'; tokenizer.json .*'plain'"),
        )
    ),
    (
        "generation_config.json",
        lambda _: b'{"pad_token_id": 1000}',
        "pad_token_id is 1000 in .*, beyond vocab_size, 24",
    ),
    ("chat_template.jinja", lambda _: b"\xff\xfe", "chat_template.jinja is not text in UTF-8"),
]


@pytest.mark.parametrize(("name", "damage", "match"), DAMAGES)
def test_damaged_files(tiny_checkpoint: Path, name: str, damage: Bytes, match: str) -> None:
    path = tiny_checkpoint / name
    path.write_bytes(damage(path.read_bytes() if path.exists() else b""))
    refuse(tiny_checkpoint, match)


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


def set_tensor(name: str, dtype: str, values: Any) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.update({name: (dtype, values)})


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda t: t.pop(f"{LAYER}.self_attn.sinks"), "lacks the tensor model.layers.0.self_attn"),
        (lambda t: [t.pop(n) for n in list(t)[:3]], "lacks the tensor lm_head.weight and 2 more"),
        (lambda t: t.pop(BLOCKS), "lacks the tensor .*down_proj_blocks"),
        (lambda t: t.update(extra=t["model.norm.weight"]), "holds the tensor extra, which gpt-oss"),
        (lambda t: t.update({BLOCKS: ("U8", t[BLOCKS][1][1:])}), r"is U8 \[4, 64, 1, 16\] where"),
        (
            set_tensor("model.norm.weight", "F64", np.zeros(64, np.float64)),
            r"model.norm.weight in .* is F64, in which no gpt-oss is published",
        ),
        (
            set_tensor(BLOCKS, "BF16", np.zeros((5, 64, 1, 16), np.uint16)),
            "is BF16 .* where .* calls for U8",
        ),
        (
            lambda t: t.update(tiny_tensors(experts="bf16") | t),
            "holds the tensor .*down_proj_blocks and 3 more, which",
        ),
        (
            set_tensor("lm_head.weight", "F32", np.full((24, 64), 1e38, np.float32)),
            "lm_head.weight in .* cannot become Q8_0: a value is not finite, or too large",
        ),
    ],
)
def test_wrong_tensors(tiny_checkpoint: Path, edit: Callable[[Tensors], Any], match: str) -> None:
    tensors = tiny_tensors()
    edit(tensors)
    write_safetensors(tiny_checkpoint / "model.safetensors", tensors)
    refuse(tiny_checkpoint, match)


@pytest.mark.parametrize(
    ("name", "dense", "kept", "value"),
    [
        ("lm_head.weight", "q8_0", "mxfp4", 0x7FC0),
        ("lm_head.weight", "bf16", "mxfp4", 0xFF80),
        ("model.norm.weight", "q8_0", "mxfp4", 0xFF80),
        (f"{EXPERTS}_bias", "bf16", "mxfp4", 0x7FC0),
        (EXPERTS, "q8_0", "mxfp4", 0x7F80),
        (EXPERTS, "q8_0", "bf16", 0x7F80),
        (f"{EXPERTS}_scales", "q8_0", "mxfp4", 253),
        (f"{EXPERTS}_scales", "q8_0", "mxfp4", 255),
    ],
)
def test_not_a_number_in_a_weight(
    tmp_path: Path, name: str, dense: DenseType, kept: ExpertType, value: int
) -> None:
    """Found while writing, so the unfinished file must go."""
    tensors = tiny_tensors(experts="bf16" if name == EXPERTS else "mxfp4")
    tensors[name][1].reshape(-1)[-2] = value
    folder = write_tiny(tmp_path / "tiny", tensors=tensors)
    place = name.replace("_scales", "_blocks")
    why = f"scale {value}" if value < 256 else "a value is not finite"
    refuse(folder, f"{place} in .* cannot become .*: .*{why}", dense=dense, experts=kept)


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    folder = write_tiny(tmp_path / "tiny")
    (folder / "model.safetensors").unlink()
    write_sharded(folder, tiny_tensors(), n_shards=2)
    return folder


def edit_index(**names: str) -> Callable[[Path], object]:
    def edit(folder: Path) -> None:
        index = msgspec.json.decode((folder / INDEX).read_bytes())
        index["weight_map"] |= names
        write_json(folder / INDEX, index)

    return edit


def add_to_shard(folder: Path) -> None:
    held = header_of((folder / SHARDS[0]).read_bytes())
    tensors = {name: tensor for name, tensor in tiny_tensors().items() if name in held}
    more = {"zzz": tensors["model.embed_tokens.weight"]}
    write_safetensors(folder / SHARDS[0], tensors | more)


def name_shard_twice(folder: Path) -> None:
    twice = f'"weight_map":{{"lm_head.weight":"{SHARDS[0]}",'.encode()
    path = folder / INDEX
    path.write_bytes(path.read_bytes().replace(b'"weight_map":{', twice))


def link_out(name: str) -> Callable[[Path], object]:
    def link(folder: Path) -> None:
        away = (folder / name).rename(folder.parent / name)
        (folder / name).symlink_to(away)

    return link


def make_pipe(folder: Path) -> None:
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (lambda folder: (folder / SHARDS[1]).unlink(), f"shard .*{SHARDS[1]} is missing"),
        (lambda folder: (folder / "config.json").unlink(), "config.json is missing"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json is missing"),
        (edit_index(invented=SHARDS[0]), "does not hold invented"),
        (add_to_shard, f"{SHARDS[0]} holds zzz, though .* says otherwise"),
        (name_shard_twice, "index.json is not valid: it names 'lm_head.weight' twice"),
        (lambda folder: (folder / INDEX).write_bytes(b"\xff{}"), "index.json is not valid"),
        (lambda folder: (folder / INDEX).write_bytes(b"[]"), "it must be an object, not a list"),
        *(
            (link_out(name), f"{name} is a link that leaves its folder")
            for name in (SHARDS[0], INDEX, "config.json", "tokenizer.json", "tokenizer_config.json")
        ),
        *(
            (edit_index(x=shard), "which is not the name of a safetensors file")
            for shard in (
                *("../secret.safetensors", "/secret.safetensors", "a/b.safetensors", ".."),
                *("a\\b.safetensors", "C:b.safetensors", "", "a\0.safetensors"),
                *("a\n.safetensors", "config.json"),
            )
        ),
        pytest.param(
            make_pipe,
            r"config\.json is not a file",
            marks=pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes there"),
        ),
    ],
)
def test_wrong_folders(sharded: Path, damage: Callable[[Path], Any], match: str) -> None:
    damage(sharded)
    refuse(sharded, match)


def test_no_folder(tmp_path: Path) -> None:
    refuse(tmp_path / "missing", "There is no folder")
    weights = tmp_path / "tiny" / "model.safetensors"
    weights.parent.mkdir()
    weights.touch()
    assert refuse(weights, "There is no folder") == "Name the folder that this file is in."


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


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes there")
def test_decoration_is_not_waited_for(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Nor is a link to a device followed, which never ends."""
    os.mkfifo(tiny_checkpoint / "README.md")
    (tiny_checkpoint / "generation_config.json").unlink()
    (tiny_checkpoint / "generation_config.json").symlink_to("/dev/zero")
    convert_checkpoint(tiny_checkpoint, tmp_path / "model.gguf")


def test_targets_that_are_none(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """`gptoss convert DIR DIR/model.safetensors` would have cost the checkpoint."""
    (tmp_path / "model.gguf").mkdir()
    held = {path: path.read_bytes() for path in tiny_checkpoint.iterdir()}
    cases = [(path, "already exists and is not a GGUF file") for path in held]
    cases += [(tmp_path / "model.gguf", "is a folder")]
    cases += [(tmp_path / "missing" / "model.gguf", "There is no folder")]
    cases += [(tmp_path / f"m-0000{i}-of-00002.gguf", "is the name of one file of") for i in (1, 2)]
    for target, match in cases:
        with pytest.raises(ConvertError, match=match):
            convert_checkpoint(tiny_checkpoint, target)
    assert {path: path.read_bytes() for path in tiny_checkpoint.iterdir()} == held
    assert not (tmp_path / "missing").exists()


def test_no_space_is_seen_before_writing(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("usage", (), {"free": 5_000_000})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    refuse(tiny_checkpoint, r"The GGUF takes 33\.\d MB, but .* has 5\.0 MB free")


def edit_json(name: str, **changes: Any) -> Callable[[Path], object]:
    def edit(folder: Path) -> None:
        write_json(folder / name, msgspec.json.decode((folder / name).read_bytes()) | changes)

    return edit


def edit_original(edit: Callable[[Tensors], object]) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        tensors = to_original(tiny_tensors())
        edit(tensors)
        write_safetensors(folder / "model.safetensors", tensors)

    return write


BIAS = "block.0.attn.qkv.bias"
UNFIT = "config.json does not fit gpt-oss: .*"
ORIGINAL: list[tuple[Callable[[Path], object], str]] = [
    *(
        (edit_json("config.json", **changes), match)
        for changes, match in (
            ({"num_experts": 4}, r"is BF16 \[5.*\] where the model's config.json calls for BF16"),
            ({"num_attention_heads": 2}, r"attn.qkv.weight in .* is BF16 \[160, 64\] .* 128 rows"),
            ({"experts_per_token": 6}, "more experts per token"),
            ({"experts_per_token": None}, f"{UNFIT}experts_per_token must be"),
            ({"rope_scaling_factor": 1e300}, f"{UNFIT}rope_scaling_factor"),
            ({"initial_context_length": 2**40}, f"{UNFIT}initial_context_length"),
            ({"rope_ntk_beta": -1}, f"{UNFIT}beta_fast"),
            ({"swiglu_limit": 6}, "swiglu_limit of 6.0"),
            ({"num_hidden_layers": 2}, "lacks the tensor model.layers.1"),
        )
    ),
    *(
        (edit_original(edit), match)
        for edit, match in (
            (lambda t: t.pop("block.0.attn.sinks"), "lacks the tensor .*0.self_attn.sinks"),
            (lambda t: t.pop(BIAS), "lacks .*self_attn.k_proj.bias and 2 more"),
            (lambda t: t.update({"block.0.x": t["norm.scale"]}), "holds the tensor block.0.x"),
            (lambda t: t.update({"model.norm.weight": t["norm.scale"]}), "under two names"),
            (set_tensor(BIAS, "F16", np.zeros(160, np.uint16)), rf"{BIAS} in .* is F16 \[160\]"),
            (set_tensor(BIAS, "BF16", np.zeros((), np.uint16)), rf"{BIAS} in .* is BF16 \[\]"),
        )
    ),
    (lambda folder: None, "tokenizer.json is missing"),
]


@pytest.mark.parametrize(("damage", "match"), ORIGINAL)
def test_damage_in_openais_layout(
    tmp_path: Path, damage: Callable[[Path], object], match: str
) -> None:
    folder = write_tiny(tmp_path / "tiny" / "original", layout="original")
    damage(folder)
    with pytest.raises(ConvertError, match=match) as caught:
        convert_checkpoint(folder, tmp_path / "tiny.gguf")
    assert "--tokenizer" in caught.value.hint or "tokenizer" not in match
    assert list(tmp_path.iterdir()) == [tmp_path / "tiny"]
