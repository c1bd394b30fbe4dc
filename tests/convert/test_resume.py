"""Whatever ends a conversion, the next one goes on and makes the same bytes."""

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from convert import convert_checkpoint, finished_shards
from convert.journal import Journal, read_journal
from gptoss_local.errors import ConvertError
from tests.convert.large import write_large
from tests.convert.tiny import write_tiny

SLOW = """
import sys, time, convert.writer
from pathlib import Path
from convert import convert_checkpoint
convert.writer.SYNC_S = 0.01
def wait(what, done, total):
    print(done, total, flush=True)
    time.sleep(0.002)
source, target, *options = sys.argv[1:]
convert_checkpoint(
    Path(source), Path(target), progress=wait, delete_source="delete" in options, n_workers=2
)
"""
"""Converts in a process of its own, slowly enough to be killed on the way."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_large(tmp_path_factory.mktemp("large") / "large")


@pytest.fixture(scope="module")
def expected(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Hash of the GGUF made without interruption."""
    target = tmp_path_factory.mktemp("whole") / "whole.gguf"
    convert_checkpoint(checkpoint, target)
    return sha256(target)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Interrupt:
    """A Progress that stops the conversion when half of it is done."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.calls: list[int] = []

    def __call__(self, what: str, done: int, total: int) -> None:
        self.calls.append(done)
        time.sleep(0.001)  # so that some tensors are synced on the way
        if done > total / 2:
            raise self.error


@pytest.fixture(autouse=True)
def sync_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convert.writer.SYNC_S", 0.01)


def interrupt(source: Path, target: Path, error: BaseException | None = None) -> None:
    with pytest.raises(BaseException, match="stop"):
        convert_checkpoint(source, target, progress=Interrupt(error or KeyboardInterrupt("stop")))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("error", [KeyboardInterrupt("stop"), OSError(5, "stop")])
def test_next_run_goes_on(
    checkpoint: Path, expected: str, tmp_path: Path, error: BaseException
) -> None:
    target = tmp_path / "model.gguf"
    interrupt(checkpoint, target, error)
    assert names(tmp_path) == ["model.gguf.journal", "model.gguf.partial"]
    calls: list[int] = []
    convert_checkpoint(checkpoint, target, progress=lambda _, done, __: calls.append(done))
    assert calls[0] > 10_000_000
    assert calls == sorted(calls)
    assert sha256(target) == expected
    assert names(tmp_path) == ["model.gguf"]


@pytest.mark.parametrize("delete", [False, True])
def test_kill_at_random_points(
    checkpoint: Path, expected: str, tmp_path: Path, delete: bool
) -> None:
    source, target = tmp_path / "large", tmp_path / "model.gguf"
    shutil.copytree(checkpoint, source)
    options = ["delete"] if delete else []
    command = [sys.executable, "-c", SLOW, str(source), str(target), *options]
    starts = []
    for is_last in (False, False, False, False, True):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        start, total = map(int, process.stdout.readline().split())
        starts.append(start)
        end = start + random.random() * 0.8 * (total - start)
        while int(process.stdout.readline().split()[0]) < end:
            pass
        while is_last and not read_journal(source, target).sums:  # a busy disk syncs slowly
            time.sleep(0.01)
        process.kill()
        process.communicate()
    last = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    starts.append(int(last.stdout.split()[0]))
    assert starts == sorted(starts)
    assert starts[-1] > 0
    assert sha256(target) == expected
    assert not list(tmp_path.glob("model.gguf.*"))
    left = {path.name for path in source.glob("*.safetensors")}
    assert left == (set() if delete else {path.name for path in checkpoint.glob("*.safetensors")})
    assert (source / "model.safetensors.index.json").exists()


def test_kill_the_command(nano_checkpoint: Path, q8_0_gguf: Path, tmp_path: Path) -> None:
    """The real command on the real model; it prints a line for each tenth."""
    target = tmp_path / "model.gguf"
    command = [sys.executable, "-m", "gptoss_local", "convert", str(nano_checkpoint), str(target)]
    process = subprocess.Popen([*command, "--workers", "1"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while not process.stderr.readline().startswith("convert: 60 %"):
        pass
    process.kill()
    process.communicate()
    assert not target.exists()
    assert subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0
    assert sha256(target) == sha256(q8_0_gguf)


def test_ctrl_c_says_how_to_go_on(nano_checkpoint: Path, tmp_path: Path) -> None:
    target = tmp_path / "model.gguf"
    command = [sys.executable, "-m", "gptoss_local", "convert", str(nano_checkpoint), str(target)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("convert: 10 %")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines()[-1].startswith("interrupted; the same command goes on")
    assert not target.exists()


def test_disk_full(checkpoint: Path, expected: str, tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: the kernel refuses the write."""
    target = tmp_path / "model.gguf"
    code = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (60_000_000, 60_000_000))\n"
    command = [sys.executable, "-c", code + SLOW, str(checkpoint), str(target)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "ConvertError: Writing" in done.stderr
    assert "model.gguf failed" in done.stderr
    assert "File too large" in done.stderr
    assert read_journal(checkpoint, target).sums
    convert_checkpoint(checkpoint, target)
    assert sha256(target) == expected


def test_nothing_is_left_if_nothing_was_done(tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "tiny")

    def stop(what: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    (tmp_path / "out").mkdir()
    with pytest.raises(KeyboardInterrupt):
        convert_checkpoint(source, tmp_path / "out" / "model.gguf", progress=stop)
    assert names(tmp_path / "out") == []


def test_other_options_start_over(checkpoint: Path, tmp_path: Path) -> None:
    target = tmp_path / "model.gguf"
    convert_checkpoint(checkpoint, tmp_path / "bf16.gguf", dense="bf16")
    interrupt(checkpoint, target)
    calls: list[int] = []
    convert_checkpoint(
        checkpoint, target, dense="bf16", progress=lambda _, done, __: calls.append(done)
    )
    assert calls[0] == 0
    assert sha256(target) == sha256(tmp_path / "bf16.gguf")


def test_parts_of_another_split_are_removed(
    checkpoint: Path, expected: str, tmp_path: Path
) -> None:
    target = tmp_path / "model.gguf"
    with pytest.raises(KeyboardInterrupt):
        convert_checkpoint(
            checkpoint,
            target,
            max_shard_bytes=50_000_000,
            progress=Interrupt(KeyboardInterrupt("stop")),
        )
    assert any("-of-" in name for name in names(tmp_path))
    convert_checkpoint(checkpoint, target)
    assert names(tmp_path) == ["model.gguf"]
    assert sha256(target) == expected


def test_a_changed_shard_is_read_again(checkpoint: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "large", tmp_path / "out" / "model.gguf"
    target.parent.mkdir()
    shutil.copytree(checkpoint, source)
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


@pytest.mark.parametrize("tail", [b'{"type":"sum","tens', b"\0\0\0\0\n", b"\xff\n"])
def test_torn_last_line(checkpoint: Path, expected: str, tmp_path: Path, tail: bytes) -> None:
    target = tmp_path / "model.gguf"
    interrupt(checkpoint, target)
    journal = tmp_path / "model.gguf.journal"
    journal.write_bytes(journal.read_bytes() + tail)
    calls: list[int] = []
    convert_checkpoint(checkpoint, target, progress=lambda _, done, __: calls.append(done))
    assert calls[0] > 0
    assert sha256(target) == expected


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
    checkpoint: Path, expected: str, tmp_path: Path, damage: object
) -> None:
    target = tmp_path / "model.gguf"
    interrupt(checkpoint, target)
    assert callable(damage)
    damage(tmp_path / "model.gguf.journal", tmp_path / "model.gguf.partial")
    calls: list[int] = []
    convert_checkpoint(checkpoint, target, progress=lambda _, done, __: calls.append(done))
    assert calls[0] == 0
    assert sha256(target) == expected


def test_another_source_starts_over(checkpoint: Path, tmp_path: Path) -> None:
    """Even one with the same names and options, and whatever became of the first one."""
    target = tmp_path / "model.gguf"
    first, other = tmp_path / "a" / "large", tmp_path / "b" / "large"
    shutil.copytree(checkpoint, first)
    write_large(other, n_shards=2)
    convert_checkpoint(other, tmp_path / "other.gguf")
    interrupt(first, target)
    convert_checkpoint(other, target)
    assert sha256(target) == sha256(tmp_path / "other.gguf")


def test_one_target_has_one_writer(checkpoint: Path, expected: str, tmp_path: Path) -> None:
    target = tmp_path / "model.gguf"
    journal = Journal(target)
    with pytest.raises(ConvertError, match=r"Another gptoss is converting to .*model.gguf"):
        convert_checkpoint(checkpoint, target)
    journal.close()
    convert_checkpoint(checkpoint, target)
    assert sha256(target) == expected


def test_interrupted_between_the_last_sync_and_the_name(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With several files, some have their name already."""
    target, whole = tmp_path / "model.gguf", tmp_path / "whole.gguf"
    expected = [
        sha256(path) for path in convert_checkpoint(checkpoint, whole, max_shard_bytes=60_000_000)
    ]
    interrupt_renaming(checkpoint, target, monkeypatch)
    written = convert_checkpoint(
        checkpoint, target, max_shard_bytes=60_000_000, progress=pytest.fail
    )
    assert [sha256(path) for path in written] == expected
    assert not list(tmp_path.glob("model*.partial"))


def test_a_source_that_changed_after_the_last_sync(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the files have their names: these cannot be continued, only made again."""
    source, target = tmp_path / "large", tmp_path / "model.gguf"
    shutil.copytree(checkpoint, source)
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
    whole = convert_checkpoint(checkpoint, tmp_path / "w.gguf", max_shard_bytes=60_000_000)
    assert [sha256(path) for path in written] == [sha256(path) for path in whole]


def interrupt_renaming(source: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace, n_calls = os.replace, iter(range(10))

    def stop_at_the_second(source: Path, target: Path) -> None:
        if next(n_calls) == 1:
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr("os.replace", stop_at_the_second)
        with pytest.raises(KeyboardInterrupt):
            convert_checkpoint(source, target, max_shard_bytes=60_000_000)
    assert list(target.parent.glob("model*.partial"))


@pytest.fixture
def half_deleted(checkpoint: Path, tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A copy of the checkpoint, some shards of which live on only in the partial file."""
    source, target = tmp_path / "large", tmp_path / "model.gguf"
    shutil.copytree(checkpoint, source)
    with pytest.raises(KeyboardInterrupt):
        convert_checkpoint(
            source, target, delete_source=True, progress=Interrupt(KeyboardInterrupt("stop"))
        )
    n_left = len(list(source.glob("*.safetensors")))
    assert 0 < n_left < 4
    assert len(finished_shards(source, target)) == 4 - n_left
    return source, target


def test_deleted_shards_are_not_needed(half_deleted: tuple[Path, Path], expected: str) -> None:
    source, target = half_deleted
    convert_checkpoint(source, target, delete_source=True)
    assert sha256(target) == expected
    assert not list(source.glob("*.safetensors"))


def test_what_was_deleted_is_not_thrown_away(half_deleted: tuple[Path, Path]) -> None:
    source, target = half_deleted
    before = sha256(target.with_name("model.gguf.partial"))
    with pytest.raises(ConvertError, match="begun with other options") as caught:
        convert_checkpoint(source, target, dense="bf16")
    assert "model.gguf.journal" in caught.value.hint
    assert sha256(target.with_name("model.gguf.partial")) == before


def test_a_shard_that_is_still_needed_is_missing(half_deleted: tuple[Path, Path]) -> None:
    source, target = half_deleted
    gone = next(iter(source.glob("*.safetensors")))
    gone.unlink()
    with pytest.raises(ConvertError, match=f"The shard .*{gone.name} is missing"):
        convert_checkpoint(source, target)
