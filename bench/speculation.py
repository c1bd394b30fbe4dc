"""Measure what drafts gain and cost: an edit of a 300-line file, and free text.

    python bench/speculation.py [--model FILE.gguf] [--rounds N] [--temperature T]
    python bench/speculation.py --greedy [--model FILE.gguf]

The answers are forced: every token is computed and sampled as usual, then replaced by that of a
script, so that a model with random weights serves as well as a real one. The edit's script is the
prompt's file with one line changed; the free text is this project's documentation. Runs with and
without drafts alternate in one process. Prints medians of tokens per second.

With `--greedy`, a server with drafts and then one without answer the same eight prompts of random
words at temperature 0, as the model likes. Prints tokens per second of each answer, and exits with
1 if drafts cost one of them more than 2 %.
"""

import os

os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # as the engine has it; read when OpenMP loads

import argparse
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from peers import ONE_GPU, check, checked, frames, gptoss, text, whole_words

from gptoss_local.base.settings import load_settings
from gptoss_local.base.types import ContextParams, SamplingParams
from gptoss_local.engine.llama import Context, Model, Sampler, has_gpu
from gptoss_local.engine.protocol import N_DRAFT_MAX, Finished, Generate
from gptoss_local.engine.worker.engine import Engine
from gptoss_local.harmony import Vocabulary, load_vocabulary
from gptoss_local.models.nano import ensure_gguf

ROOT = Path(__file__).resolve().parents[1]
N_FREE = 400  # tokens of free text in each round
N_GREEDY, N_PROMPTS = 400, 8  # tokens of an answer at temperature 0


def edit_task(vocabulary: Vocabulary, number: int) -> tuple[list[int], list[int]]:
    """Return a prompt with a file of 300 lines, and the file with one change."""
    source = (ROOT / "gptoss_local" / "server" / "dialects" / "ollama" / "request.py").read_text()
    lines = (source + (ROOT / "gptoss_local" / "harmony" / "render.py").read_text()).splitlines()[
        :300
    ]
    changed = list(lines)
    changed[140] = f"    # change {number}: {changed[140].strip()}"
    ask = "\n".join(lines) + f"\n\nComment on line 141 ({number}) and write the whole file."
    return vocabulary.encode(ask), vocabulary.encode("\n".join(changed))


def free_text(vocabulary: Vocabulary, number: int) -> tuple[list[int], list[int]]:
    """Return a question, and prose that is in neither it nor another round."""
    pages = sorted((ROOT / "docs").glob("*.md"))
    prose = vocabulary.encode("\n".join(page.read_text() for page in pages))
    question = vocabulary.encode((ROOT / "README.md").read_text())
    return question, prose[number * N_FREE : (number + 1) * N_FREE]


@contextmanager
def forced(script: Iterable[int]) -> Iterator[None]:
    """Replace every sampled token with the next one of the script."""
    sample, left = Sampler.sample, iter(script)

    def sample_and_replace(self: Sampler, context: Context, row: int = -1) -> int:
        sample(self, context, row)
        return next(left)

    Sampler.sample = sample_and_replace  # type: ignore[method-assign]
    try:
        yield
    finally:
        Sampler.sample = sample  # type: ignore[method-assign]


def run(engine: Engine, seq_id: int, prompt: list[int], script: list[int], t: float) -> Finished:
    request = Generate(
        seq_id=seq_id, prompt=prompt, sampling=SamplingParams(temperature=t), stop_tokens=[],
        max_tokens=len(script),
    )  # fmt: skip
    with forced(script):
        engine.add_request(request)
        while True:
            for event in checked(engine.step()):
                if isinstance(event, Finished):
                    return event


def engine_for(model: Model, n_draft_max: int, n_threads: int) -> Engine:
    params = ContextParams(
        n_ctx=16_384, n_threads_prefill=n_threads, n_threads_decode=n_threads, n_seq_max=4,
        n_outputs_max=4 + n_draft_max, n_outputs_max_per_seq=1 + n_draft_max,
    )  # fmt: skip
    return Engine(Context(model, params), backend_sampling=has_gpu())


def greedy(model: Path) -> int:
    """Compare answers at temperature 0; each server answers another prompt first."""
    with_drafts, without = (greedy_rates(model, setting) for setting in ("true", "false"))
    ratios = [ours / plain for ours, plain in zip(with_drafts, without, strict=True)]
    for ours, plain, ratio in zip(with_drafts, without, ratios, strict=True):
        print(f"{ours:.1f} tokens/s with drafts, {plain:.1f} without: {ratio:.3f}")
    print(f"median {statistics.median(ratios):.3f}, least {min(ratios):.3f}, wanted >= 0.98")
    return int(min(ratios) < 0.98)


def greedy_rates(model: Path, speculation: str) -> list[float]:
    words, rates = whole_words(model), []
    settings = {"GPTOSS_NUM_PARALLEL": "1", "GPTOSS_CONTEXT_LENGTH": "16384"}
    with gptoss(model, ONE_GPU | settings | {"GPTOSS_SPECULATION": speculation}) as (url, name):
        client = httpx.Client(base_url=url, timeout=600, trust_env=False)
        for seed in range(100, 101 + N_PROMPTS):
            options = {"temperature": 0.0, "num_predict": N_GREEDY}
            body = {"model": name, "prompt": text(words, 60, seed), "raw": True, "options": options}
            with client.stream("POST", "/api/generate", json=body) as response:
                *_, last = frames(response)
            rates.append(last["eval_count"] / last["eval_duration"] * 1e9)
        metrics = check(client.get("/metrics")).text.splitlines()
        print(
            *(
                line
                for line in metrics
                if "_drafted_tokens_total{" in line or "_accepted_tokens_total{" in line
            ),
            sep="\n",
        )
    return rates[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a GGUF; the embedded nano when not given")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--greedy", action="store_true")
    arguments = parser.parse_args()
    cache = load_settings().cache_dir
    path = arguments.model or ensure_gguf(cache)
    if arguments.greedy:
        sys.exit(greedy(path))
    vocabulary = load_vocabulary()
    model = Model(path)
    start_s = time.perf_counter()
    engines = {n: engine_for(model, n, arguments.threads) for n in (0, N_DRAFT_MAX)}
    costs = engines[N_DRAFT_MAX].step_costs
    print(f"measured in {time.perf_counter() - start_s:.2f} s, ms by rows of a step:",
          {width: round(1e3 * s, 2) for width, s in costs.drafts.items()},
          f"and {1e3 * costs.switch_s:.2f} for another width and back")  # fmt: skip
    for name, task in (("edit", edit_task), ("free text", free_text)):
        rates: dict[int, list[float]] = {n: [] for n in engines}
        for number in range(arguments.rounds):
            prompt, script = task(vocabulary, number)
            for n_draft_max, engine in engines.items():
                ended = run(engine, number, prompt, script, arguments.temperature)
                seconds = ended.usage.decode_ns * 1e-9
                rates[n_draft_max].append((len(script) - 1) / seconds)
        without, with_drafts = (statistics.median(r) for r in rates.values())
        print(
            f"{name}: {len(prompt)} + {len(script)} tokens; {without:.0f} tok/s without drafts, "
            f"{with_drafts:.0f} with, ratio {with_drafts / without:.2f}; "
            f"{ended.usage.n_accepted} of {ended.usage.n_drafted} right", flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    main()
