"""A load under way: how far it is, for all that wait for it."""

import asyncio
import time
from collections.abc import AsyncGenerator

import msgspec

from gptoss_local.api.models import LoadStatus
from gptoss_local.base.errors import ModelLoadError

_REPORT_EVERY_S = 0.1


class LoadProgress:
    """The load of one model, shared by all requests that wait for it. Thread: one event loop."""

    task: asyncio.Task[None]

    def __init__(self, model: str) -> None:
        self.model = model
        self.status = LoadStatus(model, "waiting")
        self._base_bytes = self._part_bytes = 0
        self._start_s = self._read_s = 0.0
        self._earlier_s = 0.0  # of reading, before this part
        self._after = "starting"

    def begin(self, n_bytes: int, *, is_measured: bool = False) -> None:
        """Begin to read weights for a try, or to be measured and then read once more."""
        last, self._after = self.status, "measuring" if is_measured else "starting"
        self._base_bytes, self._part_bytes = last.completed, n_bytes
        self._start_s, self._earlier_s = time.monotonic(), self._read_s
        self.status = msgspec.structs.replace(
            last,
            status="loading",
            total=self._base_bytes + n_bytes * (1 + is_measured),
            n_tries=0 if is_measured else last.n_tries + 1,
        )

    def report(self, fraction: float) -> None:
        done_bytes = self._base_bytes + round(min(1.0, fraction) * self._part_bytes)
        done_bytes = max(done_bytes, self.status.completed)
        total_bytes = self.status.total
        self._read_s = self._earlier_s + time.monotonic() - self._start_s
        left_s = self._read_s * (total_bytes - done_bytes) / done_bytes if done_bytes else None
        is_read = done_bytes == self._base_bytes + self._part_bytes
        self.status = msgspec.structs.replace(
            self.status,
            status=self._after if is_read else "loading",
            completed=done_bytes,
            seconds_left=None if left_s is None else round(left_s, 1),
        )

    @property
    def is_over(self) -> bool:
        return self.task.done()

    async def wait(self) -> None:
        """Wait for the end, or its error; the load continues if the waiting task is cancelled."""
        try:
            await asyncio.shield(self.task)
        except asyncio.CancelledError:
            if not self.task.cancelled():  # it is we who are cancelled
                raise
            raise ModelLoadError(
                f"the load of {self.model} was stopped",
                hint="It was unloaded before it was ready; ask again.",
            ) from None

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait((self.task,))

    async def watch(self, work: asyncio.Future[None]) -> AsyncGenerator[LoadStatus, None]:
        """Yield changes until `work`, which waits for the load, is over; then the last one."""
        seen, is_over = None, False
        while not is_over:
            is_over = work.done()
            if self.status != seen:
                seen = self.status
                yield seen
            await asyncio.wait((work,), timeout=_REPORT_EVERY_S)
