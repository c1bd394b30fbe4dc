"""Interrupted conversions."""

import hashlib
import os
import time
from pathlib import Path

import pytest

from convert import convert_checkpoint


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Interrupt:
    """A Progress that stops the conversion when half of it is done."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __call__(self, what: str, done: int, total: int) -> None:
        time.sleep(0.001)  # so that some tensors are synced on the way
        if done > total / 2:
            raise self.error


def interrupt(source: Path, target: Path, error: BaseException | None = None) -> None:
    with pytest.raises(BaseException, match="stop"):
        convert_checkpoint(source, target, progress=Interrupt(error or KeyboardInterrupt("stop")))


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
