"""An interrupted conversion goes on at the next run, to the same bytes."""

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
from gptoss_local.base.errors import ConvertError
from tests.convert.interrupted import Interrupt, interrupt, interrupt_renaming, names, sha256
from tests.convert.tiny import write_tiny

pytestmark = pytest.mark.usefixtures("sync_often")

SLOW = """
import sys, time, convert.run
from pathlib import Path
from convert import convert_checkpoint
convert.run.SYNC_S = 0.01
def wait(what, done, total):
    print(done, total, flush=True)
    time.sleep(0.002)
source, target, *options = sys.argv[1:]
convert_checkpoint(
    Path(source), Path(target), progress=wait, delete_source="delete" in options, n_workers=2
)
"""
"""Converts in a process of its own, slowly enough to be killed on the way."""


@pytest.mark.parametrize("error", [KeyboardInterrupt("stop"), OSError(5, "stop")])
def test_next_run_goes_on(
    large: Path, large_sha256: str, tmp_path: Path, error: BaseException
) -> None:
    target = tmp_path / "model.gguf"
    interrupt(large, target, error)
    assert names(tmp_path) == ["model.gguf.journal", "model.gguf.partial"]
    calls: list[int] = []
    convert_checkpoint(large, target, progress=lambda _, done, __: calls.append(done))
    assert calls[0] > 1_000_000
    assert calls == sorted(calls)
    assert sha256(target) == large_sha256
    assert names(tmp_path) == ["model.gguf"]


@pytest.mark.parametrize("delete", [False, True])
def test_kill_at_random_points(
    large: Path, large_sha256: str, tmp_path: Path, delete: bool
) -> None:
    source, target = tmp_path / "large", tmp_path / "model.gguf"
    shutil.copytree(large, source)
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
    assert sha256(target) == large_sha256
    assert not list(tmp_path.glob("model.gguf.*"))
    left = {path.name for path in source.glob("*.safetensors")}
    assert left == (set() if delete else {path.name for path in large.glob("*.safetensors")})
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
    assert errors.splitlines()[-1].startswith("Interrupted. Run the same command again")
    assert not target.exists()


def test_disk_full(large: Path, large_sha256: str, tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: the kernel refuses the write."""
    target = tmp_path / "model.gguf"
    code = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (60_000_000, 60_000_000))\n"
    command = [sys.executable, "-c", code + SLOW, str(large), str(target)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "ConvertError: Writing" in done.stderr
    assert "model.gguf failed" in done.stderr
    assert "File too large" in done.stderr
    assert read_journal(large, target).sums
    convert_checkpoint(large, target)
    assert sha256(target) == large_sha256


def test_nothing_is_left_if_nothing_was_done(tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "tiny")

    def stop(what: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    (tmp_path / "out").mkdir()
    with pytest.raises(KeyboardInterrupt):
        convert_checkpoint(source, tmp_path / "out" / "model.gguf", progress=stop)
    assert names(tmp_path / "out") == []


@pytest.mark.parametrize("tail", [b'{"type":"sum","tens', b"\0\0\0\0\n", b"\xff\n"])
def test_torn_last_line(large: Path, large_sha256: str, tmp_path: Path, tail: bytes) -> None:
    target = tmp_path / "model.gguf"
    interrupt(large, target)
    journal = tmp_path / "model.gguf.journal"
    journal.write_bytes(journal.read_bytes() + tail)
    calls: list[int] = []
    convert_checkpoint(large, target, progress=lambda _, done, __: calls.append(done))
    assert calls[0] > 0
    assert sha256(target) == large_sha256


def test_one_target_has_one_writer(large: Path, large_sha256: str, tmp_path: Path) -> None:
    target = tmp_path / "model.gguf"
    journal = Journal(target)
    with pytest.raises(ConvertError, match=r"Another gptoss is converting to .*model.gguf"):
        convert_checkpoint(large, target)
    journal.close()
    convert_checkpoint(large, target)
    assert sha256(target) == large_sha256


def test_interrupted_between_the_last_sync_and_the_name(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With several files, some have their name already."""
    target, whole = tmp_path / "model.gguf", tmp_path / "whole.gguf"
    expected = [
        sha256(path) for path in convert_checkpoint(large, whole, max_shard_bytes=60_000_000)
    ]
    interrupt_renaming(large, target, monkeypatch)
    written = convert_checkpoint(large, target, max_shard_bytes=60_000_000, progress=pytest.fail)
    assert [sha256(path) for path in written] == expected
    assert not list(tmp_path.glob("model*.partial"))


@pytest.fixture
def half_deleted(large: Path, tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A copy of the checkpoint, some shards of which live on only in the partial file."""
    source, target = tmp_path / "large", tmp_path / "model.gguf"
    shutil.copytree(large, source)
    with pytest.raises(KeyboardInterrupt):
        convert_checkpoint(
            source,
            target,
            delete_source=True,
            progress=Interrupt(KeyboardInterrupt("stop")),
            n_workers=1,  # several stop in the middle of different shards
        )
    assert len(list(source.glob("*.safetensors"))) == 2
    assert len(finished_shards(source, target)) == 2
    return source, target


def test_deleted_shards_are_not_needed(half_deleted: tuple[Path, Path], large_sha256: str) -> None:
    source, target = half_deleted
    convert_checkpoint(source, target, delete_source=True)
    assert sha256(target) == large_sha256
    assert not list(source.glob("*.safetensors"))


def test_the_only_copy_is_not_thrown_away(half_deleted: tuple[Path, Path]) -> None:
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
