"""Measures a model on this machine, and keeps figures that plans and later loads need.

`measure` (`gptoss bench`) asks an engine process as a server does, with random tokens and without
drafts. `tune` and `calibrate`, of `gptoss tune` and of a first load, have processes of their own.
"""

import asyncio
import logging
import os
import random
import re
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec.structs import replace

from gptoss_local.base.errors import EngineError, UsageError
from gptoss_local.base.formats.o200k import FIRST_SPECIAL
from gptoss_local.base.settings import Settings
from gptoss_local.base.types import SamplingParams, Usage
from gptoss_local.engine.client import EngineClient
from gptoss_local.engine.protocol import Finished, Generate, Load, Tokens, Tuned
from gptoss_local.machine.hardware import read_cuda_gpus
from gptoss_local.machine.plan.facts import ModelFacts, read_facts
from gptoss_local.machine.plan.measured import (
    Measured,
    Steps,
    Tuning,
    best_threads,
    break_even,
    read_measured,
    write_measured,
)
from gptoss_local.machine.plan.result import Plan
from gptoss_local.models.store import ModelEntry, find_model, read_info
from gptoss_local.runner.loads import LoadProgress
from gptoss_local.runner.planning import load_command, measured_file, plan_load

_log = logging.getLogger("gptoss")

N_ANSWER = 64
DEPTHS = (128, 512, 2048, 8192, 32_768, 65_536, 130_000)
_N_ALONE = 128  # tokens of llama-bench's own test of answers
_N_TURNS, _N_RESULT, _N_CALL = 20, 200, 16  # of an agent; tokens of a tool's result, of a call
_WIDTHS = (1, 2, 4, 8, 16, 32, 64)
WIDTH_PROMPT = 256
_REPEATED_S = 5.0  # longer prompts are measured once
_N_ROUNDS = 3
_PATIENCE_S = 60.0  # no prompt is measured that would take longer
_SAMPLING = SamplingParams(seed=1)  # a seed switches drafts off
_BACKEND = re.compile("[A-Za-z]+")  # CUDA of CUDA0 and CUDA_Host
_MANY = 128  # tokens that use nearly all experts
_N_LOOKS, _LOOK_S = 4, 0.5  # at a GPU: a program that has just ended counts for a second

Count = Annotated[int, msgspec.Meta(ge=1)]
_Rate = Annotated[float, msgspec.Meta(gt=0)]  # as `gptoss capacity` reads it from a file


class AtDepth(msgspec.Struct, frozen=True):
    """A prompt of `n_tokens`, and the answer after it, alone; cells left by earlier ones."""

    n_tokens: Count
    prefill_tok_s: _Rate
    decode_tok_s: _Rate
    n_cells_cached: int = 0


class AtWidth(msgspec.Struct, frozen=True):
    """Several answers at the same time; tokens of all together."""

    n_streams: Count
    decode_tok_s: _Rate
    n_cells_cached: int = 0


class Row(msgspec.Struct, frozen=True):
    test: str
    n_threads: int
    avg_ts: float
    stddev_ts: float


class Benchmark(msgspec.Struct, frozen=True, kw_only=True):
    """Results, with the plan and its estimates; `model_type` .. `backends` as in llama-bench."""

    model: str
    model_type: str = ""
    model_size: int = 0
    model_n_params: int = 0
    backends: str = "CPU"
    tests: list[Row] = []
    n_ctx: int
    load_s: float
    depths: list[AtDepth]
    widths: list[AtWidth]
    plan: Plan


async def measure(
    entry: ModelEntry, settings: Settings, report: Callable[[str], None], *, n_agent: int
) -> Benchmark:
    """Load a model and measure it in minutes; an `n_agent` of 0 skips agents' prompts."""
    settings = replace(settings, prefix_disk_bytes=0)  # nothing worth keeping
    path, entry, known_path = await asyncio.to_thread(_files, entry, settings)
    known = read_measured(known_path)
    plan_now = partial(plan_load, attempt=known.attempt, tuning=known.tuning)
    plan = await asyncio.to_thread(plan_now, entry, settings, None)
    report("loading")
    start_s = time.monotonic()
    engine = await EngineClient.start(load_command(entry, path, plan, settings, known))
    load_s, loaded = time.monotonic() - start_s, engine.loaded
    try:
        prober = _Prober(engine, plan, report)
        depths, widths = await prober.depths(), await prober.widths()
        if n_agent:
            await prober.agent(n_agent, depths[-1].prefill_tok_s)
    finally:
        await engine.close()
    places = {match[0] for place in loaded.buffer_bytes if (match := _BACKEND.match(place))}
    return Benchmark(
        model=entry.name,
        model_type=loaded.description,
        model_size=loaded.size_bytes,
        model_n_params=loaded.n_params,
        backends=",".join(sorted(places - {"CPU"})) if loaded.has_gpu else "CPU",
        tests=prober.tests,
        n_ctx=loaded.n_ctx,
        load_s=load_s,
        depths=depths,
        widths=widths,
        plan=plan,
    )


def disturbance() -> str:
    """Say that others use a GPU now, so that what is measured would be wrong; empty if none does.

    A chat window takes up to 38 % of an answer's speed. Source: llama.cpp's issue 28196.
    """
    for n in range(_N_LOOKS):
        time.sleep(_LOOK_S if n else 0)
        percents = [gpu.busy_percent for gpu in read_cuda_gpus() if gpu.is_busy]
        if not percents:
            return ""
    return f"another program uses the GPU ({percents[0]} %): figures would be too low"


def _files(entry: ModelEntry, settings: Settings) -> tuple[Path, ModelEntry, Path]:
    path = entry.ensure_file(settings)
    entry = find_model(entry.name, settings)  # an embedded model has a file now
    return path, entry, measured_file(entry, settings)


class _Prober:
    def __init__(self, engine: EngineClient, plan: Plan, report: Callable[[str], None]) -> None:
        self.tests: list[Row] = []
        self._engine = engine
        self._n_ctx = engine.loaded.n_ctx
        self._plan = plan
        self._report = report
        self._rng = random.Random(0)

    async def depths(self) -> list[AtDepth]:
        await self.answer(self.tokens(DEPTHS[0]))  # warms up
        # NOTE: before long prompts, as cells that these leave slow answers down
        alone = [await self.answer(self.tokens(1), _N_ALONE) for _ in range(_N_ROUNDS)]
        self.add_test(f"tg{_N_ALONE}", [_decode_tok_s(end.usage) for end, _, _ in alone])
        found: list[AtDepth] = []
        for n_tokens in DEPTHS:
            is_slow = found and n_tokens / found[-1].prefill_tok_s > _PATIENCE_S
            if n_tokens + N_ANSWER > self._n_ctx or is_slow:
                break
            self._report(f"a prompt of {n_tokens:,} tokens")
            found.append(await self._depth(n_tokens))
        return found

    async def widths(self) -> list[AtWidth]:
        found: list[AtWidth] = []
        for n_streams in _WIDTHS:
            n_all = n_streams * (WIDTH_PROMPT + N_ANSWER)
            if n_streams > self._plan.shape.n_seq or n_all > self._n_ctx:
                break  # no answer may have to wait
            what = f"{n_streams} answers at the same time" if n_streams > 1 else "one answer alone"
            self._report(what)
            found.append(await self._width(n_streams))
        return found

    async def agent(self, n_prompt: int, prefill_tok_s: float) -> None:
        """Add the tokens of a result by the seconds from sending it to the next first token."""
        n_all = n_prompt + _N_TURNS * (_N_RESULT + _N_CALL) + _N_CALL
        if n_all > self._n_ctx:
            return self._report(f"skipping the agent: it needs {n_all:,} tokens of context")
        if n_prompt / prefill_tok_s > _PATIENCE_S:
            return self._report(f"skipping the agent: {n_prompt:,} tokens take over a minute")
        self._report(f"an agent with {n_prompt:,} tokens")
        conversation, rates = self.tokens(n_prompt), []
        for _ in range(1 + _N_TURNS):
            start_s = time.monotonic()
            _, times, call = await self.answer(conversation, _N_CALL)
            rates.append(_N_RESULT / (times[0] - start_s))
            conversation = [*conversation, *call, *self.tokens(_N_RESULT)]
        self.add_test(f"agent {n_prompt}+{_N_TURNS}x{_N_RESULT}", rates[1:], reads=True)

    def add_test(self, name: str, rates: list[float], *, reads: bool = False) -> None:
        plan = self._plan
        n_threads = plan.n_threads_prefill if reads else plan.n_threads_decode
        stddev = statistics.stdev(rates) if len(rates) > 1 else 0.0
        self.tests.append(Row(name, n_threads, statistics.fmean(rates), stddev))

    def tokens(self, n_tokens: int) -> list[int]:
        return [self._rng.randrange(FIRST_SPECIAL) for _ in range(n_tokens)]

    async def answer(
        self, prompt: list[int], n_answer: int = N_ANSWER
    ) -> tuple[Finished, list[float], list[int]]:
        times: list[float] = []
        answer: list[int] = []
        asked = Generate(prompt=prompt, sampling=_SAMPLING, max_tokens=n_answer)
        async for event in self._engine.generate(asked):
            if isinstance(event, Finished):
                return event, times, answer
            if isinstance(event, Tokens):
                times.append(time.monotonic())
                answer += event.tokens
        raise AssertionError("an answer ends with Finished or an error")

    async def _depth(self, n_tokens: int) -> AtDepth:
        prefill, decode, cached = [], [], []
        start_s = time.monotonic()
        for _ in range(_N_ROUNDS):
            usage = (await self.answer(self.tokens(n_tokens)))[0].usage
            prefill.append(usage.n_prompt / usage.prefill_ns * 1e9)
            decode.append(_decode_tok_s(usage))
            cached.append(await self._n_cells_cached(n_tokens + N_ANSWER))
            if time.monotonic() - start_s > _REPEATED_S:
                break
        self.add_test(f"pp{n_tokens}", prefill, reads=True)
        self.add_test(f"tg{N_ANSWER} @ d{n_tokens}", decode)
        rates = statistics.median(prefill), statistics.median(decode)
        return AtDepth(n_tokens, *rates, n_cells_cached=statistics.median_low(cached))

    async def _width(self, n_streams: int) -> AtWidth:
        answers = await asyncio.gather(
            *(self.answer(self.tokens(WIDTH_PROMPT)) for _ in range(n_streams))
        )
        all_times = [times for _, times, _ in answers]
        first_s, last_s = max(times[0] for times in all_times), min(t[-1] for t in all_times)
        n_tokens = sum(first_s < time_s <= last_s for times in all_times for time_s in times)
        rate = n_tokens / (last_s - first_s) if n_tokens else 0.0
        n_cells_cached = await self._n_cells_cached(n_streams * (WIDTH_PROMPT + N_ANSWER))
        return AtWidth(n_streams, rate, n_cells_cached)

    async def _n_cells_cached(self, n_own: int) -> int:
        """Count cells of other sequences, besides those that were just measured."""
        return max(0, (await self._engine.stats()).n_cells_cached - n_own)


def _decode_tok_s(usage: Usage) -> float:
    return (usage.n_generated - 1) / usage.decode_ns * 1e9


class TuneResult(msgspec.Struct, frozen=True):
    model: str
    seconds: float
    before: Plan
    after: Plan
    measured: Measured
    path: str
    disturbed: str = ""  # why nothing was kept


async def tune(
    entry: ModelEntry, settings: Settings, on_progress: Callable[[float], None]
) -> TuneResult:
    """Load a model, measure it, and keep undisturbed figures; user-set threads are not tuned."""
    path, entry, known_path = await asyncio.to_thread(_files, entry, settings)
    before = await asyncio.to_thread(plan_load, entry, settings, None)
    load = load_command(entry, path, before, settings, Measured())
    look = disturbance if before.uses_gpu else str
    disturbed = await asyncio.to_thread(look)
    start_s = time.monotonic()
    tuned = await EngineClient.tune(load, on_progress=on_progress)
    seconds = round(time.monotonic() - start_s, 2)
    disturbed = disturbed or await asyncio.to_thread(look)
    tuning = judge(read_facts(path), before, tuned)
    after = await asyncio.to_thread(plan_load, entry, settings, None, tuning=tuning)
    steps = Steps.now(after, tuned.step_costs) if tuned.step_costs else None
    measured = Measured(tuning=tuning, steps=steps)  # a margin that a load needed is tried again
    if not disturbed:
        await asyncio.to_thread(write_measured, known_path, measured)
    return TuneResult(entry.name, seconds, before, after, measured, str(known_path), disturbed)


def is_due(plan: Plan, known: Measured) -> bool:
    is_told = "GGML_OP_OFFLOAD_MIN_BATCH" in os.environ
    is_tried = known.tuning is not None or known.tuning_failed
    return plan.placement.shares_experts and not is_tried and not is_told


async def calibrate(
    plan: Plan, load: Load, known: Measured, known_path: Path, progress: LoadProgress
) -> Measured:
    """Measure from how many tokens a GPU is faster. After a failure, only that is remembered."""
    path = Path(load.model_path)
    progress.begin(read_info(path).size_bytes, is_measured=True)
    load = replace(load, budget_bytes={})  # its contexts are smaller
    try:
        tuned = await EngineClient.tune(load, what="offload", on_progress=progress.report)
    except EngineError as error:
        text = "%s could not be measured (%s); `gptoss tune` tries again"
        _log.warning(text, path.name, error.message)
        known = replace(known, tuning_failed=True)
    else:
        tuning = judge(read_facts(path), plan, tuned)
        known = replace(known, tuning=tuning)
        _log.info("experts come to the GPU from %s tokens on", tuning.offload_min_batch)
    keep(known_path, known)
    return known


def keep(path: Path, known: Measured) -> None:
    """Write it to the disk; a failure does not keep the model from loading."""
    try:
        write_measured(path, known)
    except UsageError as error:
        _log.warning("%s", error.message)


def judge(facts: ModelFacts, plan: Plan, tuned: Tuned) -> Tuning:
    """Draw the consequences of figures measured with `plan`, made without any tuning."""
    n_decode, decode_tok_s = best_threads(tuned.decode, plan.n_threads_decode)
    n_prefill, prefill_tok_s = best_threads(tuned.prefill, plan.n_threads_prefill)
    min_batch = break_even(tuned.offload, facts.n_experts_used)
    if min_batch == 1:  # answers, too, are computed with experts that come to the GPU
        decode_tok_s = max(decode_tok_s, 1 / tuned.offload[0][2])
    n_bytes = plan.placement.expert_bytes_on_host(facts)
    link_rates = [n_bytes / gpu_s for n, _, gpu_s in tuned.offload if n >= _MANY]
    return Tuning(
        uses_gpu=plan.uses_gpu,
        decode=tuned.decode,
        prefill=tuned.prefill,
        n_threads_decode=n_decode,
        n_threads_prefill=n_prefill,
        decode_factor=decode_tok_s / plan.speed.decode_tok_s,
        prefill_factor=prefill_tok_s / plan.speed.prefill_tok_s,
        offload=tuned.offload,
        offload_min_batch=min_batch,
        link_bytes_s=max(link_rates, default=None),
    )
