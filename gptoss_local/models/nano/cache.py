"""Keep the nano model as a GGUF on disk, whose name carries a hash of its sources."""

import contextlib
import functools
import hashlib
import os
import shutil
import tempfile
from contextlib import AbstractContextManager
from importlib import resources
from pathlib import Path

from gptoss_local.base.errors import disk_error
from gptoss_local.base.lock import locked
from gptoss_local.base.types import Progress

MODEL_NAME = "gpt-oss-nano"
GGUF_VERSION = 4  # counts up whenever the same data gives another file; a test holds it
_WAIT_S = 600.0  # for another process that makes the file; it takes 7 s on two cores


def ensure_gguf(cache_dir: Path, *, progress: Progress | None = None) -> Path:
    """Return the nano GGUF, making it first if needed (7 s); safe in threads and processes."""
    target = _target(cache_dir)
    if target.is_file():
        return target
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with _lock(cache_dir, _WAIT_S):
            if not target.is_file():  # another process may have made it by now
                _remove_old(cache_dir)
                work_dir = Path(tempfile.mkdtemp(".tmp", f"{MODEL_NAME}-", cache_dir))
                try:
                    _make(work_dir, target, progress)
                finally:
                    shutil.rmtree(work_dir, ignore_errors=True)
    except OSError as error:
        raise disk_error(
            f"The embedded nano model cannot be unpacked into {cache_dir}: {error}.",
            error,
            hint="The folder must be writable and have 400 MB free.",
        ) from error
    return target


def leftovers(cache_dir: Path) -> list[Path]:
    try:
        with _lock(cache_dir, 0):
            return list(cache_dir.glob(f"{MODEL_NAME}-*.tmp"))
    except OSError:  # one is at work, or there is no cache
        return []


def cached_gguf(cache_dir: Path) -> Path | None:
    target = _target(cache_dir)
    return target if target.is_file() else None


def _target(cache_dir: Path) -> Path:
    return cache_dir / f"{MODEL_NAME}-{_data_digest()}-q8_0.gguf"


@functools.cache
def _data_digest() -> str:
    digest = hashlib.sha256(str(GGUF_VERSION).encode())
    for name in ("nano.xz", "o200k_base.xz"):
        digest.update(resources.files(__package__).joinpath(name).read_bytes())
    return digest.hexdigest()[:12]


def _lock(cache_dir: Path, timeout_s: float) -> AbstractContextManager[None]:
    return locked(cache_dir / "nano.lock", timeout_s=timeout_s)


def _make(work_dir: Path, target: Path, progress: Progress | None) -> None:
    # Not at the top: finding the file, which `gptoss ls` does, needs neither numpy nor gguf.
    from convert import convert_checkpoint
    from gptoss_local.models.nano.materialize import materialize

    checkpoint = work_dir / MODEL_NAME  # the GGUF's general.name is made from the folder's name
    materialize(checkpoint, progress=progress)
    made = work_dir / target.name
    convert_checkpoint(checkpoint, made, progress=progress)
    try:
        os.replace(made, target)
    except PermissionError:
        # Windows refuses to replace an open file: another process was first, and already uses it.
        if not target.is_file():
            raise


def _remove_old(cache_dir: Path) -> None:
    for path in cache_dir.glob(f"{MODEL_NAME}-*.gguf"):
        if not path.name.startswith(f"{MODEL_NAME}-{_data_digest()}-"):
            with contextlib.suppress(OSError):  # in use on Windows; the next upgrade tries again
                path.unlink()
    for path in cache_dir.glob(f"{MODEL_NAME}-*.tmp"):
        shutil.rmtree(path, ignore_errors=True)
