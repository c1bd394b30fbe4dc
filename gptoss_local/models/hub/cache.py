"""Finds files in Hugging Face's own cache, which is never changed."""

import contextlib
import os
from pathlib import Path
from stat import S_ISREG

import msgspec
from huggingface_hub import constants


class CachedRepo(msgspec.Struct, frozen=True):
    """One repository at one commit: its snapshot folder, and sizes of complete files by name."""

    repo: str
    commit: str
    folder: Path
    files: dict[str, int]


def cached_repos() -> list[CachedRepo]:
    """Return all models in the cache that HF_HUB_CACHE or HF_HOME name, the newest first."""
    cache = Path(os.environ.get("HF_HUB_CACHE") or constants.HF_HUB_CACHE)
    found = []
    for snapshot in cache.glob("models--*/snapshots/*"):
        files, newest_s = {}, 0.0
        for path in snapshot.rglob("*"):
            with contextlib.suppress(OSError):
                stat = path.stat()
                if S_ISREG(stat.st_mode):
                    files[path.relative_to(snapshot).as_posix()] = stat.st_size
                    newest_s = max(newest_s, stat.st_mtime)
        repo = snapshot.parents[1].name.removeprefix("models--").replace("--", "/")
        if files:
            found.append((newest_s, CachedRepo(repo, snapshot.name, snapshot, files)))
    return [each for _, each in sorted(found, key=lambda pair: pair[0], reverse=True)]
