"""Share the energy that GPUs use among the answers under way.

While answers run, a task reads NVML's counters ten times a second, so no frame waits for a driver.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from gptoss_local.api.models import ModelEnergy
from gptoss_local.machine.hardware import read_cuda_gpus
from gptoss_local.machine.nvidia import Meters
from gptoss_local.runner.elsewhere import RemoteModel
from gptoss_local.runner.loading import LoadedModel

T = TypeVar("T")

_EVERY_S = 0.1  # GPUs bring their counters up to date every 20 to 100 ms
_PATIENCE_S = 0.5  # `ps` waits no longer for a driver


def _gpus_of(model: LoadedModel | RemoteModel) -> Sequence[str]:
    return (model.plan.devices or ()) if isinstance(model, LoadedModel) else ()


@dataclass(eq=False)
class AnswerEnergy:
    """An answer's part of the energy, by GPU; several at the same time have equal parts."""

    model: str
    gpus: Sequence[str] = ()
    n_tokens: int = 0
    spent: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add_tokens(self, n: int) -> None:
        self.n_tokens += n

    @property
    def joules(self) -> dict[str, float]:
        return {device: round(joules, 3) for device, joules in self.spent.items()}


class Energy:
    """The energy of all answers since the server's start. Thread: one event loop."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], float] = defaultdict(float)  # by model and GPU
        self._n_tokens: Counter[str] = Counter()  # of `answers`, by model
        self._meters: Meters | None = None
        self._thread = ThreadPoolExecutor(1, "energy")
        self._active: set[AnswerEnergy] = set()
        self._reading: asyncio.Task[None] | None = None

    @contextmanager
    def answering(self, model: str) -> Iterator[AnswerEnergy]:
        part = AnswerEnergy(model)
        try:
            yield part
        finally:
            self.end(part)

    def begin(self, part: AnswerEnergy, model: LoadedModel | RemoteModel) -> None:
        part.gpus = _gpus_of(model)
        if part.gpus:
            self._active.add(part)
            if self._reading is None or self._reading.done():
                self._reading = asyncio.get_running_loop().create_task(self._read())

    def end(self, part: AnswerEnergy) -> None:
        if part in self._active:
            self._active.remove(part)
            self._n_tokens[part.model] += part.n_tokens

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
        """Close the driver, as no model is in memory."""
        if self._reading is not None:
            self._reading.cancel()
        if self._meters is not None:
            await self._in_thread(self._meters.close)
            self._meters = None

    async def _read(self) -> None:
        last: dict[str, float] = {}
        while self._active:
            for device, joules in (await self._in_thread(lambda: self._opened().joules())).items():
                # a counter begins again when the driver is loaded again
                spent = max(0.0, joules - last.get(device, joules))
                last[device] = joules
                if not spent:  # an answer between two readings has no joules, rather than 0
                    continue
                parts = [part for part in self._active if device in self._opened().of(part.gpus)]
                for part in parts:
                    part.spent[device] += spent / len(parts)
                    self.answers[part.model, device] += spent / len(parts)
            await asyncio.sleep(_EVERY_S)

    def _in_thread(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _opened(self) -> Meters:
        if self._meters is None:
            self._meters = Meters(read_cuda_gpus())
        return self._meters
