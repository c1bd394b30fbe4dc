"""Measure many answers at the same time, with and without turns, without HTTP.

    python bench/streams.py FILE.gguf [--streams 8 9 12 16 32]

Prints the tokens a second of all together and the 95th percentile of the milliseconds between two
tokens of an answer: with all streams in every step, and with as many as `StepCosts.n_streams` says.
Both engines work in turn in one process.
"""

import argparse
import random
import statistics
import time
from pathlib import Path

from peers import checked

from gptoss_local.base.types import ContextParams, SamplingParams
from gptoss_local.engine.llama import Context, Model, has_gpu
from gptoss_local.engine.protocol import Generate, Tokens
from gptoss_local.engine.worker.costs import StepCosts
from gptoss_local.engine.worker.engine import Engine

_N_PROMPT, _N_ANSWER, _N_ROUNDS = 96, 96, 3


def run(engine: Engine, n_streams: int, rng: random.Random) -> tuple[float, float]:
    """Return tokens a second of all and the 95th percentile of seconds between tokens."""
    for seq_id in range(n_streams):
        engine.add_request(
            Generate(
                seq_id=seq_id,
                prompt=[rng.randrange(1000, 190_000) for _ in range(_N_PROMPT)],
                sampling=SamplingParams(),
                stop_tokens=[],
                max_tokens=_N_ANSWER,
                drafts=False,
            )
        )
    last_s: dict[int, float] = {}
    gaps_s: list[float] = []
    n_tokens, start_s = 0, 0.0
    while engine.has_work:
        events = checked(engine.step())
        now_s = time.perf_counter()
        for event in events:
            if isinstance(event, Tokens):
                if event.seq_id in last_s:
                    gaps_s.append(now_s - last_s[event.seq_id])
                last_s[event.seq_id] = now_s
                n_tokens += len(event.tokens)
        if not start_s or len(last_s) < n_streams:  # prompts are still read
            n_tokens, start_s = 0, now_s
            gaps_s.clear()
    return n_tokens / (now_s - start_s), statistics.quantiles(gaps_s, n=20)[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--streams", type=int, nargs="+", default=[8, 9, 12, 16, 24, 32])
    parser.add_argument("--threads", type=int, default=8)
    arguments = parser.parse_args()
    n_most = max(arguments.streams)
    params = ContextParams(
        n_ctx=n_most * (_N_PROMPT + _N_ANSWER + 64),
        n_threads_prefill=arguments.threads,
        n_threads_decode=arguments.threads,
        n_seq_max=n_most,
        n_outputs_max=n_most + 15,
        n_outputs_max_per_seq=16,
    )
    model, rng = Model(arguments.model), random.Random(0)
    engine = Engine(Context(model, params), backend_sampling=has_gpu())
    times = engine.step_costs.times()
    if times is None or not times.streams:
        raise SystemExit("steps of many streams are measured on a GPU that is fast enough alone")
    shown = ", ".join(f"{n}: {1e3 * s:.1f}" for n, s in times.streams)
    print(f"ms a step by streams: {shown}; a turn {1e3 * times.turn_s:.1f}\n")
    print("| streams | all in a step, tokens/s | p95, ms | in turn | tokens/s | p95, ms |")
    print("|---|---|---|---|---|---|")
    choose = StepCosts.n_streams
    for n_streams in arguments.streams:
        found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
        widths: set[int] = set()
        for _ in range(_N_ROUNDS):
            for in_turn in (False, True):
                StepCosts.n_streams = choose if in_turn else _all  # type: ignore[method-assign]
                found[in_turn].append(run(engine, n_streams, rng))
                widths.add(choose(engine.step_costs, n_streams))
        plain, plain_s = map(statistics.median, zip(*found[False], strict=True))
        turns, turns_s = map(statistics.median, zip(*found[True], strict=True))
        print(
            f"| {n_streams} | {plain:.0f} | {1e3 * plain_s:.1f} "
            f"| {' or '.join(map(str, sorted(widths)))} | {turns:.0f} | {1e3 * turns_s:.1f} |",
            flush=True,
        )


def _all(costs: StepCosts, n: int) -> int:
    return n


if __name__ == "__main__":
    main()
