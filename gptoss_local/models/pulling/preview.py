"""Predicts a pull: its source, its size, whether it fits. Writes nothing."""

from pathlib import Path
from typing import Literal

import msgspec

from convert import finished_shards
from gptoss_local.base.settings import Settings
from gptoss_local.machine.hardware import free_bytes
from gptoss_local.models.catalog import CatalogModel, Checkpoint, PublishedGGUF
from gptoss_local.models.hub import DownloadFolder, HubClient, HubFile, Listing, is_offline
from gptoss_local.models.pulling.pull import download_folder, published_of, room_beside
from gptoss_local.models.store import file_for
from gptoss_local.models.store.external import cached_checkpoint


class PullPreview(msgspec.Struct, frozen=True, kw_only=True):
    """One pull, before it begins.

    Attributes:
        source: A checkpoint of the hub, a published GGUF, or a checkpoint in Hugging Face's cache.
        commit: Of `repo`; empty where the hub was not asked.
        files: Their sizes by name; empty where the hub was not asked.
        held_bytes: Left by an interrupted pull.
    """

    model: str
    source: Literal["checkpoint", "gguf", "cache"]
    repo: str
    commit: str
    files: dict[str, int]
    download_bytes: int
    held_bytes: int
    needed_bytes: int
    free_bytes: int
    target: Path


def preview_pull(model: CatalogModel, settings: Settings, *, gguf: bool = False) -> PullPreview:
    """Ask the hub, or with HF_HUB_OFFLINE the catalogue."""
    published = published_of(model, gguf=gguf)
    chosen = published or model.checkpoint
    assert chosen is not None
    target = file_for(model.name, settings)
    repo, _, revision = chosen.repo.partition("@")
    cached = None if published else cached_checkpoint(chosen.repo)
    listing = None if cached or is_offline() else HubClient().list_files(repo, revision or "main")
    files = _files(chosen, listing) if listing else ()
    sizes = {file.name: file.size_bytes for file in files}
    held_bytes = _held_bytes(files, target, gguf=published is not None)
    download_bytes = 0 if cached else sum(sizes.values()) or chosen.size_bytes
    written_bytes = chosen.size_bytes if cached else download_bytes - held_bytes
    room_bytes = 0
    if listing and published is None:
        shards = [file.size_bytes for file in listing.expected_shards(original=False)]
        room_bytes = room_beside(shards, 1, delete_source=True)
    return PullPreview(
        model=model.name,
        source="cache" if cached else "gguf" if published else "checkpoint",
        repo=chosen.repo,
        commit=listing.commit if listing else "",
        files=sizes,
        download_bytes=download_bytes,
        held_bytes=held_bytes,
        needed_bytes=written_bytes + room_bytes,
        free_bytes=free_bytes(settings.models_dir),
        target=target,
    )


def _files(chosen: Checkpoint | PublishedGGUF, listing: Listing) -> tuple[HubFile, ...]:
    if isinstance(chosen, PublishedGGUF):
        return listing.named(chosen.files)
    small = listing.small_files(original=False)
    return (*small, *listing.expected_shards(original=False))


def _held_bytes(files: tuple[HubFile, ...], target: Path, *, gguf: bool) -> int:
    folder = download_folder(target, gguf=gguf)
    if not gguf:
        folder = next((each for each in folder.glob("*") if each.is_dir()), folder)
    if not folder.is_dir():
        return 0
    kept = DownloadFolder(folder)
    used = set() if gguf else finished_shards(folder, target)
    return sum(f.size_bytes if f.name in used else kept.held_bytes(f) for f in files)
