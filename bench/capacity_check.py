"""Compare what `gptoss capacity` simulates with what an engine really does, in one run.

    python bench/capacity_check.py [MODEL] [--rounds 5] [--prompt 300] [--answer 64] [--process]

Each round measures MODEL (nano) in the way of `gptoss bench`, then has it answer 1, 4 and 8 streams
that ask again as soon as they have their answer, and requests at random times. The simulation gets
the figures of the same round and the same requests. Prints a table of medians.

The engine runs here on one thread, and its clock is that thread's processor time, which stands
still while other programs have the core. With `--process` it is a process of its own, as the server
has it, on the wall clock and with the threads that are planned: for a machine that is idle.
"""

import argparse
import asyncio
import contextlib
import itertools
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import msgspec

from gptoss_local.cluster.capacity.profile import Profile, from_benchmark
from gptoss_local.cluster.capacity.simulated_engine import Arrival, SimulatedEngine, replay
from gptoss_local.engine.client import EngineClient
from gptoss_local.engine.llama import Context, Model
from gptoss_local.engine.protocol import N_DRAFT_MAX, Finished, Generate, Tokens
from gptoss_local.engine.worker import costs, scheduler
from gptoss_local.engine.worker.engine import Engine
from gptoss_local.engine.worker.scheduler import Work
from gptoss_local.formats.o200k import FIRST_SPECIAL
from gptoss_local.machine.plan.measured import Measured
from gptoss_local.machine.plan.memory import Shape
from gptoss_local.models.store import find_model, read_info
from gptoss_local.runner.loading import load_command, load_model
from gptoss_local.runner.measuring import N_ANSWER, WIDTH_PROMPT, AtDepth, AtWidth
from gptoss_local.runner.planning import plan_load
from gptoss_local.settings import Settings, load_settings
from gptoss_local.types import SamplingParams

N_CTX, N_BATCH, N_SEQ = 4096, 512, 8
STREAMS = (1, 4, 8)
DEPTHS, WIDTHS = (128, 512, 2048), (1, 2, 4, 8)
N_REPEATS = 5  # of a prompt that is measured alone
N_EACH = 6  # requests of a stream
N_RANDOM = 30
LOAD = 0.6  # of the tokens a second that the widest step gives
SAMPLING = SamplingParams(seed=1)

Answers = list[tuple[float, list[float]]]
"""The time that each request was sent, and of each token of its answer."""


class Step(NamedTuple):
    """A step of a real engine, as `Profile.step_s` asks for it, and its seconds."""

    depths: list[int]
    chunks: list[tuple[int, int]]
    n_cells_held: int
    seconds: float


class Real(NamedTuple):
    """A real engine: gives it requests when they are due, and counts its cached cells.

    Attributes:
        steps: Of an engine in this thread, all so far.
    """

    ask: Callable[[Sequence[Arrival]], Answers]
    n_cells_cached: Callable[[], int]
    steps: list[Step]


NAMES = {
    "tok_s": "tokens/s of all",
    "answer_tok_s": "tokens/s of an answer, median",
    "first_s": "first token, mean, s",
    "first_p95_s": "first token, p95, s",
}


class Seen(msgspec.Struct):
    """The speed of some requests.

    NOTE: of few that come in lockstep, the median first token is of two kinds: of prompts that meet
    another one, or of those that do not.
    """

    tok_s: float
    answer_tok_s: float
    first_s: float
    first_p95_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="nano")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=300)
    parser.add_argument("--answer", type=int, default=64)
    parser.add_argument("--process", action="store_true")
    arguments = parser.parse_args()
    settings = load_settings(context_length=N_CTX, num_parallel=N_SEQ)
    settings = msgspec.structs.replace(settings, prefix_disk_bytes=0)
    path = find_model(arguments.model, settings).ensure_file(settings)
    found: dict[str, list[tuple[Seen, Seen]]] = {}
    starting = in_process(arguments.model, settings) if arguments.process else in_thread(path)
    with starting as real:
        measure_depth(real, DEPTHS[0])  # warms up
        for _ in range(arguments.rounds):
            for name, pair in compare(real, arguments.prompt, arguments.answer).items():
                found.setdefault(name, []).append(pair)
                print(name, *pair, flush=True)
    print(table(found))


def compare(real: Real, n_prompt: int, n_answer: int) -> dict[str, tuple[Seen, Seen]]:
    """Return what was simulated and what was seen, by kind of load."""
    profile = measure(real)
    print(profile)
    n_rows, step_s = profile.decode[-1]
    kinds = {f"{n} streams": closed_loop(n, n_prompt, n_answer) for n in STREAMS}
    kinds["random times"] = at_random(LOAD * n_rows / step_s / n_answer, n_prompt, n_answer)
    pairs = {}
    for name, requests in kinds.items():
        simulated = replay(requests, [SimulatedEngine(profile)])
        seen = summary([(each.arrived_s, each.times_s) for each in simulated])
        pairs[name] = seen, summary(real.ask(requests))
    return pairs


def measure(real: Real, depths: Sequence[int] = DEPTHS) -> Profile:
    """Measure as `gptoss bench` does, but each figure once."""
    return from_benchmark(
        [measure_depth(real, n) for n in depths],
        [measure_width(real, n) for n in WIDTHS],
        n_ctx=N_CTX,
        n_batch=N_BATCH,
        n_seq=N_SEQ,
        has_gpu=False,
    )


def measure_depth(real: Real, n_tokens: int) -> AtDepth:
    found = []
    for _ in range(N_REPEATS):
        ((sent_s, times_s),) = real.ask(closed_loop(1, n_tokens, N_ANSWER, 1))
        answer_s, n_cells = times_s[-1] - times_s[0], real.n_cells_cached() - n_tokens - N_ANSWER
        found.append((n_tokens / (times_s[0] - sent_s), (N_ANSWER - 1) / answer_s, n_cells))
    prefill, decode, cached = (statistics.median(each) for each in zip(*found, strict=True))
    return AtDepth(n_tokens, prefill, decode, n_cells_cached=max(0, int(cached)))


def measure_width(real: Real, n_streams: int) -> AtWidth:
    answers = real.ask(closed_loop(n_streams, WIDTH_PROMPT, N_ANSWER, 1))
    all_times = [times_s for _, times_s in answers]
    first_s, last_s = max(t[0] for t in all_times), min(t[-1] for t in all_times)
    n_tokens = sum(first_s < time_s <= last_s for times_s in all_times for time_s in times_s)
    n_cells_cached = real.n_cells_cached() - n_streams * (WIDTH_PROMPT + N_ANSWER)
    return AtWidth(n_streams, n_tokens / (last_s - first_s), n_cells_cached=max(0, n_cells_cached))


def closed_loop(
    n_streams: int, n_prompt: int, n_answer: int, n_each: int = N_EACH
) -> list[Arrival]:
    return [
        Arrival(
            at_s=0.0,
            prompt=((number, n_prompt),),
            n_answer=n_answer,
            follows=number - n_streams if number >= n_streams else None,
        )
        for number in range(n_streams * n_each)
    ]


def at_random(rate: float, n_prompt: int, n_answer: int) -> list[Arrival]:
    dice = random.Random(0)
    times = itertools.accumulate(dice.expovariate(rate) for _ in range(N_RANDOM))
    return [
        Arrival(at_s=at_s, prompt=((number, n_prompt),), n_answer=n_answer)
        for number, at_s in enumerate(times)
    ]


def random_tokens(request: Arrival) -> list[int]:
    n_prompt = sum(n for _, n in request.prompt)
    return [random.randrange(FIRST_SPECIAL) for _ in range(n_prompt)]


@contextmanager
def in_thread(path: Path) -> Iterator[Real]:
    """Yield an engine of this thread, which counts processor time and skips time without work."""
    skipped_s = 0.0

    def clock() -> float:
        return time.thread_time() + skipped_s

    shape = Shape(n_ctx=N_CTX, n_batch=N_BATCH, n_seq=N_SEQ, n_outputs=N_SEQ + N_DRAFT_MAX)
    model = Model(path)
    context = Context(model, shape.context_params(n_threads_prefill=1, n_threads_decode=1))
    with contextlib.ExitStack() as patches:
        for module in (scheduler, costs):
            fake = SimpleNamespace(monotonic=clock)
            patches.enter_context(mock.patch.object(module, "time", fake))
        engine = Engine(context)
        steps = recorded_steps(engine)

        def ask(requests: Sequence[Arrival]) -> Answers:
            nonlocal skipped_s
            start_s = now_s = clock()
            sent_s: dict[int, float] = {}
            times_s: dict[int, list[float]] = {number: [] for number in range(len(requests))}
            due = [(r.at_s, n) for n, r in enumerate(requests) if r.follows is None]
            due.sort()
            while due or engine.has_work:
                if not engine.has_work:
                    idle_s = max(0.0, start_s + due[0][0] - now_s)
                    skipped_s, now_s = skipped_s + idle_s, now_s + idle_s
                while due and start_s + due[0][0] <= now_s:
                    number = due.pop(0)[1]
                    # when it is due: an engine that is in a step hears of it afterwards
                    sent_s[number] = max(start_s + requests[number].at_s, start_s)
                    engine.add_request(generate(number, requests[number]))
                events = engine.step()
                begun_s, now_s = now_s, clock()
                steps[-1] = steps[-1]._replace(seconds=now_s - begun_s)
                for event in events:
                    if isinstance(event, Tokens):
                        times_s[event.seq_id] += [now_s] * len(event.tokens)
                    elif isinstance(event, Finished):
                        for number, request in enumerate(requests):
                            if request.follows == event.seq_id:
                                sent_s[number] = now_s
                                engine.add_request(generate(number, request))
            return [(sent_s[number], times_s[number]) for number in range(len(requests))]

        yield Real(ask, lambda: engine.stats().n_cells_cached, steps)
    context.close()
    model.close()


def recorded_steps(engine: Engine) -> list[Step]:
    """Return a list that gets every step that `engine` plans; who runs it sets the seconds."""
    steps: list[Step] = []
    scheduler, slots = engine._scheduler, engine._slots
    plan = scheduler.plan

    def planned() -> list[Work]:
        found = plan()
        depths = [work.sequence.n_past for work in found if work.n_tokens == 1]
        chunks = [(work.sequence.n_past, work.n_tokens) for work in found if work.n_tokens > 1]
        steps.append(Step(depths, chunks, slots.n_cells - slots.n_cells_free, 0.0))
        return found

    vars(scheduler)["plan"] = planned
    return steps


def generate(number: int, request: Arrival) -> Generate:
    return Generate(
        seq_id=number,
        prompt=random_tokens(request),
        sampling=SAMPLING,
        stop_tokens=[],
        max_tokens=request.n_answer,
        drafts=False,
    )


@contextmanager
def in_process(name: str, settings: Settings) -> Iterator[Real]:
    """Yield an engine process, planned and started as the server does it."""
    entry = find_model(name, settings)
    path = entry.ensure_file(settings)
    plan = plan_load(path, settings, None)
    command = load_command(entry, path, plan, settings, Measured())
    with asyncio.Runner() as runner:
        loading: Any = load_model(entry, read_info(path), plan, command, settings)
        engine = runner.run(loading).engine
        try:
            yield Real(
                lambda requests: runner.run(really(engine, requests)),
                lambda: runner.run(engine.stats()).n_cells_cached,
                [],
            )
        finally:
            runner.run(engine.close())


async def really(engine: EngineClient, requests: Sequence[Arrival]) -> Answers:
    start_s = time.monotonic()
    ended = [asyncio.Event() for _ in requests]

    async def one(number: int, request: Arrival) -> tuple[float, list[float]]:
        if request.follows is not None:
            await ended[request.follows].wait()
        else:
            await asyncio.sleep(start_s + request.at_s - time.monotonic())
        sent_s, times_s = time.monotonic(), []
        events = engine.generate(
            random_tokens(request), SAMPLING, stop_tokens=[], max_tokens=request.n_answer
        )
        async for event in events:
            if isinstance(event, Tokens):
                times_s += [time.monotonic()] * len(event.tokens)
        ended[number].set()
        return sent_s, times_s

    return list(await asyncio.gather(*(one(*each) for each in enumerate(requests))))


def summary(answers: Answers) -> Seen:
    first_s = sorted(times_s[0] - sent_s for sent_s, times_s in answers)
    rates = [(len(times_s) - 1) / (times_s[-1] - times_s[0]) for _, times_s in answers]
    all_s = max(times_s[-1] for _, times_s in answers) - min(sent_s for sent_s, _ in answers)
    n_tokens = sum(len(times_s) for _, times_s in answers)
    return Seen(
        n_tokens / all_s,
        statistics.median(rates),
        statistics.mean(first_s),
        first_s[int(0.95 * len(first_s))],
    )


def table(found: dict[str, list[tuple[Seen, Seen]]]) -> str:
    lines = ["| | | simulated | real | simulated / real, by round |", "|---|---|---|---|---|"]
    for kind, pairs in found.items():
        for field, name in NAMES.items():
            values = [(getattr(a, field), getattr(b, field)) for a, b in pairs]
            ratios = sorted(a / b for a, b in values)
            simulated, real = (statistics.median(v) for v in zip(*values, strict=True))
            lines.append(
                f"| {kind} | {name} | {simulated:.3g} | {real:.3g} | "
                f"**{statistics.median(ratios):.2f}** ({ratios[0]:.2f} to {ratios[-1]:.2f}) |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
