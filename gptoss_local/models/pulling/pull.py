"""Joins hub, converter and store: a model of the catalogue comes to this machine."""

import contextlib
import shutil
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Literal, Unpack

import msgspec

from convert import ConvertOptions, DenseType, convert_checkpoint, finished_shards
from convert.adapter import check_no_adapter
from gptoss_local.base.errors import DownloadError, ModelNotFoundError, UsageError
from gptoss_local.base.formats.gguf_file import split_files
from gptoss_local.base.settings import Settings
from gptoss_local.base.types import Progress
from gptoss_local.machine.hardware import free_bytes
from gptoss_local.models.catalog import (
    CatalogModel,
    Checkpoint,
    PublishedGGUF,
    canonical_name,
    hub_place,
    known_model,
    pull_advice,
)
from gptoss_local.models.hub import (
    DownloadFolder,
    HubCheckpoint,
    HubClient,
    HubFile,
    Listing,
    download_files,
    is_offline,
    open_checkpoint,
)
from gptoss_local.models.names import is_model_file
from gptoss_local.models.store import add_blob, add_model, file_for, find_model
from gptoss_local.models.store.external import cached_checkpoint


def pulled_model(name: str) -> CatalogModel:
    """Return a model of the catalogue, or of the hub: `OWNER/NAME[@REVISION]`, maybe with `:FILE`.

    `FILE` is a GGUF there, or a unique part of its name, such as `Q4_K_M`.
    """
    wanted = canonical_name(name)
    if (known := known_model(wanted)) is not None:
        return known
    if (place := hub_place(name)) is None:
        raise ModelNotFoundError(f"the catalogue does not know {name}", hint=pull_advice(wanted))
    repo, file = place
    if is_offline():
        raise DownloadError(
            f"{name} is not on this machine, and HF_HUB_OFFLINE forbids asking the hub.",
            hint="Unset HF_HUB_OFFLINE.",
        )
    owner_and_name, _, revision = repo.partition("@")
    listing = HubClient().list_files(owner_and_name, revision or "main")
    if listing.architecture not in ("", "gpt-oss"):
        raise DownloadError(f"{repo} is a model of {listing.architecture}, not of gpt-oss.")
    shards = listing.expected_shards(original=False)
    if not file and shards and "config.json" in listing.files:
        checkpoint = Checkpoint(repo, sum(shard.size_bytes for shard in shards))
        return CatalogModel(name=wanted, checkpoint=checkpoint)
    names = tuple(part.as_posix() for part in split_files(Path(_chosen(listing, file))))
    size_bytes = sum(part.size_bytes for part in listing.named(names))
    return CatalogModel(name=wanted, gguf=PublishedGGUF(repo, names, size_bytes))


def _chosen(listing: Listing, file: str) -> str:
    found = sorted(each for each in listing.files if is_model_file(each))
    if not found:
        _ = listing.small_files(original=False)  # says what the repository is
    wanted = file.lower()
    matching = [each for each in found if wanted in each.lower()]
    exact = [each for each in matching if each.lower().rpartition("/")[2] == f"{wanted}.gguf"]
    if len(exact or matching) == 1:
        return (exact or matching)[0]
    names = ", ".join(matching or found) or "none"
    raise UsageError(
        f"{listing.repo} has {len(matching)} GGUFs {f'with {file}' if file else 'to choose from'}",
        hint=f"Name one, as in gptoss pull {listing.repo}:Q4_K_M. There: {names}",
    )


_PARALLEL = (4, 2, 1)  # simultaneous downloads, as many as the disk has room for

_COUNTED = _DOWNLOAD, _CONVERT = ("downloading", "convert")  # steps of hub and converter


def pull_model(
    model: CatalogModel,
    settings: Settings,
    *,
    gguf: bool = False,
    dense: DenseType = "q8_0",
    progress: Progress,
    on_note: Callable[[str], None] | None = None,
) -> None:
    """Bring a model here; the same call resumes. `progress` gets one step, `pull`."""
    published = published_of(model, gguf=gguf)
    target = file_for(model.name, settings)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DownloadError(
            f"{target.parent} cannot be made: {error.strerror or error}.",
            hint="GPTOSS_HOME names another folder.",
        ) from error
    if published is not None:
        _pull_published(model.name, published, settings, _Total(progress))
        return
    assert model.checkpoint is not None
    repo, size_bytes = model.checkpoint.repo, model.checkpoint.size_bytes
    if folder := cached_checkpoint(repo):
        total = _Total(progress)
        convert_checkpoint(folder, target, dense=dense, progress=total, on_note=on_note)
    else:
        total = _Total(progress, n_expected=size_bytes)
        pull_checkpoint(repo, target, progress=total, on_note=on_note, dense=dense)


def download_folder(target: Path, *, gguf: bool) -> Path:
    """Return the folder of a pull's files until it is done; each source has its own."""
    name = f"{target.stem}.published.gguf" if gguf else target.name
    return target.with_name(f"{name}.download")


def published_of(model: CatalogModel, *, gguf: bool) -> PublishedGGUF | None:
    """Return the GGUF to take; None stands for the checkpoint."""
    if model.gguf is not None and (gguf or model.checkpoint is None):
        return model.gguf
    if model.checkpoint is None or gguf:
        what = "no published GGUF" if gguf else "no place to pull it from"
        raise UsageError(
            f"models.toml says {what} for {model.name}",
            hint=f"Pull its checkpoint: gptoss pull {model.name}" if model.checkpoint else "",
        )
    return None


def _pull_published(name: str, gguf: PublishedGGUF, settings: Settings, progress: Progress) -> None:
    """Fetch a GGUF. The model exists from `add_model` on; then its files become blobs."""
    folder = download_folder(file_for(name, settings), gguf=True)
    with download_files(gguf.repo, folder, gguf.files, progress=progress) as files:
        add_model(name, files[0][0], settings)
        for (path, file), part in zip(files, find_model(name, settings).files, strict=True):
            if file.checksum.startswith("sha256:") and path.samefile(part):
                add_blob(path, file.checksum, settings)
    shutil.rmtree(folder)


def pull_checkpoint(
    source: str,
    target: Path,
    *,
    folder: Path | None = None,
    original: bool = False,
    n_workers: int | None = None,
    delete_source: bool = False,
    progress: Progress,
    on_note: Callable[[str], None] | None = None,
    **options: Unpack[ConvertOptions],
) -> list[Path]:
    """Download and convert each shard as it arrives; return the files. The same call resumes.

    Shards go into `folder`, or next to `target`, where they are deleted as they are used.
    """
    is_ours = folder is None
    beside = download_folder(target, gguf=False)
    # The converter takes the model's name from the folder's.
    folder = folder or beside / source.partition("@")[0].rpartition("/")[2]
    delete_source = delete_source or is_ours
    with open_checkpoint(source, folder, original=original) as checkpoint:
        if options.get("adapter") is None:
            check_no_adapter(checkpoint.listing.files, source)
        _check_space(checkpoint, folder, target, delete_source)
        checkpoint.fetch_small_files(progress=progress)
        if original and options.get("tokenizer") is None:
            options["tokenizer"] = folder
        arrivals = _shards(checkpoint, folder, target, delete_source, progress)
        with contextlib.closing(arrivals):
            written = convert_checkpoint(
                folder, target, **options, n_workers=n_workers, delete_source=delete_source,
                progress=progress, arrivals=arrivals, on_note=on_note,
            )  # fmt: skip
    if is_ours:
        shutil.rmtree(beside)
    return written


def room_beside(sizes: list[int], n_parallel: int, *, delete_source: bool) -> int:
    """Return the bytes needed besides the GGUF, for shards on their way or in use."""
    in_use_bytes = (n_parallel + 1) * max(sizes, default=0)
    return min(sum(sizes), in_use_bytes) if delete_source else sum(sizes)


def _check_space(
    checkpoint: HubCheckpoint, folder: Path, target: Path, delete_source: bool
) -> None:
    """Check before the first byte, not only in `iter_shards` after the small files."""
    if not finished_shards(folder, target) and (n_bytes := checkpoint.missing_bytes()):
        sizes = checkpoint.shard_sizes()
        room = room_beside(sizes, _PARALLEL[-1], delete_source=delete_source)
        checkpoint.kept.check_space(n_bytes + room)


def _shards(
    checkpoint: HubCheckpoint, folder: Path, target: Path, delete_source: bool, progress: Progress
) -> Generator[Path, None, None]:
    skip = {Path(name).name for name in finished_shards(folder, target)}
    sizes = checkpoint.shard_sizes()
    left_bytes = checkpoint.kept.free_bytes - checkpoint.missing_bytes(skip)
    rooms = {n: room_beside(sizes, n, delete_source=delete_source) for n in _PARALLEL}
    n_parallel = next((n for n, room in rooms.items() if room <= left_bytes), _PARALLEL[-1])
    return checkpoint.iter_shards(
        skip=skip, n_parallel=n_parallel, extra_bytes=rooms[n_parallel], progress=progress
    )


class _Total:
    """Adds up the bytes of all steps, never falling; assumes `n_expected` at first."""

    def __init__(self, progress: Progress, n_expected: int | None = None) -> None:
        self._progress = progress
        self._n_expected = n_expected
        self._lock = threading.Lock()
        self._steps: dict[str, tuple[int, int]] = {}
        self._most = 0

    def __call__(self, what: str, done: int, total: int) -> None:
        with self._lock:
            if what not in _COUNTED:  # config and tokenizer, which are counted with the shards
                what, total = _DOWNLOAD, self._n_expected or total
            self._steps[what] = (done, total)
            steps = list(self._steps.values())
            if self._n_expected is not None and _CONVERT not in self._steps:
                steps.append((0, self._steps[_DOWNLOAD][1]))
            self._most = max(self._most, sum(n for n, _ in steps))
            self._progress("pull", self._most, sum(n for _, n in steps))


class PullPreview(msgspec.Struct, frozen=True, kw_only=True):
    """One pull, before it begins; `commit` and `files` are empty where the hub was not asked.

    `source` "cache" is Hugging Face's; `held_bytes` were left by an interrupted pull.
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
    published = published_of(model, gguf=gguf)
    chosen = published or model.checkpoint
    assert chosen is not None
    target = file_for(model.name, settings)
    repo, _, revision = chosen.repo.partition("@")
    cached = None if published else cached_checkpoint(chosen.repo)
    listing = None if cached or is_offline() else HubClient().list_files(repo, revision or "main")
    files: tuple[HubFile, ...] = ()
    room_bytes = 0
    if listing and isinstance(chosen, PublishedGGUF):
        files = listing.named(chosen.files)
    elif listing:
        shards = listing.expected_shards(original=False)
        files = (*listing.small_files(original=False), *shards)
        room_bytes = room_beside([shard.size_bytes for shard in shards], 1, delete_source=True)
    sizes = {file.name: file.size_bytes for file in files}
    held_bytes = _held_bytes(files, target, gguf=published is not None)
    download_bytes = 0 if cached else sum(sizes.values()) or chosen.size_bytes
    written_bytes = chosen.size_bytes if cached else download_bytes - held_bytes
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


def _held_bytes(files: tuple[HubFile, ...], target: Path, *, gguf: bool) -> int:
    folder = download_folder(target, gguf=gguf)
    if not gguf:
        folder = next((each for each in folder.glob("*") if each.is_dir()), folder)
    if not folder.is_dir():
        return 0
    kept = DownloadFolder(folder)
    used = set() if gguf else finished_shards(folder, target)
    return sum(f.size_bytes if f.name in used else kept.held_bytes(f) for f in files)
