"""Files of the models folder that no model needs; those that a living process holds are kept."""

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from gptoss_local.base.errors import ModelNotFoundError, UsageError, disk_error
from gptoss_local.base.formats.gguf_file import SPLIT_NAME
from gptoss_local.base.lock import hold, is_held
from gptoss_local.base.settings import Settings
from gptoss_local.base.whole_file import replace
from gptoss_local.models.names import WEIGHTS_SUFFIX
from gptoss_local.models.nano import leftovers
from gptoss_local.models.store.manifests import remove_files, unnamed_weights, unreadable_manifests

_DIGEST = re.compile(r"sha256[:-]([0-9a-fA-F]{64})")
_NAMED = re.compile(r"(?:sha256-)?([0-9a-f]{64})")
_UNUSED_S = 24 * 3600  # for a blob that no model was made of since, or a part of one


def blob_path(digest: str, settings: Settings) -> Path:
    """Return the path of the blob with a digest (`sha256:` and 64 hex digits), there or not."""
    found = _DIGEST.fullmatch(digest)
    if found is None:
        raise UsageError("invalid digest format")
    return settings.models_dir / "blobs" / f"sha256-{found[1].lower()}"


def find_blob(digest: str, settings: Settings) -> Path:
    path = blob_path(digest, settings)
    if not path.is_file():
        raise ModelNotFoundError(f'blob "{digest}" not found')
    return path


class BlobWriter:
    """Writes one blob, which appears once it is complete and right. Thread: one at a time."""

    def __init__(self, digest: str, settings: Settings) -> None:
        self._settings = settings
        self._target = blob_path(digest, settings)
        self._part = self._target.with_name(f"{self._target.name}.{secrets.token_hex(4)}.part")
        self._hash = hashlib.sha256()

    def __enter__(self) -> "BlobWriter":
        with disk_errors():
            self._target.parent.mkdir(parents=True, exist_ok=True)
            remove_unused(self._settings)
            self._file = self._part.open("xb")
            hold(self._file)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # a full disk, which closing tries once more
            self._file.close()
        self._part.unlink(missing_ok=True)

    def write(self, data: bytes) -> None:
        with disk_errors():
            self._file.write(data)
        self._hash.update(data)

    def finish(self) -> None:
        expected = self._target.name.replace("-", ":")
        got = f"sha256:{self._hash.hexdigest()}"
        if got != expected:
            raise UsageError(f'digest mismatch, expected "{expected}", got "{got}"')
        with disk_errors():
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            replace(self._part, self._target)


def add_blob(file: Path, digest: str, settings: Settings) -> Path:
    target = blob_path(digest, settings)
    with disk_errors():
        target.parent.mkdir(parents=True, exist_ok=True)
        os.utime(file)  # so that it does not look unused
        replace(file, target)
    return target


def blob_of(path: Path, settings: Settings) -> Path | None:
    with contextlib.suppress(OSError):
        stat = path.stat()
        for blob in (settings.models_dir / "blobs").glob("sha256-*"):
            if blob.suffix != ".part" and os.path.samestat(stat, blob.stat()):
                return blob
    return None


def known_sha256(path: Path, settings: Settings) -> str | None:
    """Return the sha256 in the name of a file or its blob, of ours, Ollama's or the hub's cache."""
    blob = blob_of(path, settings) or path.resolve()
    found = _NAMED.fullmatch(blob.name)
    return found[1] if found else None


def unused_blobs(
    settings: Settings, older_than_s: float, *, garbage: Iterable[Path] = ()
) -> list[Path]:
    """Return untouched blobs that only `garbage` shares; none while a manifest is unreadable."""
    if unreadable_manifests(settings):
        return []
    now_s, found, n_garbage = time.time(), [], Counter[tuple[int, int]]()
    for path in garbage:
        with contextlib.suppress(OSError):
            stat = path.stat()
            n_garbage[stat.st_dev, stat.st_ino] += 1
    for path in (settings.models_dir / "blobs").glob("sha256-*"):
        with contextlib.suppress(OSError):  # another process may remove it
            stat = path.stat()
            n_links = stat.st_nlink - n_garbage[stat.st_dev, stat.st_ino]
            is_old = now_s - stat.st_mtime > older_than_s
            if n_links == 1 and is_old and not is_held(path):
                found.append(path)
    return found


def remove_unused(settings: Settings) -> None:
    for path in unused_blobs(settings, _UNUSED_S):
        with contextlib.suppress(OSError):  # another process may do the same
            path.unlink()


@contextlib.contextmanager
def disk_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise disk_error(
            f"the models folder cannot be written: {error.strerror or error}",
            error,
            hint="It must be writable and have room for the model; `gptoss gc` frees some.",
        ) from error


QUIET_S = 600.0

Kind = Literal["blob", "weights", "part", "nano", "interrupted"]


class Leftover(msgspec.Struct, frozen=True):
    path: Path
    size_bytes: int
    kind: Kind

    def remove(self) -> None:
        if self.path.is_dir():
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            remove_files([self.path])


def find_garbage(settings: Settings, *, quiet_s: float = QUIET_S) -> list[Leftover]:
    """Find deletable files, untouched for `quiet_s` seconds; interrupted pulls come last."""
    folder = settings.models_dir
    weights = unnamed_weights(settings, quiet_s)
    unfinished = [
        *folder.glob("*.part"),
        *settings.cache_dir.glob("measured/*.part"),
        *settings.prefix_dir.glob("*/*.partial"),
    ]
    parts = [path for path in unfinished if _is_quiet(path, quiet_s) and not is_held(path)]
    kinds: tuple[tuple[Kind, list[Path]], ...] = (
        ("weights", weights),
        ("part", parts),
        ("blob", unused_blobs(settings, quiet_s, garbage=[*weights, *parts])),
        ("nano", leftovers(settings.cache_dir)),
        ("interrupted", list(_interrupted(folder))),
    )
    found = ((path, kind) for kind, paths in kinds for path in paths)
    return [Leftover(path, _freed_bytes(path, kind), kind) for path, kind in found]


def _interrupted(folder: Path) -> Iterator[Path]:
    """Yield downloads, partial files and journals, unless a process holds the same target."""
    targets: dict[str, list[Path]] = {}
    for suffix in (".download", ".partial", ".journal"):
        for path in folder.glob(f"*.gguf{suffix}"):
            target = SPLIT_NAME.sub(WEIGHTS_SUFFIX, path.name.removesuffix(suffix))
            targets.setdefault(target, []).append(path)
    for paths in targets.values():
        if not any(map(is_held, paths)):
            yield from paths


def _is_quiet(path: Path, quiet_s: float) -> bool:
    with contextlib.suppress(OSError):  # another process may remove it
        stat = path.stat()
        # A link is as old as the file that it shares.
        return time.time() - (stat.st_ctime if stat.st_nlink > 1 else stat.st_mtime) > quiet_s
    return False


def _freed_bytes(path: Path, kind: Kind) -> int:
    """Count bytes that several of the files share for the blob among them."""
    n_bytes = 0
    for each in (path, *path.rglob("*")):
        with contextlib.suppress(OSError):
            stat = each.stat()
            is_last = stat.st_nlink == 1 or kind == "blob"
            n_bytes += stat.st_size if each.is_file() and is_last else 0
    return n_bytes
