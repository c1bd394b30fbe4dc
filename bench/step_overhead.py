"""Our time per decode step, outside llama.cpp: planning, filling the batch, events.

    python bench/step_overhead.py [--steps N]

Drives the engine on nano at 1 and 8 streams, and takes from every step the time that decode and
draw take. What lies between a draw and the next decode is printed, too: a device would wait for
that. Microseconds per step: median, 90th percentile.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import llama_cpp

from gptoss_local.engine.engine import Engine
from gptoss_local.engine.protocol import N_DRAFT_MAX, Event, Generate, encode_frame
from gptoss_local.llama import Context, ContextParams, Model, Sampler
from gptoss_local.nano import ensure_gguf
from gptoss_local.o200k import FIRST_SPECIAL
from gptoss_local.settings import load_settings
from gptoss_local.types import SamplingParams

WARM_UP = 20


class Overhead(NamedTuple):
    all_us: float
    waited_us: float  # between a draw and the next decode


class Clock:
    """Where the time of a step goes."""

    def __init__(self) -> None:
        self.inside_ns = self.drawn_ns = self.waited_ns = 0

    def decode(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.waited_ns = time.perf_counter_ns() - self.drawn_ns
            return self._inside(function, arguments)

        return call

    def draw(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            token = self._inside(function, arguments)
            # Nothing repeats, so drafts are looked for and not found; they have their own bench.
            return random.randrange(min(token + 9999, FIRST_SPECIAL))

        return call

    def _inside(self, function: Callable[..., Any], arguments: Any) -> Any:
        start_ns = time.perf_counter_ns()
        result = function(*arguments)
        self.drawn_ns = time.perf_counter_ns()
        self.inside_ns += self.drawn_ns - start_ns
        return result


def measure(
    model: Model, clock: Clock, n_streams: int, n_steps: int, n_draft_max: int
) -> list[Overhead]:
    params = ContextParams(
        n_ctx=8192,
        n_threads_prefill=2,
        n_threads_decode=1,
        n_seq_max=n_streams,
        n_outputs_max=n_streams + n_draft_max,
    )
    context = Context(model, params)
    engine = Engine(context)
    for seq_id in range(n_streams):
        request = Generate(
            seq_id=seq_id, prompt=[200006, 1428], sampling=SamplingParams(), stop_tokens=[-1, -2]
        )
        engine.add_request(request)
    events: list[Event] = []

    def send() -> None:
        b"".join(map(encode_frame, events))

    overheads = []
    for _ in range(WARM_UP + n_steps):
        clock.inside_ns, start_ns = 0, time.perf_counter_ns()
        events = engine.step(send)
        outside_ns = time.perf_counter_ns() - start_ns - clock.inside_ns
        overheads.append(Overhead(outside_ns / 1e3, clock.waited_ns / 1e3))
        if len(events) != n_streams:
            break
    context.close()
    return overheads[WARM_UP:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    n_steps = parser.parse_args().steps
    clock = Clock()
    llama_cpp.llama_decode = clock.decode(llama_cpp.llama_decode)
    Sampler.sample = clock.draw(Sampler.sample)  # type: ignore[method-assign]
    model = Model(ensure_gguf(load_settings().cache_dir))
    for n_streams, n_draft_max in ((1, N_DRAFT_MAX), (1, 0), (8, N_DRAFT_MAX), (8, 0)):
        found = measure(model, clock, n_streams, n_steps, n_draft_max)
        with_drafts = "looking for drafts" if n_draft_max else "without"
        print(f"{n_streams} streams, {with_drafts}:", end="")
        for name, us in zip(Overhead._fields, zip(*found, strict=True), strict=True):
            p90 = statistics.quantiles(us, n=10)[-1]
            print(f" {name} {statistics.median(us):.0f}, 90 % below {p90:.0f}", end=";")
        print(flush=True)
    model.close()


if __name__ == "__main__":
    main()
