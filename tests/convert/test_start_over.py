"""Conversions that start over, as the remains are broken or of something else."""

import os
import shutil
from pathlib import Path

import pytest

from convert import convert_checkpoint
from convert.journal import read_journal
from tests.convert.interrupted import Interrupt, interrupt, interrupt_renaming, names, sha256
from tests.convert.large import write_large

pytestmark = pytest.mark.usefixtures("sync_often")


def test_other_options_start_over(large: Path, tmp_path: Path) -> None:
    target = tmp_path / "model.gguf"
    convert_checkpoint(large, tmp_path / "bf16.gguf", dense="bf16")
    interrupt(large, target)
    calls: list[int] = []
    convert_checkpoint(large, target, dense="bf16", progress=lambda _, done, __: calls.append(done))
    assert calls[0] == 0
    assert sha256(target) == sha256(tmp_path / "bf16.gguf")


def test_parts_of_another_split_are_removed(large: Path, large_sha256: str, tmp_path: Path) -> None:
    target = tmp_path / "model.gguf"
    with pytest.raises(KeyboardInterrupt):
        convert_checkpoint(
            large,
            target,
            max_shard_bytes=50_000_000,
            progress=Interrupt(KeyboardInterrupt("stop")),
        )
    assert any("-of-" in name for name in names(tmp_path))
    convert_checkpoint(large, target)
    assert names(tmp_path) == ["model.gguf"]
    assert sha256(target) == large_sha256


def test_a_changed_shard_is_read_again(large: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "large", tmp_path / "out" / "model.gguf"
    target.parent.mkdir()
    shutil.copytree(large, source)
    interrupt(source, target)
    assert "token_embd.weight" in read_journal(source, target).sums
    changed = "model-00001-of-00004.safetensors"
    data = bytearray((source / changed).read_bytes())
    for i in range(len(data) // 2, len(data), 1000):
        data[i] ^= 1
    (source / changed).write_bytes(data)
    convert_checkpoint(source, target)
    convert_checkpoint(source, tmp_path / "fresh.gguf")
    assert sha256(target) == sha256(tmp_path / "fresh.gguf")


@pytest.mark.parametrize(
    "damage",
    [
        lambda journal, partial: partial.unlink(),
        lambda journal, partial: os.truncate(partial, 1000),
        lambda journal, partial: journal.write_bytes(b"nonsense"),
        lambda journal, partial: journal.write_bytes(
            journal.read_bytes().replace(b'"format":1', b'"format":0', 1)
        ),
    ],
)
def test_unusable_remains_start_over(
    large: Path, large_sha256: str, tmp_path: Path, damage: object
) -> None:
    target = tmp_path / "model.gguf"
    interrupt(large, target)
    assert callable(damage)
    damage(tmp_path / "model.gguf.journal", tmp_path / "model.gguf.partial")
    calls: list[int] = []
    convert_checkpoint(large, target, progress=lambda _, done, __: calls.append(done))
    assert calls[0] == 0
    assert sha256(target) == large_sha256


def test_another_source_starts_over(large: Path, tmp_path: Path) -> None:
    """Even with the same names and options."""
    target = tmp_path / "model.gguf"
    first, other = tmp_path / "a" / "large", tmp_path / "b" / "large"
    shutil.copytree(large, first)
    write_large(other, n_shards=2)
    convert_checkpoint(other, tmp_path / "other.gguf")
    interrupt(first, target)
    convert_checkpoint(other, target)
    assert sha256(target) == sha256(tmp_path / "other.gguf")


def test_a_source_that_changed_after_the_last_sync(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the files have their names: these cannot be continued, only made again."""
    source, target = tmp_path / "large", tmp_path / "model.gguf"
    shutil.copytree(large, source)
    interrupt_renaming(source, target, monkeypatch)
    os.utime(source / "model-00002-of-00004.safetensors")
    calls: list[int] = []
    written = convert_checkpoint(
        source,
        target,
        max_shard_bytes=60_000_000,
        progress=lambda _, done, __: calls.append(done),
    )
    assert calls[0] == 0
    whole = convert_checkpoint(large, tmp_path / "w.gguf", max_shard_bytes=60_000_000)
    assert [sha256(path) for path in written] == [sha256(path) for path in whole]
