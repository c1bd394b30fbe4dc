"""Downloads and conversions that clients asked for: one per model, whoever asks.

A pull goes on as long as somebody watches it. What has arrived stays, and the next one continues.
Thread: one event loop; the work itself runs in threads.
"""

import asyncio
import functools
import hashlib
import threading
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import msgspec

from gptoss_local.catalog import CatalogModel, canonical_name
from gptoss_local.errors import DownloadError, ModelNotFoundError, UsageError
from gptoss_local.pull import pull_checkpoint
from gptoss_local.settings import Settings
from gptoss_local.store import file_for, find_model, known_model
from gptoss_local.types import Progress

_REPORT_EVERY_S = 0.2


class Status(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of progress, as Ollama's api/types.go has it (ProgressResponse)."""

    status: str
    digest: str = ""
    total: int = 0
    completed: int = 0


class Pulls:
    """The pulls under way."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._jobs: dict[str, _Job] = {}

    async def pull(self, name: str) -> AsyncGenerator[Status, None]:
        """Make sure that a model of the catalogue is on this machine; yield what happens.

        Raises:
            UsageError: no name.
            ModelNotFoundError: the catalogue does not know it.
            GptOssError: see `gptoss_local.pull.pull_checkpoint`.
        """
        if not name.strip():
            raise UsageError("invalid model name")
        yield Status("pulling manifest")
        wanted = canonical_name(name)
        model = known_model(wanted)
        if model is None:
            raise ModelNotFoundError(
                "pull model manifest: file does not exist",
                hint="gptoss pulls the models of its catalogue, such as gpt-oss:20b. For any other "
                "checkpoint of the hub: gptoss convert OWNER/NAME.",
            )
        if not _is_here(wanted, self._settings):
            job = await self._job(model)
            async for status in job.watch():
                yield status
        for step in ("verifying sha256 digest", "writing manifest", "success"):
            yield Status(step)  # done by now: every file was checked while it was written

    async def close(self) -> None:
        """End what is under way, at the next piece."""
        for job in self._jobs.values():
            job.stop()
        await asyncio.gather(*(job.work for job in self._jobs.values()), return_exceptions=True)

    async def _job(self, model: CatalogModel) -> "_Job":
        """The pull of a model that runs already, or a new one."""
        job = self._jobs.get(model.name)
        if job is not None and job.is_stopping:
            await asyncio.wait((job.work,))
        job = self._jobs.get(model.name)
        if job is None or job.work.done():
            job = _Job(model.repo, file_for(model.name, self._settings))
            self._jobs[model.name] = job
        return job


class _Job:
    """One pull, in a thread."""

    def __init__(self, repo: str, target: Path) -> None:
        self._digest = f"sha256:{hashlib.sha256(repo.encode()).hexdigest()}"
        self._steps: dict[str, tuple[int, int]] = {}
        self._stop = threading.Event()
        self._n_watching = 0
        run = functools.partial(_pull, repo, target, self._report)
        self.work = asyncio.create_task(asyncio.to_thread(run))

    @property
    def is_stopping(self) -> bool:
        return self._stop.is_set() and not self.work.done()

    def stop(self) -> None:
        self._stop.set()

    async def watch(self) -> AsyncGenerator[Status, None]:
        """Yield what changes until the work is done; the last who leaves earlier ends it."""
        seen: dict[str, tuple[int, int]] = {}
        self._n_watching += 1
        try:
            while not self.work.done():
                await asyncio.wait((self.work,), timeout=_REPORT_EVERY_S)
                for status in self._news(seen):
                    yield status
            self.work.result()
        finally:
            self._n_watching -= 1
            if not self._n_watching:
                self.stop()

    def _news(self, seen: dict[str, tuple[int, int]]) -> Iterator[Status]:
        for what, (done, total) in list(self._steps.items()):
            if seen.get(what) == (done, total):
                continue
            seen[what] = (done, total)
            if what == "downloading":  # as one layer: programs add up what has a digest
                yield Status(f"pulling {self._digest[7:19]}", self._digest, total, done)
            else:
                yield Status(what, total=total, completed=done)

    def _report(self, what: str, done: int, total: int) -> None:
        """Progress, told from several threads. Raises DownloadError when nobody watches."""
        if self._stop.is_set():
            raise DownloadError("the pull was given up; the next one continues it")
        self._steps[what] = (done, total)


def _pull(repo: str, target: Path, report: Progress) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    pull_checkpoint(repo, target, progress=report)


def _is_here(name: str, settings: Settings) -> bool:
    try:
        find_model(name, settings)
    except ModelNotFoundError:
        return False
    return True
