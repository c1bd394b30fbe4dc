"""Files from the Hugging Face hub: resumable, checked while they arrive, shard by shard."""

import contextlib
import os
from pathlib import Path
from stat import S_ISREG

import msgspec

import gptoss_local.models.hub._environment  # noqa: F401 - before huggingface_hub
from gptoss_local.models.hub.client import HubClient
from gptoss_local.models.hub.download import (
    HubCheckpoint,
    download_files,
    is_offline,
    open_checkpoint,
)
from gptoss_local.models.hub.folder import DownloadFolder
from gptoss_local.models.hub.listing import HubFile, Listing


class CachedRepo(msgspec.Struct, frozen=True):
    """One repository at one commit.

    Attributes:
        folder: Its snapshot: links to the files, by their names in the repository.
        files: Sizes in bytes of the complete files by these names.
    """

    repo: str
    commit: str
    folder: Path
    files: dict[str, int]


def cached_repos() -> list[CachedRepo]:
    """Return all models in the cache that HF_HUB_CACHE or HF_HOME name, the newest first."""
    from huggingface_hub import constants

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


__all__ = [
    "CachedRepo",
    "DownloadFolder",
    "HubCheckpoint",
    "HubClient",
    "HubFile",
    "Listing",
    "cached_repos",
    "download_files",
    "is_offline",
    "open_checkpoint",
]
