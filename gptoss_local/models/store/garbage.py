"""Files of the models folder that no model needs, and leftovers of interrupted pulls.

Files that a living process holds are kept, however old. A pull that no process holds is
interrupted. A change without a lock takes minutes, as after an upload.
"""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from gptoss_local.base.formats.gguf_file import SPLIT_NAME
from gptoss_local.base.settings import Settings
from gptoss_local.models.names import WEIGHTS_SUFFIX
from gptoss_local.models.nano import leftovers
from gptoss_local.models.store.blobs import unused_blobs
from gptoss_local.models.store.lock import is_held
from gptoss_local.models.store.manifests import remove_files, unnamed_weights

QUIET_S = 600.0

Kind = Literal["blob", "weights", "part", "nano", "interrupted"]


class Leftover(msgspec.Struct, frozen=True):
    path: Path
    size_bytes: int
    kind: Kind

    def remove(self) -> None:
        if self.path.is_dir():
            _remove_tree(self.path)
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


def _remove_tree(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            with contextlib.suppress(OSError):
                path.rmdir()
        else:
            remove_files([path])
    with contextlib.suppress(OSError):
        folder.rmdir()
