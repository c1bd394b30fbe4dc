"""Shards that arrive one after the other, shards that go, and memory that does not grow."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from convert import convert_checkpoint, finished_shards, plan_conversion
from convert.journal import read_journal
from convert.run import n_peak_bytes
from convert.source import Source
from gptoss_local.base.errors import ConvertError
from tests.conftest import wait_until
from tests.convert.large import names, sha256, write_large
from tests.convert.tiny import write_tiny, write_tokenizer

BIG = {"vocab_size": 1 << 17, "hidden_size": 4096, "intermediate_size": 2048}
BIG |= {"num_local_experts": 64}

pytestmark = pytest.mark.usefixtures("sync_often")


@pytest.fixture
def download(large: Path, tmp_path: Path) -> tuple[Path, list[Path]]:
    """A folder without its shards, and the shards, elsewhere."""
    folder = tmp_path / "large"
    shutil.copytree(large, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    return folder, sorted(large.glob("*.safetensors"))


def arrive(folder: Path, shards: list[Path], delay_s: float = 0.0) -> Iterator[Path]:
    for shard in shards:
        time.sleep(delay_s)
        shutil.copyfile(shard, folder / "part")
        yield (folder / "part").rename(folder / shard.name)


@pytest.mark.parametrize("delete", [False, True])
def test_any_order_gives_the_same_bytes(
    download: tuple[Path, list[Path]], large_sha256: str, tmp_path: Path, delete: bool
) -> None:
    """And a tensor is written as soon as its parts are there."""
    folder, shards = download
    random.shuffle(shards)
    target, seen = tmp_path / "model.gguf", list[int]()

    def n_written() -> int:
        return len(read_journal(folder, target).sums)

    def watched() -> Iterator[Path]:
        for path in arrive(folder, shards):
            if len(seen) > 1:
                wait_until(lambda: n_written() > seen[-2])
            seen.append(n_written())
            yield path

    convert_checkpoint(folder, target, arrivals=watched(), delete_source=delete)
    assert seen[0] == 0
    assert seen == sorted(seen)
    assert seen[-1] > 0
    assert sha256(target) == large_sha256
    assert len(list(folder.glob("*.safetensors"))) == (0 if delete else 4)


@pytest.mark.parametrize("n_shards", [1, 3])
def test_the_original_layout_arrives(tmp_path: Path, n_shards: int) -> None:
    """In a folder of its own, as the hub has it; QKV is cut in three on the way."""
    folder = tmp_path / "tiny"
    write_tiny(folder / "original", layout="original", n_shards=n_shards)
    (tmp_path / "tokenizer").mkdir()
    write_tokenizer(tmp_path / "tokenizer")
    options = {"tokenizer": tmp_path / "tokenizer"}
    convert_checkpoint(folder, tmp_path / "local.gguf", **options)
    arrivals = sorted((folder / "original").glob("*.safetensors"), reverse=True)
    convert_checkpoint(
        folder, tmp_path / "m.gguf", arrivals=arrivals, delete_source=True, **options
    )
    assert sha256(tmp_path / "local.gguf") == sha256(tmp_path / "m.gguf")
    assert not list((folder / "original").glob("*.safetensors"))


def test_an_error_of_the_download_comes_through(
    download: tuple[Path, list[Path]], large_sha256: str, tmp_path: Path
) -> None:
    """The done part is kept, and its shards are not needed again."""
    folder, shards = download
    target = tmp_path / "model.gguf"

    def breaks_off() -> Iterator[Path]:
        yield from arrive(folder, shards[:3], delay_s=0.2)
        raise ConnectionResetError("the network went away")

    with pytest.raises(ConnectionResetError, match="went away"):
        convert_checkpoint(folder, target, arrivals=breaks_off(), delete_source=True)
    finished = finished_shards(folder, target)
    assert finished
    assert not any((folder / name).exists() for name in finished)
    rest = [shard for shard in shards if shard.name not in finished]
    convert_checkpoint(folder, target, arrivals=arrive(folder, rest), delete_source=True)
    assert sha256(target) == large_sha256


def test_a_shard_never_arrives(
    download: tuple[Path, list[Path]], large_sha256: str, tmp_path: Path
) -> None:
    folder, shards = download
    target = tmp_path / "model.gguf"
    with pytest.raises(ConvertError, match=r"The shard with .* never arrived"):
        convert_checkpoint(folder, target, arrivals=arrive(folder, shards[:-1]))
    assert not target.exists()
    convert_checkpoint(folder, target, arrivals=arrive(folder, shards))  # all of them again
    assert sha256(target) == large_sha256


def test_an_arriving_header_is_checked(download: tuple[Path, list[Path]], tmp_path: Path) -> None:
    folder, shards = download
    data = shards[1].read_bytes()
    other = tmp_path / shards[1].name
    other.write_bytes(data.replace(b"[3]", b"[1]", 1))
    with pytest.raises(ConvertError, match=f"{other.name} misplaces the tensor .*sinks"):
        convert_checkpoint(folder, tmp_path / "m.gguf", arrivals=arrive(folder, [other]))
    config = json.loads((folder / "config.json").read_bytes())
    (folder / "config.json").write_text(json.dumps(config | {"num_attention_heads": 5}))
    with pytest.raises(ConvertError, match=r"q_proj.weight in .* is BF16 \[96, 512\] where"):
        convert_checkpoint(folder, tmp_path / "m.gguf", arrivals=arrive(folder, [shards[1]]))
    assert not list(tmp_path.glob("m.gguf*"))


def test_links_are_not_deleted(large: Path, tmp_path: Path) -> None:
    """As in the cache of huggingface_hub, where snapshots link to blobs."""
    folder, target = tmp_path / "snapshots" / "0123abc", tmp_path / "model.gguf"
    shutil.copytree(large, tmp_path / "blobs")
    folder.mkdir(parents=True)
    for path in (tmp_path / "blobs").iterdir():
        (folder / path.name).symlink_to(path)
    with pytest.raises(ConvertError, match=r"safetensors is a link.* will not be deleted"):
        convert_checkpoint(folder, target, delete_source=True)
    arrivals = sorted(folder.glob("*.safetensors"))
    with pytest.raises(ConvertError, match="is a link"):
        convert_checkpoint(folder, target, delete_source=True, arrivals=arrivals)
    assert len(list(folder.glob("*.safetensors"))) == 4
    assert not target.exists()


def test_a_file_that_shrinks_while_it_is_read(large: Path, tmp_path: Path) -> None:
    """A mapped file would end the process with SIGBUS."""
    source, target = tmp_path / "large", tmp_path / "out" / "model.gguf"
    target.parent.mkdir()
    shutil.copytree(large, source)
    shard = source / "model-00001-of-00004.safetensors"

    def truncate(what: str, done: int, total: int) -> None:
        os.truncate(shard, 10_000_000)

    match = f"{shard.name} became shorter while it was read"
    with pytest.raises(ConvertError, match=match):
        convert_checkpoint(source, target, progress=truncate)
    assert names(target.parent) == []


@pytest.mark.nightly
def test_peak_memory_of_a_checkpoint_of_2_6_gb(tmp_path: Path) -> None:
    source = write_large(tmp_path / "big", BIG, n_shards=1, sparse=True)
    assert (source / "model-00001-of-00001.safetensors").stat().st_size > 2_550_000_000
    code = """if True:
        import sys
        from pathlib import Path
        from convert import convert_checkpoint
        convert_checkpoint(Path(sys.argv[1]), Path(sys.argv[2]), n_workers=8)
        print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")))
    """
    target = tmp_path / "big.gguf"
    command = [sys.executable, "-c", code, str(source), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    target.unlink()
    assert int(done.stdout.split()[1]) < 300_000  # kB


def test_space_needed_while_shards_are_deleted(large: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "large", tmp_path / "model.gguf"
    shutil.copytree(large, source)
    plan = plan_conversion(source, target)
    shards = Source(source).shards(read_journal(source, target))
    n_peak = n_peak_bytes(plan.tensors, set(), shards)
    n_source = sum(shard.n_bytes for shard in shards)
    assert n_source / 4 < n_peak < plan.n_data_bytes < n_source
    assert n_peak_bytes(plan.tensors, set(), []) == plan.n_data_bytes
