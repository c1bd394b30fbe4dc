"""What log-probabilities, penalties and biases cost: nano, greedy, sampled on the CPU.

    python bench/logprobs.py [--rounds N]

Runs the same answer with and without each of them, in turns, on one engine: alone, and as the one
neighbour of a plain answer. Prints medians of milliseconds a step.
"""

import argparse
import statistics
import time
from itertools import count
from typing import Any

from gptoss_local.chat import Vocabulary
from gptoss_local.engine.engine import Engine
from gptoss_local.engine.protocol import Generate, Tokens
from gptoss_local.llama import Context, ContextParams, Model
from gptoss_local.nano import ensure_gguf
from gptoss_local.settings import load_settings
from gptoss_local.store import read_tokens
from gptoss_local.types import Penalties, SamplingParams

PROMPT = "<|start|>user<|message|>Count from 1 to 60.<|end|><|start|>assistant"
BIASED = SamplingParams(temperature=0, logit_bias=((12650, -100.0),))
PENALIZED = SamplingParams(temperature=0, penalties=Penalties(presence=1e-6))  # the same answer
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "logprobs": {"n_logprobs": 0},
    "top_logprobs 20": {"n_logprobs": 20},
    "logit_bias": {"sampling": BIASED},
    "penalties": {"sampling": PENALIZED},
}


def step_ms(engine: Engine, requests: list[Generate]) -> list[float]:
    """Milliseconds of each step that brought a token of every request."""
    elapsed: list[float] = []
    for request in requests:
        engine.add_request(request)
    while engine.has_work:
        start_ns = time.perf_counter_ns()
        events = engine.step()
        ms = (time.perf_counter_ns() - start_ns) / 1e6
        if sum(isinstance(event, Tokens) for event in events) == len(requests):
            elapsed.append(ms)
    return elapsed[1:]  # without the prefill


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    n_rounds = parser.parse_args().rounds
    cache_dir = load_settings().cache_dir
    path = ensure_gguf(cache_dir)
    vocabulary = Vocabulary.from_model(read_tokens(path), cache_dir)
    model = Model(path)
    params = ContextParams(n_ctx=2048, n_threads_prefill=2, n_threads_decode=1, n_seq_max=2)
    engine, seq_ids = Engine(Context(model, params)), count(1)
    plain: dict[str, Any] = {
        "prompt": vocabulary.encode_tagged(PROMPT),
        "sampling": SamplingParams(temperature=0),
        "stop_tokens": [],
        "max_tokens": 100,
        "drafts": False,
    }
    measured: dict[tuple[str, int], list[float]] = {}
    for _ in range(n_rounds):
        for name, fields in SETTINGS.items():
            for n_neighbours in (0, 1):
                kinds = [plain | fields, *[plain] * n_neighbours]
                requests = [Generate(seq_id=next(seq_ids), **kind) for kind in kinds]
                measured.setdefault((name, n_neighbours), []).extend(step_ms(engine, requests))
    for name in SETTINGS:
        alone, beside = (statistics.median(measured[name, n]) for n in (0, 1))
        print(f"{name:16} alone {alone:.2f} ms, beside a plain answer {beside:.2f} ms")
    model.close()


if __name__ == "__main__":
    main()
