"""Brings files of a repository into a folder, several at a time, checked while they arrive."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from itertools import islice
from pathlib import Path

from huggingface_hub import is_offline_mode

from gptoss_local.errors import DownloadError
from gptoss_local.models.hub.client import HubClient
from gptoss_local.models.hub.folder import DownloadFolder, disk_errors
from gptoss_local.models.hub.listing import HubFile, Listing
from gptoss_local.models.hub.partial import PartialFile
from gptoss_local.types import Progress

_N_ATTEMPTS = 2
"""The times that a file is fetched before it counts as damaged on the hub."""
_REPORT_EVERY_S = 0.1


class Transfer:
    """Files of a repository on their way into a folder that is locked for it.

    Thread: one thread at a time calls the methods.
    """

    def __init__(self, client: HubClient, kept: DownloadFolder, listing: Listing) -> None:
        self.listing = listing
        self._client = client
        self.kept = kept
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End all downloads, from any thread; the bytes so far are kept."""
        self._stopped.set()

    def fetch(
        self, files: Sequence[HubFile], n_parallel: int, done: "ByteCounter"
    ) -> Iterator[Path]:
        """Yield the path of each file once it is there; an error or `close` ends all of them."""
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

    def tally(
        self, what: str, files: Sequence[HubFile], gone: Sequence[HubFile], progress: Progress
    ) -> "ByteCounter":
        gone_bytes = sum(file.size_bytes for file in gone)
        held_bytes = sum(self.kept.held_bytes(file) for file in files)
        total_bytes = sum(file.size_bytes for file in files) + gone_bytes
        return ByteCounter(what, held_bytes + gone_bytes, total_bytes, progress)

    def _check_all_there(self, files: Sequence[HubFile]) -> None:
        missing = [file.name for file in files if not self.kept.is_right(file)]
        if missing:
            raise DownloadError(
                f"{self.kept.root} lacks {', '.join(missing)}, "
                "and HF_HUB_OFFLINE forbids fetching.",
                hint="Unset HF_HUB_OFFLINE and run the same command again.",
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
