"""Shares the energy that devices use among the answers under way, and finds what idling costs.

Counters are read where an answer begins or ends, and on request, in a thread of their own: never
in between, unless a GPU reports its power alone. What was used between two readings is shared by
the tokens generated meanwhile; where there were none, as in a prompt, all get the same.
Thread: one event loop.
"""

import asyncio
import math
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import msgspec

from gptoss_local.chat import Done, Started
from gptoss_local.machine.energy import Meters
from gptoss_local.machine.hardware import read_usable_gpus
from gptoss_local.plan.result import Plan
from gptoss_local.runner.elsewhere import RemoteModel
from gptoss_local.runner.loading import LoadedModel

T = TypeVar("T")

_SHORTEST_S = 0.2  # GPUs bring their counters up to date every 20 to 100 ms
_PATIENCE_S = 0.5  # a last frame waits no longer for a driver
_SAMPLE_S = 0.5
_SETTLE_S = 10.0  # clocks and power go down for seconds after the last answer


class ModelEnergy(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The energy of a model in memory; what is not known is left out.

    Attributes:
        joules: Of its answers since the server started, by device.
        joules_per_token: Of these answers, all devices together.
        idle_watts: Power of its GPUs with the model loaded and nothing computed.
        idle_added_watts: That, less the power before the first model was loaded.
    """

    joules: dict[str, float] = {}
    joules_per_token: float | None = None
    idle_watts: float | None = None
    idle_added_watts: float | None = None


class AnswerEnergy:
    """An answer's part of the energy; Energy makes it.

    Attributes:
        model: Its name.
        devices: Those that compute it.
        joules: By device, as far as it is known.
        n_new: Tokens since the last reading.
    """

    def __init__(self, energy: "Energy", model: str) -> None:
        self.model = model
        self.devices: frozenset[str] = frozenset()
        self.joules: dict[str, float] = defaultdict(float)
        self.n_new = 0
        self._energy = energy
        self._begun_s = 0.0
        self._beginning: asyncio.Task[None] | None = None

    def add(self, n_tokens: int) -> None:
        """Take note of tokens that were generated."""
        self.n_new += n_tokens

    async def note(self, event: Started | Done, model: LoadedModel | RemoteModel) -> Started | Done:
        """Read the counters where the answer begins and ends; the last event has what it took.

        The beginning waits for nothing.
        """
        if isinstance(event, Started):
            if isinstance(model, LoadedModel):
                self._begun_s = time.monotonic()
                self._beginning = self._energy.spawn(self._energy.begin(self, model.plan))
            return event
        ending = self.end()
        if ending is None or time.monotonic() - self._begun_s < _SHORTEST_S:
            return event
        await asyncio.shield(ending)
        joules = {device: round(joules, 3) for device, joules in self.joules.items()}
        return msgspec.structs.replace(event, joules=joules)

    def end(self) -> asyncio.Task[None] | None:
        """Take no part any more, once the counters are read; None if it takes none."""
        beginning, self._beginning = self._beginning, None
        return self._energy.spawn(self._energy.end(self, beginning)) if beginning else None


class Energy:
    """All energy since the server's start.

    Args:
        open_meters: Opens those of this machine; not called before a model is loaded.

    Attributes:
        spent: Joules by device while a model was in memory, idle time included.
        answers: Joules of answers, by model and device.
        idle_watts: Power of each GPU with a model loaded and nothing computed, when last looked at.
        watts_before: The same before the first model was loaded.
    """

    def __init__(self, open_meters: Callable[[], Meters] | None = None) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self.answers: dict[tuple[str, str], float] = defaultdict(float)
        self.idle_watts: dict[str, float] = {}
        self.watts_before: dict[str, float] = {}
        self._n_tokens: Counter[str] = Counter()  # of `answers`, by model
        self._open_meters = open_meters or (lambda: Meters(read_usable_gpus()))
        self._meters: Meters | None = None
        self._thread = ThreadPoolExecutor(1, "energy")
        self._reading: asyncio.Future[dict[str, float]] | None = None
        self._last: dict[str, float] = {}
        self._active: set[AnswerEnergy] = set()
        self._n_loading = 0
        self._busy_s = -math.inf  # when something was last computed or loaded
        self._sample: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def devices(self) -> dict[str, str]:
        """Return what is counted, and how; nothing without a model in memory."""
        return self._meters.devices if self._meters else {}

    @property
    def missing(self) -> dict[str, str]:
        """Return why other devices are not counted."""
        return self._meters.missing if self._meters else {}

    @contextmanager
    def answering(self, model: str) -> Iterator[AnswerEnergy]:
        """Yield an answer's part, which ends with the block."""
        part = AnswerEnergy(self, model)
        try:
            yield part
        finally:
            part.end()

    @asynccontextmanager
    async def loading(self, *, is_first: bool) -> AsyncIterator[None]:
        """Open the meters, and do not count a load as idling.

        Args:
            is_first: No other model is in memory: the power now is what idling costs without one.
        """
        was_settled = self._is_settled
        self._n_loading += 1
        try:
            if self._meters is None:
                self._last, self._meters = {}, await self._in_thread(self._open_meters)
            if is_first and was_settled:
                self.watts_before = await self._in_thread(self._meters.watts)
            yield
        finally:
            self._n_loading -= 1
            self._busy_s = time.monotonic()

    async def rest(self) -> None:
        """Let the driver go, as no model is in memory."""
        await self.settle()
        meters, self.idle_watts = self._meters, {}
        if meters is not None and not self._n_loading:
            self._meters = None
            await self._in_thread(meters.close)

    async def close(self) -> None:
        """End reading."""
        if self._sample is not None:
            self._sample.cancel()
        if self._meters is not None:
            await self.rest()
        self._thread.shutdown(wait=False)

    async def begin(self, part: AnswerEnergy, plan: Plan) -> None:
        """Let an answer take part from now on."""
        await self.settle()
        if self._meters is not None:
            part.devices, part.n_new = self._meters.of(plan.devices or ()), 0
            self._active.add(part)
            self._sample_later()

    async def end(self, part: AnswerEnergy, beginning: asyncio.Task[None]) -> None:
        """Let an answer take part no more."""
        await beginning
        await self.settle()
        self._active.discard(part)
        self._busy_s = time.monotonic()

    async def settle(self) -> None:
        """Read the counters and share what was used; who asks while they are read waits for it."""
        if not self.devices:
            return
        if self._reading is None and self._meters is not None:
            self._reading = self._in_thread(self._meters.read)
            self._reading.add_done_callback(self._share_out)
        if self._reading is not None:
            await asyncio.wait((self._reading,), timeout=_PATIENCE_S)

    async def look(self) -> None:
        """Bring all figures up to date, on request."""
        await self.settle()
        if self._meters is not None and self._is_settled:
            reading = self._in_thread(self._meters.watts)
            await asyncio.wait((reading,), timeout=_PATIENCE_S)
            if reading.done() and self._is_settled:
                self.idle_watts = reading.result()

    def of(self, model: LoadedModel, *, is_alone: bool) -> ModelEnergy | None:
        """Return the figures of a model; None where nothing is known.

        Args:
            model: In memory.
            is_alone: No other model is: what idling costs is its own.
        """
        name = model.entry.name
        joules = {device: j for (of, device), j in self.answers.items() if of == name}
        found = ModelEnergy(joules={device: round(j, 3) for device, j in joules.items()})
        if joules and (n_tokens := self._n_tokens[name]):
            found.joules_per_token = round(sum(joules.values()) / n_tokens, 4)
        if self._meters is not None:
            used = self._meters.of(model.plan.devices or ())
            names = used.intersection(self._meters.gpu_names)
            if names and all(name in self.idle_watts for name in names):
                found.idle_watts = round(sum(self.idle_watts[name] for name in names), 1)
                if is_alone and all(name in self.watts_before for name in names):
                    before = sum(self.watts_before[name] for name in names)
                    found.idle_added_watts = round(found.idle_watts - before, 1)
        return found if found != ModelEnergy() else None

    @property
    def _is_settled(self) -> bool:
        is_busy = self._active or self._n_loading
        return not is_busy and time.monotonic() - self._busy_s >= _SETTLE_S

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run what no one may wait for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _in_thread(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _share_out(self, reading: "asyncio.Future[dict[str, float]]") -> None:
        self._reading = None
        if reading.cancelled():
            return
        for device, joules in reading.result().items():
            spent = joules - self._last.get(device, 0.0)
            self._last[device] = joules
            self.spent[device] += spent
            parts = [part for part in self._active if device in part.devices]
            n_new = sum(part.n_new for part in parts)
            for part in parts:
                own = spent * (part.n_new / n_new if n_new else 1 / len(parts))
                part.joules[device] += own
                self.answers[part.model, device] += own
        for part in self._active:
            self._n_tokens[part.model] += part.n_new
            part.n_new = 0

    def _sample_later(self) -> None:
        """Add power up while answers run, where a GPU does not count its energy."""
        is_needed = self._active and self._meters is not None and self._meters.needs_samples
        if is_needed and self._sample is None:
            self._sample = asyncio.get_running_loop().call_later(_SAMPLE_S, self._take_sample)

    def _take_sample(self) -> None:
        self._sample = None
        self.spawn(self.settle())
        self._sample_later()
