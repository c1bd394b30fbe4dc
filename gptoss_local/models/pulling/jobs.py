"""Runs pulls for clients, one per model, as long as any client watches. Thread: one event loop."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator

from gptoss_local.api.models import JobStatus
from gptoss_local.base.errors import DownloadError, ModelNotFoundError, UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.models.catalog import canonical_name, hub_place, known_model, pull_advice
from gptoss_local.models.pulling.process import Step, command, read_line
from gptoss_local.models.store import file_for, find_model

_REPORT_EVERY_S = 0.2


class Pulls:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._jobs: dict[str, _Job] = {}

    async def pull(self, name: str, *, gguf: bool = False) -> AsyncGenerator[JobStatus, None]:
        """Make sure that a model of catalogue or hub is on this machine; yield its progress."""
        if not name.strip():
            raise UsageError("invalid model name")
        yield JobStatus("pulling manifest")
        wanted = canonical_name(name)
        if known_model(wanted) is None and hub_place(name) is None:
            raise ModelNotFoundError(
                "pull model manifest: file does not exist", hint=pull_advice(wanted)
            )
        if not _is_here(wanted, self._settings):
            job = await self._job(wanted, name, gguf=gguf)
            async for status in job.watch():
                yield status
        for step in ("verifying sha256 digest", "writing manifest", "success"):
            yield JobStatus(step)  # done by now: every file was checked while it was written

    async def close(self) -> None:
        for job in self._jobs.values():
            job.stop()
        await asyncio.gather(*(job.work for job in self._jobs.values()), return_exceptions=True)

    async def _job(self, wanted: str, name: str, *, gguf: bool) -> "_Job":
        job = self._jobs.get(wanted)
        if job is not None and job.is_stopped and not job.work.done():
            await asyncio.wait((job.work,))
        job = self._jobs.get(wanted)
        if job is None or job.work.done():
            file_for(wanted, self._settings)  # raises if it cannot be pulled
            job = _Job(name, self._settings, gguf=gguf)  # the hub may tell upper and lower case
            self._jobs[wanted] = job
        return job


class _Job:
    def __init__(self, name: str, settings: Settings, *, gguf: bool) -> None:
        self._digest = f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"
        self._step: Step | None = None
        self.is_stopped = False
        self._n_watching = 0
        self.work = asyncio.create_task(self._run(name, settings, gguf))

    def stop(self) -> None:
        self.is_stopped = True
        self.work.cancel()

    async def watch(self) -> AsyncGenerator[JobStatus, None]:
        """Yield changes until the work is done; the last watcher who leaves earlier ends it."""
        seen: Step | None = None
        self._n_watching += 1
        try:
            while not self.work.done():
                await asyncio.wait((self.work,), timeout=_REPORT_EVERY_S)
                if (step := self._step) is not None and step != seen:
                    seen = step
                    yield self._status(step)
            self.work.result()
        finally:
            self._n_watching -= 1
            if not self._n_watching:
                self.stop()

    def _status(self, step: Step) -> JobStatus:
        """Report all of the pull as one layer: programs add up everything with a digest."""
        return JobStatus(f"pulling {self._digest[7:19]}", self._digest, step.total, step.done)

    async def _run(self, name: str, settings: Settings, gguf: bool) -> None:
        line, environment = command(name, settings, gguf=gguf)
        process = await asyncio.create_subprocess_exec(
            *line, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
        )
        if process.stdout is None:
            raise RuntimeError("the process has no stdout pipe")
        try:
            async for text in process.stdout:
                if isinstance(found := read_line(text), Step):  # notes are for the terminal
                    self._step = found
            if code := await process.wait():
                raise DownloadError(
                    f"the pull stopped unexpectedly (exit code {code})",
                    hint="The next one continues it. The server's log may say more.",
                )
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def _is_here(name: str, settings: Settings) -> bool:
    try:
        find_model(name, settings)
    except ModelNotFoundError:
        return False
    return True
