"""Odd files among the models: no command hangs on them, and they hide no model."""

import errno
import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gptoss_local.errors import DiskError, ModelLoadError, ModelNotFoundError
from gptoss_local.models.store import (
    BlobWriter,
    add_model,
    find_model,
    list_models,
    read_info,
)
from gptoss_local.settings import Settings

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="no such files there")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = Settings(home=tmp_path)
    made.models_dir.mkdir()
    return made


@pytest.mark.quick
@POSIX
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
@pytest.mark.parametrize("suffix", [".gguf", ".json"])
def test_a_pipe_or_a_folder_is_no_model(
    settings: Settings, make: Callable[[Path], None], suffix: str
) -> None:
    path = settings.models_dir / f"odd{suffix}"
    make(path)
    assert [entry.name for entry in list_models(settings)] == ["nano"]
    with pytest.raises(ModelNotFoundError):
        find_model("odd", settings)
    with pytest.raises(ModelLoadError, match="it is not a file"):
        read_info(path)


@POSIX
@pytest.mark.parametrize("n_bytes", [1000, 65_536])
def test_an_upload_that_fills_the_disk_leaves_nothing(settings: Settings, n_bytes: int) -> None:
    """A limit on the size of files stands for the disk; small pieces wait in a buffer."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_100, limits[1]))
    try:
        with pytest.raises(DiskError, match="cannot be written"):
            _upload(bytes(1_000_000), n_bytes, settings)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list((settings.models_dir / "blobs").iterdir()) == []


def _upload(data: bytes, n_bytes: int, settings: Settings) -> None:
    """Write a blob in pieces."""
    with BlobWriter(f"sha256:{hashlib.sha256(data).hexdigest()}", settings) as blob:
        for i in range(0, len(data), n_bytes):
            blob.write(data[i : i + n_bytes])


def test_a_copy_is_on_the_disk_before_the_model_is_there(
    settings: Settings, nano_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []

    def no_link(source: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, "another file system")

    def sync(fd: int) -> None:
        assert not (settings.models_dir / "mine.gguf").exists()
        synced.append(os.fstat(fd).st_ino)

    monkeypatch.setattr(os, "link", no_link)
    monkeypatch.setattr(os, "fsync", sync)
    add_model("mine", nano_gguf, settings)
    assert synced == [(settings.models_dir / "mine.gguf").stat().st_ino]
