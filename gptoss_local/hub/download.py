"""Brings a checkpoint from the hub into a folder, several files at a time."""

import contextlib
import os
import threading
import time
from collections.abc import Container, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from itertools import islice
from pathlib import Path

from huggingface_hub import is_offline_mode

from gptoss_local.errors import DownloadError
from gptoss_local.hub.client import HubClient
from gptoss_local.hub.folder import DownloadFolder, disk_errors
from gptoss_local.hub.listing import INDEX_NAME, HubFile, Listing
from gptoss_local.types import Progress

_N_ATTEMPTS = 2
"""How often a file may arrive damaged."""
_REPORT_EVERY_S = 0.1


def _no_progress(what: str, done: int, total: int) -> None:
    pass


@contextlib.contextmanager
def open_checkpoint(
    source: str,
    folder: Path,
    *,
    original: bool = False,
    endpoint: str | None = None,
    token: str | bool | None = None,
) -> Iterator["HubCheckpoint"]:
    """List a repository and lock `folder` for its files; leaving ends all downloads.

    Under HF_HUB_OFFLINE the list is that of the last time, and the network is never touched.

    Args:
        source: `OWNER/NAME` or `OWNER/NAME@REVISION`.
        folder: A folder for this checkpoint alone.
        original: Take the `original/` layout instead of the one at the root.
        endpoint: As for `HubClient`.
        token: As for `HubClient`.

    Raises:
        ModelNotFoundError: There is no such repository or revision.
        DownloadError: The hub cannot be reached, it holds no checkpoint under this name, or
            another process downloads into `folder`.
        UsageError: `source` is not spelled like a repository.
    """
    repo, _, revision = source.partition("@")
    client = HubClient(endpoint, token)
    kept = DownloadFolder(folder)
    with kept.locked():
        if is_offline():
            listing = kept.listing
            if listing is None or (listing.repo, listing.revision) != (repo, revision or "main"):
                raise DownloadError(
                    f"{folder} does not hold {source}, and HF_HUB_OFFLINE forbids to fetch it.",
                    hint="Unset HF_HUB_OFFLINE, or name the folder of an earlier download.",
                )
        else:
            listing = client.list_files(repo, revision or "main")
        checkpoint = HubCheckpoint(client, kept, listing, original=original)
        kept.begin(listing)
        try:
            yield checkpoint
        finally:
            checkpoint.stop()


class HubCheckpoint:
    """A checkpoint on its way into a folder; `open_checkpoint` makes it.

    Attributes:
        folder: Where config, index and shards are.
        tokenizer_folder: Where its tokenizer is: another one in the `original/` layout.
        listing: What the repository holds.

    Thread: one thread at a time calls the methods.
    """

    def __init__(
        self, client: HubClient, kept: DownloadFolder, listing: Listing, *, original: bool
    ) -> None:
        self.folder = kept.root / "original" if original else kept.root
        self.tokenizer_folder = kept.root
        self.listing = listing
        self._client = client
        self._kept = kept
        self._original = original
        self._small = listing.small_files(original=original)
        self._stopped = threading.Event()

    def fetch_small_files(self, *, progress: Progress = _no_progress) -> None:
        """Fetch config, tokenizer and index: what a conversion is planned from.

        Raises:
            DownloadError: See `iter_shards`.
        """
        done = self._tally("fetching config and tokenizer", self._small, (), progress)
        for _ in self._fetch(self._small, len(self._small), done):
            pass

    def iter_shards(
        self,
        *,
        skip: Container[str] = (),
        n_parallel: int = 4,
        extra_bytes: int = 0,
        progress: Progress = _no_progress,
    ) -> Generator[Path, None, None]:
        """Yield each shard once it is complete and right; `fetch_small_files` comes first.

        The next download begins only when the caller comes back for the next shard: one who
        deletes what it has used never has more than a few unused ones on its disk.

        Args:
            skip: File names of shards that are used already; they are not fetched or yielded.
            n_parallel: Downloads at the same time.
            extra_bytes: What the caller needs of the disk beside the downloads; below zero if it
                will free more than it needs.
            progress: Gets the bytes of all files, `skip` and small ones included.

        Raises:
            DownloadError: The hub or the network fails, the disk is full or would become so, a
                file arrives damaged twice, or one that is skipped has changed on the hub.
        """
        index = [self._kept.path(f) for f in self._small if f.name.endswith(INDEX_NAME)]
        content = index[0].read_bytes() if index else None
        shards = self.listing.shards(content, original=self._original)
        skipped = [file for file in shards if self._kept.path(file).name in skip]
        wanted = [file for file in shards if file not in skipped]
        self._kept.check_unchanged(skipped)
        n_missing_bytes = sum(file.size_bytes - self._kept.held_bytes(file) for file in wanted)
        if n_missing_bytes:
            self._kept.check_space(n_missing_bytes + extra_bytes)
        done = self._tally("downloading", (*self._small, *wanted), skipped, progress)
        yield from self._fetch(wanted, n_parallel, done)

    def stop(self) -> None:
        """End what is on the way; what has arrived is kept. May be called from any thread."""
        self._stopped.set()

    def _fetch(self, files: Sequence[HubFile], n_parallel: int, done: "_Tally") -> Iterator[Path]:
        """Yield the path of each file once it is there; whatever ends this ends all of them."""
        if is_offline():
            self._check_all_there(files)
        self._stopped = threading.Event()
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

    def _ensure(self, file: HubFile, done: "_Tally") -> Path:
        """Make one file be there and right."""
        path = self._kept.path(file)
        with disk_errors(path):
            n_held = self._kept.held_bytes(file)
            if self._kept.is_right(file):
                return path
            path.unlink(missing_ok=True)  # damaged, or another version
            done.add(self._kept.held_bytes(file) - n_held)
            for _ in range(_N_ATTEMPTS):
                partial = self._kept.partial(file)
                self._client.download(self.listing, file, partial, done.add, self._stopped)
                if self._kept.accept(file):
                    return path
                done.add(-file.size_bytes)
        raise DownloadError(
            f"{file.name} of {self.listing.repo} arrived damaged twice: its checksum is not the "
            "one that the hub states.",
            hint="Check the disk, and the proxy or the mirror in HF_ENDPOINT; then run it again.",
        )

    def _tally(
        self, what: str, files: Sequence[HubFile], gone: Sequence[HubFile], progress: Progress
    ) -> "_Tally":
        gone_bytes = sum(file.size_bytes for file in gone)
        held_bytes = sum(self._kept.held_bytes(file) for file in files)
        total_bytes = sum(file.size_bytes for file in files) + gone_bytes
        return _Tally(what, held_bytes + gone_bytes, total_bytes, progress)

    def _check_all_there(self, files: Sequence[HubFile]) -> None:
        missing = [file.name for file in files if not self._kept.is_right(file)]
        if missing:
            raise DownloadError(
                f"{self.folder} lacks {', '.join(missing)}, and HF_HUB_OFFLINE forbids to fetch.",
                hint="Unset HF_HUB_OFFLINE and run the same command again.",
            )


class _Tally:
    """Counts bytes over many files and threads; what it reports never falls."""

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
    """Say whether the network is forbidden, now or when huggingface_hub was imported."""
    wanted = os.environ.get("HF_HUB_OFFLINE", "").upper()
    return is_offline_mode() or wanted in ("1", "ON", "YES", "TRUE")
