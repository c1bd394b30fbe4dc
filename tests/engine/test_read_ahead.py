"""Files that come into the page cache by several reads at a time."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from gptoss_local.base.errors import ModelLoadError
from gptoss_local.engine.worker import process

N_BYTES = 20 * 2**20 + 1


@pytest.fixture
def cold(tmp_path: Path) -> Path:
    """A file on the disk, of which the page cache holds nothing; skipped where it stays."""
    path = tmp_path / "model.gguf"
    with path.open("w+b") as file:
        file.write(os.urandom(N_BYTES))
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if is_cached(file.fileno(), N_BYTES // 2):
            pytest.skip("this file system is RAM")
    return path


def cached_share(path: Path) -> float:
    """How many of its pages can be read without the disk; to ask has it read some."""
    starts = range(0, N_BYTES, 4096)
    with path.open("rb") as file:
        return sum(is_cached(file.fileno(), at) for at in starts) / len(starts)


def is_cached(descriptor: int, at: int) -> bool:
    try:
        return bool(os.preadv(descriptor, [bytearray(1)], at, os.RWF_NOWAIT))
    except BlockingIOError:
        return False


def test_all_is_there_afterwards(cold: Path) -> None:
    fractions: list[float] = []
    share = process.read_ahead(cold, fractions.append)
    assert cached_share(cold) == 1
    assert share == fractions[-1] == pytest.approx(0.9)
    assert len(fractions) == 3
    assert fractions == sorted(fractions)


def test_a_file_larger_than_ram_is_left_to_the_system(
    cold: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = SimpleNamespace(total=N_BYTES - 1)
    monkeypatch.setattr(process.psutil, "virtual_memory", lambda: memory)
    assert process.read_ahead(cold, pytest.fail) == 0


def test_a_disk_that_cannot_be_read_is_a_clear_error(
    cold: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(process.os, "pread", fail)
    with pytest.raises(ModelLoadError, match=r"cannot read .*: Input/output error"):
        process.read_ahead(cold, lambda _: None)
