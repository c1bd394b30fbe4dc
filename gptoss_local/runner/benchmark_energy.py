"""Measures what a model costs in energy: idle, and for each token with several answers."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing

import msgspec

from gptoss_local.engine.client import EngineClient
from gptoss_local.engine.protocol import Tokens
from gptoss_local.machine.energy import Meters
from gptoss_local.plan.result import Plan
from gptoss_local.types import SamplingParams

_SETTLE_S = 8.0  # until clocks and power are down
_SPAN_S = 3.0
_SAMPLE_S = 0.25
_MOST_TOKENS = 2048  # of an answer


class BenchEnergy(msgspec.Struct, frozen=True, kw_only=True):
    """The devices that compute the model, and their power while nothing is computed.

    Attributes:
        devices: How each is counted.
        missing: Why others are not.
        before_watts: By device, before the load.
        idle_watts: By device, with the model loaded.
    """

    devices: dict[str, str]
    missing: dict[str, str]
    before_watts: dict[str, float]
    idle_watts: dict[str, float]

    @property
    def added_watts(self) -> float:
        """The power that the loaded model adds."""
        return sum(self.idle_watts.values()) - sum(self.before_watts.values())


class EnergyProbe:
    """Reads the counters around what is measured.

    Args:
        meters: Of this machine; the caller closes them.
        plan: Says which devices the model is on.
    """

    def __init__(self, meters: Meters, plan: Plan) -> None:
        self._meters = meters
        self._names = meters.of(plan.devices or ()) & meters.devices.keys()
        self._before: dict[str, float] = {}
        self._idle: dict[str, float] = {}

    @property
    def result(self) -> BenchEnergy:
        return BenchEnergy(
            devices={name: self._meters.devices[name] for name in sorted(self._names)},
            missing=self._meters.missing,
            before_watts=self._before,
            idle_watts=self._idle,
        )

    async def before_load(self, report: Callable[[str], None]) -> None:
        """Measure the power without the model; other models must be gone."""
        if self._names:
            report("the power without the model")
            self._before = await self._idle_watts()

    async def idle(self, report: Callable[[str], None]) -> None:
        """Measure the power with the model loaded."""
        if self._names:
            report("the power with the model idle")
            self._idle = await self._idle_watts()

    async def decode(
        self, engine: EngineClient, prompts: Sequence[list[int]], sampling: SamplingParams
    ) -> tuple[float, float] | None:
        """Return joules per token and watts while all prompts are answered at the same time.

        Joules of all devices by tokens of all answers, once each has its first.
        """
        if not self._names:
            return None
        n_tokens, n_begun = 0, asyncio.Semaphore(0)
        n_room = engine.loaded.n_ctx // len(prompts) - len(prompts[0])

        async def stream(prompt: list[int]) -> None:
            nonlocal n_tokens
            is_first = True
            while True:
                most = min(n_room, _MOST_TOKENS)
                events = engine.generate(prompt, sampling, stop_tokens=[], max_tokens=most)
                async with aclosing(events):
                    async for event in events:
                        if isinstance(event, Tokens):
                            n_tokens += len(event.tokens)
                            if is_first:
                                n_begun.release()
                            is_first = False

        async def look() -> tuple[float, float]:
            for _ in prompts:
                await n_begun.acquire()
            n_before, begin_s = n_tokens, time.monotonic()
            watts = sum((await self._watts(_SPAN_S)).values())
            joules = watts * (time.monotonic() - begin_s)
            return joules / max(1, n_tokens - n_before), watts

        looking = asyncio.create_task(look())
        streams = [asyncio.create_task(stream(prompt)) for prompt in prompts]
        try:
            done, _ = await asyncio.wait((looking, *streams), return_when=asyncio.FIRST_COMPLETED)
            for failed in done - {looking}:
                failed.result()  # raises: a stream has no end
            return looking.result()
        finally:
            for task in (looking, *streams):
                task.cancel()
            await asyncio.gather(looking, *streams, return_exceptions=True)

    async def _idle_watts(self) -> dict[str, float]:
        await asyncio.sleep(_SETTLE_S)
        return await self._watts(_SPAN_S)

    async def _watts(self, seconds: float) -> dict[str, float]:
        """Return the mean power of some seconds, by device."""
        begin_s, first = await asyncio.to_thread(self._read)
        end_s, last = begin_s, first
        while (left_s := begin_s + seconds - end_s) > 0:
            await asyncio.sleep(min(_SAMPLE_S, left_s))
            end_s, last = await asyncio.to_thread(self._read)
        names = self._names & first.keys() & last.keys()
        return {name: (last[name] - first[name]) / (end_s - begin_s) for name in sorted(names)}

    def _read(self) -> tuple[float, dict[str, float]]:
        return time.monotonic(), self._meters.read()
