"""What sampling on the device adds to a decode step.

    python bench/device_sampling.py FILE.gguf [--rows 1 8 16] [--idle 7]

For each number of rows, of as many sequences or as a draft of one sequence: the median milliseconds
of a step, and of its `llama_decode` call alone, which returns before a device is done. "logits" is
what llama-bench does: no sampler, and the logits copied to the host. "all" is a chain as llama.cpp
makes it, which copies logits and probabilities of each row; ours copies the token alone. `--idle`
adds sequences that have such a chain and nothing to do.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import llama_cpp

from gptoss_local.llama import Batch, Context, ContextParams, Model, Sampler
from gptoss_local.types import SamplingParams

N_PAST = 512
CHAINS = {
    "all": SamplingParams(seed=1),
    "token": SamplingParams(seed=1),
    "greedy": SamplingParams(temperature=0),
    "top_p": SamplingParams(top_p=0.95, seed=1),
}


class Step(NamedTuple):
    decode_ms: float
    total_ms: float


def measure(
    model: Model, chain: str, n_rows: int, n_steps: int, n_idle: int, *, is_draft: bool
) -> Step:
    """Median times of `n_steps` steps behind `N_PAST` tokens."""
    n_seq = 1 if is_draft else n_rows
    params = ContextParams(
        n_ctx=(n_seq + n_idle) * (N_PAST + 256),
        n_threads_prefill=8,
        n_threads_decode=8,
        n_batch=N_PAST,
        n_seq_max=n_seq + n_idle,
        n_outputs_max=max(n_rows, n_seq + n_idle),
        n_outputs_max_per_seq=n_rows // n_seq,
    )
    context = Context(model, params)
    samplers = [Sampler(CHAINS[chain]) for _ in range(n_seq + n_idle)] if chain in CHAINS else []
    for seq_id, sampler in enumerate(samplers):
        if chain == "all":
            llama_cpp.llama_sampler_chain_remove(sampler._pointer, 1)
        if not sampler.bind(context, seq_id):
            raise SystemExit(f"{chain} does not run on the device")
    for seq_id in range(n_seq):
        context.decode(list(range(1000, 1000 + N_PAST)), position=0, seq_id=seq_id)
    batch = Batch(n_rows)

    def step(position: int) -> Step:
        batch.clear()
        for seq_id in range(n_seq):
            n = n_rows // n_seq
            batch.extend([1000 + position] * n, position, seq_id, n_outputs=n)
        start = time.perf_counter()
        context.decode_batch(batch)
        decoded = time.perf_counter()
        if samplers:
            for row in range(n_rows):
                samplers[row * n_seq // n_rows].sample(context, row)
        else:
            context.synchronize()
        end = time.perf_counter()
        if is_draft:
            context.remove(0, position)
        return Step((decoded - start) * 1e3, (end - start) * 1e3)

    at: Callable[[int], int] = (lambda i: N_PAST) if is_draft else (lambda i: N_PAST + i)
    steps = [step(at(i)) for i in range(n_steps)][n_steps // 4 :]
    context.close()
    return Step(*(statistics.median(times) for times in zip(*steps, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 16])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--idle", type=int, default=0)
    arguments = parser.parse_args()
    model = Model(arguments.model)
    print("rows  kind       chain    decode ms  step ms")
    for n_rows in arguments.rows:
        for is_draft in (False, True) if n_rows > 1 else (False,):
            for chain in ("logits", *CHAINS):
                step = measure(
                    model, chain, n_rows, arguments.steps, arguments.idle, is_draft=is_draft
                )
                kind = "draft" if is_draft else "sequences"
                print(
                    f"{n_rows:4}  {kind:9}  {chain:7}  {step.decode_ms:9.3f}  {step.total_ms:7.3f}"
                )


if __name__ == "__main__":
    main()
