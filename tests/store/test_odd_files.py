"""Odd files among the models: no command hangs on them, and they hide no model."""

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gptoss_local.base.errors import ModelLoadError, ModelNotFoundError
from gptoss_local.base.settings import Settings
from gptoss_local.models.store import (
    add_model,
    find_model,
    list_models,
    read_info,
)

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
