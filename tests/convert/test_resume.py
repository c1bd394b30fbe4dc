"""An interrupted conversion continues at the next run, to the same bytes, or starts over."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from convert import convert_checkpoint, finished_shards
from convert.journal import Journal, read_journal
from gptoss_local.base.errors import ConvertError
from tests.convert.large import names, sha256, write_large
from tests.convert.tiny import write_tiny

pytestmark = pytest.mark.usefixtures("sync_often")

JOURNAL, PARTIAL, MAX_BYTES = "model.gguf.journal", "model.gguf.partial", 30_000_000
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


def interrupt(
    source: Path,
    target: Path,
    error: BaseException | None = None,
    share: float = 0.5,
    **options: Any,
) -> None:
    """Convert until a share of it is done."""
    stop = error or KeyboardInterrupt("stop")

    def progress(what: str, done: int, total: int) -> None:
        time.sleep(0.001)  # so that some tensors are synced on the way
        if done > total * share:
            raise stop

    with pytest.raises(BaseException, match="stop"):
        convert_checkpoint(source, target, progress=progress, **options)


def interrupt_renaming(source: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace, n_calls = os.replace, iter(range(10))

    def stop_at_the_second(source: Path, target: Path) -> None:
        if next(n_calls) == 1:
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr("os.replace", stop_at_the_second)
        with pytest.raises(KeyboardInterrupt):
            convert_checkpoint(source, target, max_shard_bytes=MAX_BYTES)
    assert list(target.parent.glob("model*.partial"))


def go_on(source: Path, target: Path, **options: Any) -> int:
    """Convert to the end; return how much was done at the start."""
    calls: list[int] = []
    convert_checkpoint(source, target, progress=lambda _, done, __: calls.append(done), **options)
    assert calls == sorted(calls)
    assert not list(target.parent.glob("model*.partial"))
    assert not target.with_name(JOURNAL).exists()
    return calls[0]


@pytest.fixture
def copy(large: Path, tmp_path: Path) -> Path:
    """A checkpoint that the test may change."""
    return shutil.copytree(large, tmp_path / "source" / "large")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "model.gguf"


@pytest.mark.parametrize("error", [KeyboardInterrupt("stop"), OSError(5, "stop")])
@pytest.mark.parametrize("tail", [b"", b'{"type":"sum","tens', b"\0\0\0\0\n\xff\n"])
def test_next_run_goes_on(
    large: Path, large_sha256: str, target: Path, error: BaseException, tail: bytes
) -> None:
    """Also where the last line of the journal is torn."""
    interrupt(large, target, error)
    assert names(target.parent) == [JOURNAL, PARTIAL]
    with target.with_name(JOURNAL).open("ab") as journal:
        journal.write(tail)
    assert go_on(large, target) > 1_000_000
    assert sha256(target) == large_sha256


@pytest.mark.parametrize("delete", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_kill_at_random_points(
    large: Path, large_sha256: str, copy: Path, target: Path, delete: bool
) -> None:
    command = [sys.executable, "-c", SLOW, str(copy), str(target), *["delete"] * delete]
    starts = []
    for is_last in (False, False, True):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        start, total = map(int, process.stdout.readline().split())
        starts.append(start)
        end = start + random.random() * 0.8 * (total - start)
        while int(process.stdout.readline().split()[0]) < end:
            pass
        while is_last and not read_journal(copy, target).sums:  # a busy disk syncs slowly
            time.sleep(0.01)
        process.kill()
        process.communicate()
    last = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    starts.append(int(last.stdout.split()[0]))
    assert starts == sorted(starts)
    assert starts[-1] > 0
    assert sha256(target) == large_sha256
    assert names(target.parent) == ["model.gguf"]
    left = {path.name for path in copy.glob("*.safetensors")}
    assert left == (set() if delete else {path.name for path in large.glob("*.safetensors")})
    assert (copy / "model.safetensors.index.json").exists()


def test_ctrl_c_says_how_to_go_on(nano_checkpoint: Path, q8_0_gguf: Path, target: Path) -> None:
    """The real command on the real model; it prints a line for each tenth."""
    command = [sys.executable, "-m", "gptoss_local", "convert", str(nano_checkpoint), str(target)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("convert: 10 %")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines()[-1].startswith("Interrupted. Run the same command again")
    assert not target.exists()
    assert subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0
    assert sha256(target) == sha256(q8_0_gguf)


def test_disk_full(large: Path, large_sha256: str, target: Path) -> None:
    """A limit on the size of files stands for a full disk: the kernel refuses the write."""
    code = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (30_000_000, 30_000_000))\n"
    command = [sys.executable, "-c", code + SLOW, str(large), str(target)]
    errors = subprocess.run(command, capture_output=True, text=True).stderr
    for words in ("ConvertError: Writing", "model.gguf failed", "File too large"):
        assert words in errors
    assert read_journal(large, target).sums
    assert go_on(large, target) > 0
    assert sha256(target) == large_sha256


def test_nothing_is_left_if_nothing_was_done(tmp_path: Path, target: Path) -> None:
    def stop(what: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert_checkpoint(write_tiny(tmp_path / "tiny"), target, progress=stop)
    assert names(target.parent) == []


def test_one_target_has_one_writer(tmp_path: Path, target: Path) -> None:
    source, journal = write_tiny(tmp_path / "tiny"), Journal(target)
    with pytest.raises(ConvertError, match=r"Another gptoss is converting to .*model.gguf"):
        convert_checkpoint(source, target)
    journal.close()
    convert_checkpoint(source, target)


@pytest.mark.parametrize("is_changed", [False, True])
def test_interrupted_between_the_last_sync_and_the_name(
    large: Path, copy: Path, target: Path, monkeypatch: pytest.MonkeyPatch, is_changed: bool
) -> None:
    """Some files have their name already: of a source that changed they must be made again."""
    whole = convert_checkpoint(large, target.with_name("whole.gguf"), max_shard_bytes=MAX_BYTES)
    interrupt_renaming(copy, target, monkeypatch)
    if is_changed:
        os.utime(copy / "model-00002-of-00004.safetensors")
    calls: list[int] = []
    written = convert_checkpoint(
        copy, target, max_shard_bytes=MAX_BYTES, progress=lambda _, done, __: calls.append(done)
    )
    assert calls[:1] == ([0] if is_changed else [])
    assert [sha256(path) for path in written] == [sha256(path) for path in whole]
    assert not list(target.parent.glob("model*.partial"))


@pytest.fixture
def half_deleted(copy: Path, target: Path) -> Path:
    """A checkpoint of which some shards live on only in the partial file."""
    # several workers stop in the middle of different shards
    interrupt(copy, target, delete_source=True, n_workers=1)
    assert len(list(copy.glob("*.safetensors"))) == 2
    assert len(finished_shards(copy, target)) == 2
    return copy


def test_deleted_shards_are_not_needed(half_deleted: Path, target: Path, large_sha256: str) -> None:
    """But they are not thrown away: their only copy stays, despite any option."""
    partial = target.with_name(PARTIAL)
    before = sha256(partial)
    with pytest.raises(ConvertError, match="begun with other options") as caught:
        convert_checkpoint(half_deleted, target, dense="bf16")
    assert JOURNAL in caught.value.hint
    needed = next(iter(half_deleted.glob("*.safetensors")))
    away = needed.rename(half_deleted / "away")
    with pytest.raises(ConvertError, match=f"The shard .*{needed.name} is missing"):
        convert_checkpoint(half_deleted, target)
    assert sha256(partial) == before
    away.rename(needed)
    convert_checkpoint(half_deleted, target, delete_source=True)
    assert sha256(target) == large_sha256
    assert not list(half_deleted.glob("*.safetensors"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda journal, partial: partial.unlink(),
        lambda journal, partial: os.truncate(partial, 1000),
        lambda journal, partial: journal.write_bytes(b"nonsense"),
    ],
)
def test_unusable_remains_start_over(
    large: Path, large_sha256: str, target: Path, damage: Callable[[Path, Path], object]
) -> None:
    interrupt(large, target)
    damage(target.with_name(JOURNAL), target.with_name(PARTIAL))
    assert go_on(large, target) == 0
    assert sha256(target) == large_sha256


def test_other_options_start_over(large: Path, large_sha256: str, target: Path) -> None:
    interrupt(large, target, dense="bf16", max_shard_bytes=40_000_000)
    assert any("-of-" in name for name in names(target.parent))
    assert go_on(large, target) == 0
    assert names(target.parent) == ["model.gguf"]
    assert sha256(target) == large_sha256


@pytest.mark.parametrize("is_another", [False, True])
def test_a_changed_or_another_source_is_read_again(
    copy: Path, target: Path, tmp_path: Path, is_another: bool
) -> None:
    """Even with the same names and options."""
    interrupt(copy, target, share=0.9)
    if is_another:
        copy = write_large(tmp_path / "b" / "large", n_shards=2)
    else:
        assert {"token_embd.weight", "output.weight"} & read_journal(copy, target).sums.keys()
        for i in (1, 3):
            shard = copy / f"model-0000{i}-of-00004.safetensors"
            data = bytearray(shard.read_bytes())
            data[len(data) // 2 :: 1000] = bytes(len(data[len(data) // 2 :: 1000]))
            shard.write_bytes(data)
    convert_checkpoint(copy, target)
    convert_checkpoint(copy, tmp_path / "fresh.gguf")
    assert sha256(target) == sha256(tmp_path / "fresh.gguf")
