"""Opens a repository of the hub for a folder: a checkpoint to convert, or ready files."""

import contextlib
import os
import threading
import time
from collections.abc import Container, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from itertools import islice
from pathlib import Path

from huggingface_hub import is_offline_mode

from convert.source import INDEX_NAME, Source
from gptoss_local.base.errors import DownloadError
from gptoss_local.base.types import Progress
from gptoss_local.models.hub.client import HubClient
from gptoss_local.models.hub.folder import DownloadFolder, PartialFile, disk_errors
from gptoss_local.models.hub.listing import HubFile, Listing

_N_ATTEMPTS = 2
_REPORT_EVERY_S = 0.1


class Transfer:
    """Downloads into a locked folder. Thread: one thread at a time, except for `stop`."""

    def __init__(self, client: HubClient, kept: DownloadFolder, listing: Listing) -> None:
        self.listing = listing
        self.kept = kept
        self._client = client
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def fetch(
        self,
        what: str,
        files: Sequence[HubFile],
        n_parallel: int,
        progress: Progress,
        *,
        used: Sequence[HubFile] = (),
    ) -> Iterator[Path]:
        """Yield each file's path once it is there; an error ends all. `used` files count."""
        if is_offline() and (missing := [f.name for f in files if not self.kept.is_right(f)]):
            raise DownloadError(
                f"{self.kept.root} lacks {', '.join(missing)}, "
                "and HF_HUB_OFFLINE forbids fetching.",
                hint="Unset HF_HUB_OFFLINE and run the same command again.",
            )
        self._stopped = threading.Event()
        used_bytes = sum(file.size_bytes for file in used)
        total_bytes = used_bytes + sum(file.size_bytes for file in files)
        n_bytes = total_bytes - self.kept.missing_bytes(files)
        done = ByteCounter(what, n_bytes, total_bytes, progress)
        done.report()
        with ThreadPoolExecutor(n_parallel) as pool:
            waiting = iter(files)
            running = {pool.submit(self._ensure, f, done) for f in islice(waiting, n_parallel)}
            try:
                while running:
                    finished, running = wait(running, return_when=FIRST_COMPLETED)
                    for future in finished:
                        yield future.result()
                        running |= {pool.submit(self._ensure, f, done) for f in islice(waiting, 1)}
            finally:
                self.stop()
        done.report()

    def _ensure(self, file: HubFile, done: "ByteCounter") -> Path:
        path = self.kept.path(file)
        with disk_errors(path):
            n_held = self.kept.held_bytes(file)
            if self.kept.is_right(file):
                return path
            path.unlink(missing_ok=True)  # damaged, or another version
            done.add(self.kept.held_bytes(file) - n_held)
            for _ in range(_N_ATTEMPTS):
                partial = PartialFile(self.kept.partial(file), file)
                with contextlib.closing(partial):
                    self._client.download(self.listing, file, partial, done.add, self._stopped)
                    if self.kept.accept(file, partial):
                        return path
                done.add(-file.size_bytes)
        raise DownloadError(
            f"{file.name} of {self.listing.repo} arrived damaged twice: its checksum is not the "
            "one that the hub states.",
            hint="Check the disk, and the proxy or the mirror in HF_ENDPOINT; then run it again.",
        )


class ByteCounter:
    """Counts bytes over many files and threads, and reports sums that never fall."""

    def __init__(self, what: str, n_bytes: int, total_bytes: int, progress: Progress) -> None:
        self._what = what
        self._n_bytes = n_bytes
        self._total_bytes = total_bytes
        self._progress = progress
        self._lock = threading.Lock()
        self._most_bytes = 0
        self._reported_s = 0.0

    def add(self, n_bytes: int) -> None:
        with self._lock:
            self._n_bytes += n_bytes
        if time.monotonic() - self._reported_s > _REPORT_EVERY_S:
            self.report()

    def report(self) -> None:
        with self._lock:
            self._reported_s = time.monotonic()
            self._most_bytes = max(self._most_bytes, self._n_bytes)
            self._progress(self._what, self._most_bytes, self._total_bytes)


def is_offline() -> bool:
    """Return whether the network is forbidden, now or when huggingface_hub was imported."""
    wanted = os.environ.get("HF_HUB_OFFLINE", "").upper()
    return is_offline_mode() or wanted in ("1", "ON", "YES", "TRUE")


@contextlib.contextmanager
def open_checkpoint(
    source: str,
    folder: Path,
    *,
    original: bool = False,
    endpoint: str | None = None,
    token: str | bool | None = None,
) -> Iterator["HubCheckpoint"]:
    """List `OWNER/NAME[@REVISION]`, and lock `folder` for its files; leaving ends all downloads."""
    client = HubClient(endpoint, token)
    with _opened(client, source, folder) as (kept, listing):
        checkpoint = HubCheckpoint(client, kept, listing, original=original)
        kept.begin(listing)
        try:
            yield checkpoint
        finally:
            checkpoint.stop()


@contextlib.contextmanager
def download_files(
    source: str,
    folder: Path,
    names: Sequence[str],
    *,
    also: Sequence[str] = (),
    progress: Progress = lambda *_: None,
) -> Iterator[list[tuple[Path, HubFile]]]:
    """Fetch `names`, and those of `also` that exist; yield their paths and entries in order."""
    client = HubClient()
    with _opened(client, source, folder) as (kept, listing):
        files = listing.named([*names, *(name for name in also if name in listing.files)])
        kept.begin(listing)
        if n_missing_bytes := kept.missing_bytes(files):
            kept.check_space(n_missing_bytes)
        for _ in Transfer(client, kept, listing).fetch("downloading", files, 2, progress):
            pass
        yield [(kept.path(file), file) for file in files]


@contextlib.contextmanager
def _opened(
    client: HubClient, source: str, folder: Path
) -> Iterator[tuple[DownloadFolder, Listing]]:
    repo, _, revision = source.partition("@")
    kept = DownloadFolder(folder)
    with kept.locked():
        if is_offline():
            listing = kept.listing
            if listing is None or (listing.repo, listing.revision) != (repo, revision or "main"):
                raise DownloadError(
                    f"{folder} does not hold {source}, and HF_HUB_OFFLINE forbids fetching it.",
                    hint="Unset HF_HUB_OFFLINE, or name the folder of an earlier download.",
                )
        else:
            listing = client.list_files(repo, revision or "main")
        yield kept, listing


class HubCheckpoint(Transfer):
    def __init__(
        self, client: HubClient, kept: DownloadFolder, listing: Listing, *, original: bool
    ) -> None:
        super().__init__(client, kept, listing)
        self.folder = kept.root / "original" if original else kept.root
        self._original = original
        self._small = listing.small_files(original=original)
        self._has_index = any(file.name.endswith(INDEX_NAME) for file in self._small)

    def fetch_small_files(self, *, progress: Progress = lambda *_: None) -> None:
        what = "fetching config and tokenizer"
        for _ in self.fetch(what, self._small, len(self._small), progress):
            pass

    def iter_shards(
        self,
        *,
        skip: Container[str] = (),
        n_parallel: int = 4,
        extra_bytes: int = 0,
        progress: Progress = lambda *_: None,
    ) -> Generator[Path, None, None]:
        """Yield each shard once it is right; the next begins when the caller comes back.

        `skip` are used already; the caller needs `extra_bytes` of disk, maybe fewer than 0.
        """
        shards = self._shards()
        skipped = [file for file in shards if self.kept.path(file).name in skip]
        wanted = [file for file in shards if file not in skipped]
        self.kept.check_unchanged(skipped)
        if n_missing_bytes := self.kept.missing_bytes(wanted):
            self.kept.check_space(n_missing_bytes + extra_bytes)
        used = (*self._small, *skipped)
        yield from self.fetch("downloading", wanted, n_parallel, progress, used=used)

    def missing_bytes(self, skip: Container[str] = ()) -> int:
        files = (*self._small, *self._known_shards())
        return self.kept.missing_bytes(f for f in files if self.kept.path(f).name not in skip)

    def shard_sizes(self) -> list[int]:
        """Return the bytes of every shard; a guess until `fetch_small_files` has run."""
        return [file.size_bytes for file in self._known_shards()]

    def _known_shards(self) -> tuple[HubFile, ...]:
        if all(self.kept.path(file).is_file() for file in self._small):
            return self._shards()
        return self.listing.expected_shards(original=self._original)

    def _shards(self) -> tuple[HubFile, ...]:
        indexed = Source(self.folder).index if self._has_index else ()
        return self.listing.shards(indexed, original=self._original)
