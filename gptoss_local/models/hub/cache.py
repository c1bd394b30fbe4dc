"""Finds files that Hugging Face's own cache holds already; it is read and never changed."""

import os
from pathlib import Path

import msgspec
from huggingface_hub import constants, scan_cache_dir
from huggingface_hub.errors import CacheNotFound


class CachedRepo(msgspec.Struct, frozen=True):
    """One repository at one commit.

    Attributes:
        folder: Its snapshot: links to the files, by their names in the repository.
        files: Sizes in bytes by these names; only complete files are there.
    """

    repo: str
    commit: str
    folder: Path
    files: dict[str, int]


def cached_repos() -> list[CachedRepo]:
    """Return all models in the cache that HF_HUB_CACHE or HF_HOME name, the newest first."""
    folder = os.environ.get("HF_HUB_CACHE") or constants.HF_HUB_CACHE
    try:
        cache = scan_cache_dir(folder)
    except (CacheNotFound, ValueError, OSError):  # there is none, or it is a file
        return []
    found = [
        (
            revision.last_modified,
            CachedRepo(
                repo.repo_id,
                revision.commit_hash,
                revision.snapshot_path,
                {
                    file.file_path.relative_to(revision.snapshot_path).as_posix(): file.size_on_disk
                    for file in revision.files
                },
            ),
        )
        for repo in cache.repos
        if repo.repo_type == "model"
        for revision in repo.revisions
    ]
    return [each for _, each in sorted(found, key=lambda pair: pair[0], reverse=True)]
