"""Measure how fast an engine reads prompts, one after the other, without HTTP.

    python bench/engine_prompts.py FILE.gguf [--sizes 4096 64 16384]

Each is a new prompt of that many tokens, with the earlier ones still in the cache; one of less than
1,024 continues the conversation before it. Prints the time of the first token and the milliseconds
of each step until then, with those of the `llama_decode` call in brackets. Before each, the engine
rests as it does when no request has come for a moment, unless `--at-once`.
"""

import argparse
import math
import random
import time
from pathlib import Path

from peers import checked

from gptoss_local.engine.llama import Context, Model
from gptoss_local.engine.protocol import Finished, Generate, PrefixOptions, Tokens
from gptoss_local.engine.worker.engine import Engine
from gptoss_local.types import ContextParams, SamplingParams

_N_ANSWER = 24
_N_DRAFT_MAX = 16


def make_engine(model: Model, arguments: argparse.Namespace) -> Engine:
    params = ContextParams(
        n_ctx=arguments.ctx,
        n_threads_prefill=arguments.threads,
        n_threads_decode=arguments.threads,
        n_batch=arguments.batch,
        n_seq_max=4,
        n_outputs_max=4 + _N_DRAFT_MAX,
        n_outputs_max_per_seq=1 + _N_DRAFT_MAX,
    )
    return Engine(
        Context(model, params),
        prefixes=PrefixOptions(checkpoint_bytes=512 << 20),
        backend_sampling=True,
        prompt_step_s=arguments.step_s,
    )


def rest(engine: Engine) -> None:
    start_s = time.perf_counter()
    while engine.rest_s() is not None:
        engine.rest()
    print(f"after {1e3 * (time.perf_counter() - start_s):.0f} ms of rest", end="")


def read(engine: Engine, prompt: list[int]) -> list[int]:
    """Read a prompt and print how long it takes; return the answer."""
    start_s = time.perf_counter()
    engine.add_request(
        Generate(
            seq_id=0,
            prompt=prompt,
            sampling=SamplingParams(),
            stop_tokens=[],
            max_tokens=_N_ANSWER,
            drafts=False,
        )
    )
    answer: list[int] = []
    steps: list[str] = []
    later_s: list[float] = []
    first_s, is_over = 0.0, False
    while not is_over:
        begun_s, launched = time.perf_counter(), [math.nan]
        events = checked(engine.step(lambda at=launched: at.append(time.perf_counter())))
        now_s = time.perf_counter()
        answer += [t for event in events if isinstance(event, Tokens) for t in event.tokens]
        is_over = any(isinstance(event, Finished) for event in events)
        if first_s:
            later_s.append(now_s - begun_s)
            continue
        steps.append(f"{1e3 * (now_s - begun_s):.0f} ({1e3 * (launched[-1] - begun_s):.0f})")
        first_s = now_s - start_s if answer else 0.0
    token_s = sorted(later_s)[len(later_s) // 2]
    shown = " ".join(steps[:16])
    print(f"{1e3 * first_s:8.1f} ms, then {1e3 * token_s:.2f} a token; {shown}", flush=True)
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096, 4096, 64, 16384, 64])
    parser.add_argument("--ctx", type=int, default=131_072)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--at-once", action="store_true", help="without a rest before each")
    parser.add_argument("--step-s", type=float, default=0.25)
    arguments = parser.parse_args()
    engine = make_engine(Model(arguments.model), arguments)
    rng = random.Random(0)
    history: list[int] = []
    for n_tokens in arguments.sizes:
        new = [rng.randrange(1000, 190_000) for _ in range(n_tokens)]
        prompt = [*history, *new] if n_tokens < 1024 else new
        print(f"{n_tokens:7} tokens ", end="")
        if not arguments.at_once:
            rest(engine)
        history = [*prompt, *read(engine, prompt)]


if __name__ == "__main__":
    main()
