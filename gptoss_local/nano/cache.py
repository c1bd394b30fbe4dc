"""Keeps the nano model as a GGUF on disk: made once, found ever after.

The file's name carries a hash of everything it is made from, so it needs no version check, and a
release with other weights or another converter simply asks for another name. Two processes may make
it at once: each works in a folder of its own and the last step is a rename.
"""

import contextlib
import functools
import hashlib
import os
import shutil
import tempfile
import time
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from gptoss_local.errors import ConvertError
from gptoss_local.types import Progress

if TYPE_CHECKING:
    from convert import DenseType

MODEL_NAME = "gpt-oss-nano"
GGUF_VERSION = 3  # counts up whenever the same data gives another file; a test holds it
STALE_S = 24 * 3600  # a work folder this old was left behind by a killed process


def ensure_gguf(
    cache_dir: Path, *, dense: "DenseType" = "q8_0", progress: Progress | None = None
) -> Path:
    """Return the nano GGUF, making it first if needed (about 7 s on two cores).

    Args:
        cache_dir: Where the file is kept, made if missing. Older nano files in it are removed.
        dense: Type of embedding, attention and head weights.
        progress: Told of both steps, unpacking and converting.

    Raises:
        ConvertError: The folder cannot be written, or the disk is full.

    Thread:
        Safe to call from several threads and processes at once.
    """
    target = _target(cache_dir, dense)
    if target.is_file():
        return target
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        work_dir = Path(tempfile.mkdtemp(prefix=f"{MODEL_NAME}-", suffix=".tmp", dir=cache_dir))
        try:
            _make(work_dir, target, dense, progress)
        finally:
            shutil.rmtree(work_dir, ignore_errors=True)  # `_remove_old` sweeps up later
    except OSError as error:
        raise ConvertError(
            f"The embedded nano model cannot be unpacked into {cache_dir}: {error}.",
            hint="The folder must be writable and have 400 MB free.",
        ) from error
    _remove_old(cache_dir)
    return target


def cached_gguf(cache_dir: Path, *, dense: "DenseType" = "q8_0") -> Path | None:
    """Return the nano GGUF if it has been made; makes nothing."""
    target = _target(cache_dir, dense)
    return target if target.is_file() else None


def _target(cache_dir: Path, dense: "DenseType") -> Path:
    return cache_dir / f"{MODEL_NAME}-{_data_digest()}-{dense}.gguf"


@functools.cache
def _data_digest() -> str:
    """Hash all that decides the content of the GGUF but the dense type; about 10 ms."""
    digest = hashlib.sha256(str(GGUF_VERSION).encode())
    for name in ("nano.xz", "o200k_base.xz"):
        digest.update(resources.files(__package__).joinpath(name).read_bytes())
    return digest.hexdigest()[:12]


def _make(work_dir: Path, target: Path, dense: "DenseType", progress: Progress | None) -> None:
    # Not at the top: finding the file, which `gptoss ls` does, needs neither numpy nor gguf.
    from convert import convert_checkpoint
    from gptoss_local.nano.materialize import materialize

    checkpoint = work_dir / MODEL_NAME  # the GGUF's general.name is made from the folder's name
    materialize(checkpoint, progress=progress)
    made = work_dir / target.name
    convert_checkpoint(checkpoint, made, dense=dense, progress=progress)
    try:
        os.replace(made, target)
    except PermissionError:
        # Windows refuses to replace an open file: another process was first, and already uses it.
        if not target.is_file():
            raise


def _remove_old(cache_dir: Path) -> None:
    """Remove nano files of other releases, and work folders that nobody works in any more."""
    for path in cache_dir.glob(f"{MODEL_NAME}-*.gguf"):
        if not path.name.startswith(f"{MODEL_NAME}-{_data_digest()}-"):
            with contextlib.suppress(OSError):  # in use on Windows; the next upgrade tries again
                path.unlink()
    for path in cache_dir.glob(f"{MODEL_NAME}-*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > STALE_S:
                shutil.rmtree(path)
