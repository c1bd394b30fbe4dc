"""Our time per decode step, outside llama.cpp: planning, filling the batch, events.

    python bench/step_overhead.py [--steps N]

Drives the engine on nano at 1 and 8 streams and takes from every step the time inside
`llama_decode` and `llama_sampler_sample`. Prints microseconds per step: median, 90th percentile.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import llama_cpp

from gptoss_local.engine.engine import Engine
from gptoss_local.engine.protocol import N_DRAFT_MAX, Generate, encode_frame
from gptoss_local.llama import Context, ContextParams, Model
from gptoss_local.nano import ensure_gguf
from gptoss_local.settings import load_settings
from gptoss_local.types import SamplingParams

WARM_UP = 20
inside_ns = 0


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        global inside_ns
        start_ns = time.perf_counter_ns()
        result = function(*arguments)
        inside_ns += time.perf_counter_ns() - start_ns
        return result

    return call


def measure(model: Model, n_streams: int, n_steps: int, n_draft_max: int) -> list[float]:
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
    global inside_ns
    outside_us = []
    for _ in range(WARM_UP + n_steps):
        inside_ns, start_ns = 0, time.perf_counter_ns()
        events = engine.step()
        b"".join(map(encode_frame, events))
        outside_us.append((time.perf_counter_ns() - start_ns - inside_ns) / 1e3)
        if len(events) != n_streams:
            break
    context.close()
    return outside_us[WARM_UP:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    n_steps = parser.parse_args().steps
    sample = timed(llama_cpp.llama_sampler_sample)
    llama_cpp.llama_decode = timed(llama_cpp.llama_decode)
    # Nothing repeats, so that drafts are looked for and not found; they have a bench of their own.
    llama_cpp.llama_sampler_sample = lambda *arguments: random.randrange(sample(*arguments) + 9999)
    model = Model(ensure_gguf(load_settings().cache_dir))
    for n_streams, n_draft_max in ((1, N_DRAFT_MAX), (1, 0), (8, N_DRAFT_MAX), (8, 0)):
        us = measure(model, n_streams, n_steps, n_draft_max)
        p90 = statistics.quantiles(us, n=10)[-1]
        with_drafts = "looking for drafts" if n_draft_max else "without"
        median = statistics.median(us)
        print(f"{n_streams} streams, {with_drafts}: {median:.0f} us, 90 % below {p90:.0f} us")
    model.close()


if __name__ == "__main__":
    main()
