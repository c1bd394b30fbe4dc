"""Measure what a decode step takes by its rows, every row another random token, sampled on the GPU.

    python bench/row_costs.py FILE.gguf [--streams 32] [--cpu-moe N]

Prints milliseconds of a step with a row of each of so many sequences: without sampling, as
llama-batched-bench decodes; sampled by chains for the plain distribution and for top-k 40, top-p
and min-p; plain where two groups of sequences take turns; and with all rows of one sequence, as a
draft has them.
"""

import argparse
import random
import statistics
import time
from pathlib import Path

import msgspec

from gptoss_local.base.types import ContextParams, ModelParams, SamplingParams
from gptoss_local.engine.llama import Batch, Context, Model, Sampler

_WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 24, 32)
_N_PROMPT = 256
_N_STEPS, _N_SKIPPED = 40, 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--widths", type=int, nargs="+", default=_WIDTHS)
    parser.add_argument("--cpu-moe", type=int, default=0, help="layers with experts in RAM")
    parser.add_argument("--threads", type=int, default=8)
    arguments = parser.parse_args()
    experts = "|".join(str(layer) for layer in range(arguments.cpu_moe))
    overrides = ((rf"blk\.({experts})\.ffn_.*_exps", "CPU"),) if experts else ()
    model = Model(arguments.model, ModelParams(tensor_overrides=overrides))
    params = ContextParams(
        n_ctx=arguments.streams * (_N_PROMPT + 32),
        n_threads_prefill=arguments.threads,
        n_threads_decode=arguments.threads,
        n_seq_max=arguments.streams,
        n_outputs_max=arguments.streams + 15,
        n_outputs_max_per_seq=16,
    )
    context, rng = Context(model, params), random.Random(0)
    samplers: list[Sampler] = []
    for seq_id in range(arguments.streams):
        context.decode(_tokens(rng, _N_PROMPT), position=0, seq_id=seq_id)
    batch = Batch(arguments.streams)

    def bind(sampling: SamplingParams) -> None:
        for sampler in samplers:
            sampler.unbind()
            sampler.close()
        samplers[:] = [
            Sampler(msgspec.structs.replace(sampling, seed=i)) for i in range(arguments.streams)
        ]
        for seq_id, sampler in enumerate(samplers):
            sampler.bind(context, seq_id)

    def step(rows: dict[int, int]) -> float:
        """Decode so many rows of each sequence, and forget them; return seconds."""
        batch.clear()
        for seq_id, n_rows in rows.items():
            batch.extend(_tokens(rng, n_rows), _N_PROMPT, seq_id, n_outputs=n_rows)
        start_s = time.perf_counter()
        context.decode_batch(batch)
        context.synchronize()
        row = 0
        for seq_id, n_rows in rows.items() if samplers else ():
            for _ in range(n_rows):
                samplers[seq_id].sample(context, row)
                row += 1
        seconds = time.perf_counter() - start_s
        for seq_id in rows:
            context.remove(seq_id, _N_PROMPT)
        return seconds

    def median_ms(*steps: dict[int, int]) -> str:
        if not all(steps):
            return "-"
        seconds = [step(steps[i % len(steps)]) for i in range(_N_STEPS)]
        return f"{1e3 * statistics.median(seconds[_N_SKIPPED:]):.2f}"

    widths = [w for w in arguments.widths if w <= arguments.streams]
    unsampled = {w: median_ms(dict.fromkeys(range(w), 1)) for w in widths}
    bind(SamplingParams(top_k=40, top_p=0.95, min_p=0.05))
    filtered = {w: median_ms(dict.fromkeys(range(w), 1)) for w in widths}
    bind(SamplingParams())
    print("| rows | not sampled | sampled | filtered | two groups in turn | a draft |")
    print("|---|---|---|---|---|---|")
    for width in widths:
        first, second = range(width), range(width, 2 * width)
        same = median_ms(dict.fromkeys(first, 1))
        has_two = second.stop <= arguments.streams
        in_turn = median_ms(dict.fromkeys(first, 1), dict.fromkeys(second, 1)) if has_two else "-"
        draft = median_ms({0: width}) if 1 < width <= 16 else "-"
        cells = (unsampled[width], same, filtered[width], in_turn, draft)
        print(f"| {width} | {' | '.join(cells)} |", flush=True)
    model.close()


def _tokens(rng: random.Random, n: int) -> list[int]:
    return [rng.randrange(199_000) for _ in range(n)]


if __name__ == "__main__":
    main()
