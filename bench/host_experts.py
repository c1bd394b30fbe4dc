"""Measure ways to hold experts in RAM, and what else a prompt or a token waits for.

    python bench/host_experts.py FILE.gguf [--free-gib 7.5] [--modes mmap pinned none] [--batch N]

In one process, with the plan that gptoss makes and bare llama.cpp: seconds to load, prompts of
4,096 tokens three times over, and the median of 64 further tokens. Then, in the last mode, the same
prompt with earlier ones in the cache, and prompts and tokens in our engine.
GGML_OP_OFFLOAD_MIN_BATCH has its usual effect: with 1, single tokens are also computed with experts
that come to the GPU; with 2 to 4, only their biases are (`gptoss_local/machine/plan/measured.py`).
FILE should be in the page cache; it may be random (`synth_gguf.py`).
"""

import argparse
import statistics
import time
from itertools import pairwise
from pathlib import Path

import msgspec
from offload import ballast
from peers import checked

from gptoss_local.engine.llama import Context, Model, has_gpu
from gptoss_local.engine.protocol import Generate, PrefixOptions, Tokens
from gptoss_local.engine.worker.engine import Engine
from gptoss_local.machine.plan.result import Plan
from gptoss_local.runner.planning import plan_load
from gptoss_local.settings import load_settings
from gptoss_local.types import ContextParams, LoadMode, ModelParams, SamplingParams

N_PROMPT, N_TOKENS, N_ROUNDS = 4096, 64, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--free-gib", type=float, help="all that is free when not given")
    parser.add_argument("--modes", nargs="+", default=["mmap", "pinned", "none"])
    parser.add_argument("--batch", type=int, help="tokens of a step; as planned when not given")
    arguments = parser.parse_args()
    with ballast(arguments.free_gib):
        plan = plan_load(arguments.model, load_settings(), None)
        n_batch = arguments.batch or plan.shape.n_batch
        print(f"{len(plan.placement.host_experts)} layers of experts in RAM, batches of {n_batch}")
        for mode in arguments.modes:
            model = load(arguments.model, plan, mode)
            params = msgspec.structs.replace(plan.context_params, n_batch=n_batch)
            alone(model, params, mode)
            if mode == arguments.modes[-1]:
                beside_others(model, params)
                in_the_engine(model, params)
            model.close()


def load(path: Path, plan: Plan, mode: LoadMode) -> Model:
    start_s = time.perf_counter()
    overrides = plan.placement.tensor_overrides()
    n_gpu_layers = plan.placement.n_gpu_layers
    model = Model(
        path, ModelParams(n_gpu_layers=n_gpu_layers, tensor_overrides=overrides, load_mode=mode)
    )
    print(f"{mode}: loaded in {time.perf_counter() - start_s:.1f} s")
    return model


def prompt(seed: int) -> list[int]:
    """Make a prompt of different tokens, which choose different experts."""
    return [1000 + (seed + 7919 * i) % 150_000 for i in range(N_PROMPT)]


def read(context: Context, seed: int, seq_id: int = 0) -> float:
    """Return the milliseconds that a prompt takes."""
    tokens, start_s = prompt(seed), time.perf_counter()
    for i in range(0, N_PROMPT, context.n_batch):
        context.decode(tokens[i : i + context.n_batch], position=i, seq_id=seq_id)
    context.synchronize()
    return 1e3 * (time.perf_counter() - start_s)


def alone(model: Model, sizes: ContextParams, mode: str) -> None:
    context = Context(model, sizes)
    prompts = []
    for seed in range(N_ROUNDS):
        context.remove(0)
        prompts.append(read(context, seed))
    tokens = []
    for i in range(N_TOKENS):
        start_s = time.perf_counter()
        context.decode([1000 + 37 * i], position=N_PROMPT + i)
        context.synchronize()
        tokens.append(1e3 * (time.perf_counter() - start_s))
    median = statistics.median(tokens)
    print(f"{mode}: prompts {rounded(prompts)} ms, a token {median:.2f} ms", flush=True)
    context.close()


def beside_others(model: Model, sizes: ContextParams) -> None:
    context = Context(model, sizes)
    prompts = [read(context, seed, seq_id=seed) for seed in range(N_ROUNDS)]
    print(f"each with those before it in the cache: {rounded(prompts)} ms", flush=True)
    context.close()


def in_the_engine(model: Model, sizes: ContextParams) -> None:
    context = Context(model, sizes)
    prefixes = PrefixOptions(checkpoint_bytes=2**30)
    engine = Engine(context, prefixes=prefixes, backend_sampling=has_gpu())
    first, tokens, sampling = [], [], SamplingParams(temperature=1.0)
    for seed in range(N_ROUNDS):
        request = Generate(
            seq_id=seed, prompt=prompt(seed), sampling=sampling, stop_tokens=[],
            max_tokens=N_TOKENS, drafts=False,
        )  # fmt: skip
        seen_s = [time.perf_counter()]
        engine.add_request(request)
        while engine.has_work:
            if any(isinstance(event, Tokens) for event in checked(engine.step())):
                seen_s.append(time.perf_counter())
        each, *others = (1e3 * (b - a) for a, b in pairwise(seen_s))
        first.append(each)
        tokens += others
    median = statistics.median(tokens)
    print(f"in our engine: first tokens {rounded(first)} ms, a token {median:.2f} ms", flush=True)
    context.close()


def rounded(values: list[float]) -> str:
    return " ".join(f"{value:.0f}" for value in values)


if __name__ == "__main__":
    main()
