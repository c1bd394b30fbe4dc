"""Shards that are missing, links that leave their folder, targets that are none, full disks."""

import os
from pathlib import Path

import msgspec
import pytest

from convert import convert_checkpoint
from gptoss_local.base.errors import ConvertError
from tests.convert.refusing import header_of, refuse
from tests.convert.tiny import (
    Layout,
    tiny_tensors,
    write_json,
    write_safetensors,
    write_sharded,
    write_tiny,
    write_tokenizer,
)


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


def test_target_folder_missing(tiny_checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match="There is no folder"):
        convert_checkpoint(tiny_checkpoint, tmp_path / "missing" / "model.gguf")
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_target_that_is_no_gguf_stays(tmp_path: Path, name: str) -> None:
    """`gptoss convert DIR DIR/model.safetensors` would have cost the checkpoint."""
    folder = write_tiny(tmp_path / "tiny")
    held = (folder / name).read_bytes()
    with pytest.raises(ConvertError, match="already exists and is not a GGUF file"):
        convert_checkpoint(folder, folder / name)
    assert (folder / name).read_bytes() == held


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes there")
def test_a_pipe_is_not_waited_for(tiny_checkpoint: Path) -> None:
    """An archive may hold one."""
    (tiny_checkpoint / "config.json").unlink()
    os.mkfifo(tiny_checkpoint / "config.json")
    refuse(tiny_checkpoint, r"config\.json is not a file")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes there")
def test_decoration_is_not_waited_for(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Nor is a link to a device followed, which never ends."""
    os.mkfifo(tiny_checkpoint / "README.md")
    (tiny_checkpoint / "generation_config.json").unlink()
    (tiny_checkpoint / "generation_config.json").symlink_to("/dev/zero")
    convert_checkpoint(tiny_checkpoint, tmp_path / "model.gguf")


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
