"""Measures a model's speed on this machine: prompts, and answers after longer and longer contexts.

Asks the engine process that also serves, loaded as the planner says, so that scheduling and
sampling count. Prompts are random tokens, answers run without drafts and never stop: what is
computed is the same whatever the model says.
"""

import asyncio
import random
import statistics
import time
from collections.abc import Callable

import msgspec

from gptoss_local.engine.client import EngineClient
from gptoss_local.engine.protocol import Finished
from gptoss_local.formats.o200k import FIRST_SPECIAL
from gptoss_local.machine.plan.measured import read_measured
from gptoss_local.machine.plan.result import Plan
from gptoss_local.models.store import ModelEntry, find_model, read_info
from gptoss_local.runner.loading import load_command, load_model
from gptoss_local.runner.planning import Attempt, measured_file, plan_load
from gptoss_local.settings import Settings
from gptoss_local.types import SamplingParams

N_ANSWER = 64
DEPTHS = (128, 512, 2048, 8192, 32_768, 65_536, 130_000)
_WIDTHS = (1, 2, 4, 8, 16, 32, 64)
WIDTH_PROMPT = 256
_REPEATED_S = 5.0  # what takes longer is measured once
_N_ROUNDS = 3
_PATIENCE_S = 60.0  # no prompt is measured that would take longer
_SAMPLING = SamplingParams(seed=1)  # a seed switches drafts off


class AtDepth(msgspec.Struct, frozen=True):
    """A prompt of `n_tokens`, and the answer after it, alone; cells that earlier ones have left."""

    n_tokens: int
    prefill_tok_s: float
    decode_tok_s: float
    n_cells_cached: int = 0


class AtWidth(msgspec.Struct, frozen=True):
    """Several answers at the same time; tokens of all together."""

    n_streams: int
    decode_tok_s: float
    n_cells_cached: int = 0


class Benchmark(msgspec.Struct, frozen=True, kw_only=True):
    """Results, with what the planner expected of a prompt of 4,096 tokens and an answer."""

    model: str
    n_ctx: int
    load_s: float
    depths: list[AtDepth]
    widths: list[AtWidth]
    plan: Plan


async def measure(
    entry: ModelEntry, settings: Settings, report: Callable[[str], None]
) -> Benchmark:
    """Load a model and measure it in a minute or a few; slow machines skip long prompts.

    Another copy of the model in a server takes memory from this one.

    Raises:
        DoesNotFitError: there is no room for the model.
        ModelLoadError, EngineCrashedError: it cannot be loaded.
    """
    settings = msgspec.structs.replace(settings, prefix_disk_bytes=0)  # nothing worth keeping
    path = await asyncio.to_thread(entry.ensure_file, settings)
    entry = find_model(entry.name, settings)  # an embedded model has a file now
    known = read_measured(await asyncio.to_thread(measured_file, entry, settings))
    plan = await asyncio.to_thread(
        plan_load,
        path,
        settings,
        None,
        attempt=Attempt.after(known),
        tuning=known.tuning,
    )
    report("loading")
    start_s = time.monotonic()
    load = load_command(entry, path, plan, settings, known)
    model = await load_model(entry, read_info(path), plan, load, settings)
    load_s = time.monotonic() - start_s
    try:
        depths, widths = await _Prober(model.engine).all(plan.shape.n_seq, report)
    finally:
        await model.engine.close()
    return Benchmark(
        model=entry.name,
        n_ctx=model.engine.loaded.n_ctx,
        load_s=load_s,
        depths=depths,
        widths=widths,
        plan=plan,
    )


def _depths(n_ctx: int) -> list[int]:
    return [n for n in DEPTHS if n + N_ANSWER <= n_ctx]


def _widths(n_seq: int, n_ctx: int) -> list[int]:
    """Numbers of answers that fit into the context together; none may have to wait."""
    return [n for n in _WIDTHS if n <= n_seq and n * (WIDTH_PROMPT + N_ANSWER) <= n_ctx]


class _Prober:
    def __init__(self, engine: EngineClient) -> None:
        self._engine = engine
        self._rng = random.Random(0)

    async def all(
        self, n_seq: int, report: Callable[[str], None]
    ) -> tuple[list[AtDepth], list[AtWidth]]:
        await self.answer(DEPTHS[0])  # warms up
        n_ctx = self._engine.loaded.n_ctx
        depths: list[AtDepth] = []
        for n_tokens in _depths(n_ctx):
            if depths and n_tokens / depths[-1].prefill_tok_s > _PATIENCE_S:
                break
            report(f"a prompt of {n_tokens:,} tokens")
            depths.append(await self.depth(n_tokens))
        widths: list[AtWidth] = []
        for n_streams in _widths(n_seq, n_ctx):
            report(f"{n_streams} answers at the same time" if n_streams > 1 else "one answer alone")
            widths.append(await self.width(n_streams))
        return depths, widths

    async def answer(self, n_tokens: int) -> tuple[Finished, list[float]]:
        """Run a request of random tokens; also return the time of each token of its answer."""
        prompt = [self._rng.randrange(FIRST_SPECIAL) for _ in range(n_tokens)]
        times: list[float] = []
        events = self._engine.generate(prompt, _SAMPLING, stop_tokens=[], max_tokens=N_ANSWER)
        async for event in events:
            if isinstance(event, Finished):
                return event, times
            times.append(time.monotonic())
        raise AssertionError("an answer ends with Finished or an error")

    async def depth(self, n_tokens: int) -> AtDepth:
        prefill, decode, cached = [], [], []
        start_s = time.monotonic()
        for _ in range(_N_ROUNDS):
            usage = (await self.answer(n_tokens))[0].usage
            prefill.append(usage.n_prompt / usage.prefill_ns * 1e9)
            decode.append((usage.n_generated - 1) / usage.decode_ns * 1e9)
            cached.append(await self._n_cells_cached(n_tokens + N_ANSWER))
            if time.monotonic() - start_s > _REPEATED_S:
                break
        rates = statistics.median(prefill), statistics.median(decode)
        return AtDepth(n_tokens, *rates, n_cells_cached=statistics.median_low(cached))

    async def width(self, n_streams: int) -> AtWidth:
        """Count the tokens while all of the streams run."""
        answers = await asyncio.gather(*(self.answer(WIDTH_PROMPT) for _ in range(n_streams)))
        all_times = [times for _, times in answers]
        first_s, last_s = max(times[0] for times in all_times), min(t[-1] for t in all_times)
        n_tokens = sum(first_s < time_s <= last_s for times in all_times for time_s in times)
        rate = n_tokens / (last_s - first_s) if n_tokens else 0.0
        n_cells_cached = await self._n_cells_cached(n_streams * (WIDTH_PROMPT + N_ANSWER))
        return AtWidth(n_streams, rate, n_cells_cached)

    async def _n_cells_cached(self, n_own: int) -> int:
        """Cells of other sequences, besides those that were just measured."""
        return max(0, (await self._engine.stats()).n_cells_cached - n_own)
