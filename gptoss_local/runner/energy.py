"""Shares the energy of GPUs among answers, by counters read where one begins or ends.

Tokens generated in between decide the shares; without any they are equal. Thread: one event loop.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from gptoss_local.api.models import ModelEnergy
from gptoss_local.harmony import Done, Started
from gptoss_local.machine.hardware import read_usable_gpus
from gptoss_local.machine.nvidia import Meters
from gptoss_local.runner.elsewhere import RemoteModel
from gptoss_local.runner.loading import LoadedModel

T = TypeVar("T")

_SHORTEST_S = 0.2  # GPUs bring their counters up to date every 20 to 100 ms
_PATIENCE_S = 0.5  # a last frame waits no longer for a driver


def _gpus_of(model: LoadedModel | RemoteModel) -> Sequence[str]:
    return (model.plan.devices or ()) if isinstance(model, LoadedModel) else ()


class AnswerEnergy:
    """An answer's part of the energy, in joules by GPU; `n_new`: tokens since the last reading."""

    def __init__(self, energy: "Energy", model: str) -> None:
        self.model = model
        self.devices: frozenset[str] = frozenset()
        self.joules: dict[str, float] = defaultdict(float)
        self.n_new = 0
        self._energy = energy
        self._begun_s = 0.0
        self._beginning: asyncio.Task[None] | None = None

    def add(self, n_tokens: int) -> None:
        self.n_new += n_tokens

    async def note(self, event: Started | Done, model: LoadedModel | RemoteModel) -> Started | Done:
        """Read the counters at the beginning, without waiting, and at the end of an answer."""
        if isinstance(event, Started):
            if names := _gpus_of(model):
                self._begun_s = time.monotonic()
                self._beginning = self._energy.spawn(self._energy.begin(self, names))
            return event
        ending = self.end()
        if ending is None or time.monotonic() - self._begun_s < _SHORTEST_S:
            return event
        await asyncio.shield(ending)
        joules = {device: round(joules, 3) for device, joules in self.joules.items()}
        return msgspec.structs.replace(event, joules=joules)

    def end(self) -> asyncio.Task[None] | None:
        """Stop once the counters are read; None if it never began."""
        beginning, self._beginning = self._beginning, None
        return self._energy.spawn(self._energy.end(self, beginning)) if beginning else None


class Energy:
    """The energy of all answers since the server's start: joules by model and GPU."""

    def __init__(self, open_meters: Callable[[], Meters] | None = None) -> None:
        self.answers: dict[tuple[str, str], float] = defaultdict(float)
        self._n_tokens: Counter[str] = Counter()  # of `answers`, by model
        self._open_meters = open_meters or (lambda: Meters(read_usable_gpus()))
        self._meters: Meters | None = None
        self._thread = ThreadPoolExecutor(1, "energy")
        self._reading: asyncio.Future[dict[str, float]] | None = None
        self._last: dict[str, float] = {}
        self._active: set[AnswerEnergy] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @contextmanager
    def answering(self, model: str) -> Iterator[AnswerEnergy]:
        part = AnswerEnergy(self, model)
        try:
            yield part
        finally:
            part.end()

    async def begin(self, part: AnswerEnergy, names: Sequence[str]) -> None:
        meters = await self._in_thread(self._opened)
        await self._settle()
        part.devices, part.n_new = meters.of(names), 0
        self._active.add(part)

    async def end(self, part: AnswerEnergy, beginning: asyncio.Task[None]) -> None:
        await beginning
        await self._settle()
        self._active.discard(part)

    async def of(self, model: LoadedModel) -> ModelEnergy | None:
        found = ModelEnergy()
        if not (names := _gpus_of(model)):
            return None
        reading = self._in_thread(lambda: self._opened().watts(names))
        await asyncio.wait((reading,), timeout=_PATIENCE_S)
        if reading.done() and (watts := reading.result()):
            found.watts = round(sum(watts.values()), 1)
        joules = [j for (name, _), j in self.answers.items() if name == model.entry.name]
        if joules and (n_tokens := self._n_tokens[model.entry.name]):
            found.joules_per_token = round(sum(joules) / n_tokens, 4)
        return found if found != ModelEnergy() else None

    async def rest(self) -> None:
        if self._meters is not None:
            await self._in_thread(self._close_meters)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _settle(self) -> None:
        """Read the counters and share the energy; a second caller waits for the same reading."""
        if self._reading is None:
            self._reading = self._in_thread(self._joules)
            self._reading.add_done_callback(self._share_out)
        await asyncio.wait((self._reading,), timeout=_PATIENCE_S)

    def _share_out(self, reading: "asyncio.Future[dict[str, float]]") -> None:
        self._reading = None
        if reading.cancelled():
            return
        for device, joules in reading.result().items():
            # A counter begins again when the driver is loaded again.
            spent = max(0.0, joules - self._last.get(device, joules))
            self._last[device] = joules
            parts = [part for part in self._active if device in part.devices]
            n_new = sum(part.n_new for part in parts)
            for part in parts:
                own = spent * (part.n_new / n_new if n_new else 1 / len(parts))
                part.joules[device] += own
                self.answers[part.model, device] += own
        for part in self._active:
            self._n_tokens[part.model] += part.n_new
            part.n_new = 0

    def _in_thread(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _opened(self) -> Meters:
        """Open the driver; called in the thread."""
        if self._meters is None:
            self._meters = self._open_meters()
        return self._meters

    def _joules(self) -> dict[str, float]:
        return self._meters.joules() if self._meters else {}

    def _close_meters(self) -> None:
        if self._meters is not None:
            self._meters.close()
            self._meters = None
