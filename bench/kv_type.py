"""Compare types of cached keys and values: speed, memory, and how far logits are from f16's.

    python bench/kv_type.py FILE.gguf [--vram 14GiB] [--deep 65536] [--kl]

For each type, in one process over the same weights: tokens a second of a prompt of 4,096 tokens and
of an answer after it, milliseconds of a step of four tokens, as a draft of three is, and the same
two after `--deep` tokens. On a GPU, also what context and steps took of VRAM, and what the plan
counts for that. Then the context that fits with all weights into `--vram`.

With `--kl`, also the Kullback-Leibler divergence from f16, in nats, of the answers of
`dense_types.py` and of the last 256 tokens of a long text. The row "f16 in parts" is f16 itself,
read in smaller batches, which is what rounding alone does. Random weights say nothing here.
"""

import argparse
import json
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import get_args

import msgspec
import numpy as np
from dense_types import Logits, log_softmax, nano_prompts

from gptoss_local.engine.llama import Batch, Context, Model, has_gpu
from gptoss_local.harmony import load_vocabulary
from gptoss_local.machine.nvidia import read_gpus
from gptoss_local.machine.plan.facts import ModelFacts, read_facts
from gptoss_local.machine.plan.memory import (
    Shape,
    all_cache_bytes,
    compute_bytes,
    f16_cache_bytes,
)
from gptoss_local.machine.plan.placement import iter_placements
from gptoss_local.quantities import parse_memory
from gptoss_local.types import CacheType, KvType, ModelParams

MIB = 2**20
N_PROMPT, N_ANSWER, N_DRAFT, N_DRAFTS = 4096, 64, 3, 16
N_KL = 256  # rows of logits at a time, and the tokens of the long text that are compared
N_TEXT = 3072


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--vram", default="14GiB", help="of a card that a context is to fit into")
    parser.add_argument("--deep", type=int, default=65_536 if has_gpu() else 0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--kl", action="store_true", help="compare logits, too")
    parser.add_argument("--threads", type=int, default=1, help="of the CPU")
    arguments = parser.parse_args()
    facts = read_facts(arguments.model)
    model = Model(arguments.model, ModelParams(load_mode="none" if has_gpu() else "auto"))
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in get_args(KvType)}
    for i in range(arguments.rounds):
        for kind, rows in found.items():
            deep = arguments.deep if i == 0 else 0
            rows.append(measure(model, facts, kind, deep=deep, n_threads=arguments.threads))
    for kind, rows in found.items():
        print(json.dumps({"kv_type": kind} | best(rows)), flush=True)
    if arguments.kl:
        for row in divergences(model, arguments.model, arguments.threads):
            print(json.dumps(row), flush=True)
    for kind in found:
        n_ctx = fitting_ctx(facts, kind, parse_memory(arguments.vram, "--vram"))
        print(json.dumps({"kv_type": kind, "vram": arguments.vram, "n_ctx_in_vram": n_ctx}))
    model.close()


def shape_of(kind: CacheType, n_ctx: int) -> Shape:
    n_batch = 2048 if has_gpu() else 512
    return Shape(n_ctx=n_ctx, n_batch=n_batch, n_seq=4, n_outputs=4 + 15, cache_type=kind)


def measure(
    model: Model, facts: ModelFacts, kind: CacheType, *, deep: int, n_threads: int
) -> dict[str, float]:
    shape = shape_of(kind, max(deep, N_PROMPT) + 1024)
    free_bytes = vram_free_bytes()
    context = Context(
        model, shape.context_params(n_threads_prefill=n_threads, n_threads_decode=n_threads)
    )
    context.warm_up()
    context.synchronize()
    figures = {"prompt_tok_s": N_PROMPT / read(context, 0, N_PROMPT)}
    figures |= after(context, N_PROMPT)
    if deep:
        read(context, N_PROMPT, deep)
        figures |= {f"deep_{name}": value for name, value in after(context, deep).items()}
    if has_gpu():
        figures["vram_mib"] = (free_bytes - vram_free_bytes()) / MIB
        predicted = all_cache_bytes(facts, shape) + compute_bytes(facts, shape)
        figures["planned_mib"] = (predicted + f16_cache_bytes(facts, shape)) / MIB
    figures["cache_mib"] = all_cache_bytes(facts, shape) / MIB
    context.close()
    return figures


def vram_free_bytes() -> int:
    return next((gpu.free_bytes for gpu in read_gpus()[1]), 0)


def tokens(start: int, end: int) -> list[int]:
    """Return different tokens, which choose different experts."""
    return [1000 + 7919 * i % 150_000 for i in range(start, end)]


def read(context: Context, start: int, end: int) -> float:
    """Prefill the positions `start` .. `end` - 1 and return the seconds."""
    start_s = time.perf_counter()
    for at in range(start, end, context.n_batch):
        context.decode(tokens(at, min(at + context.n_batch, end)), position=at)
    context.synchronize()
    return time.perf_counter() - start_s


def after(context: Context, position: int) -> dict[str, float]:
    """Time single tokens and steps of four after `position` tokens, and drop them again."""
    answer_s = steps(context, position, N_ANSWER, 1)
    draft_s = steps(context, position, N_DRAFTS, 1 + N_DRAFT)
    return {"answer_tok_s": 1 / answer_s, "draft_step_ms": 1e3 * draft_s}


def steps(context: Context, position: int, n_steps: int, n_rows: int) -> float:
    """Return the median seconds of a step of `n_rows` tokens of one sequence."""
    batch, found = Batch(n_rows), []
    for i in range(n_steps):
        at = position + i * n_rows
        start_s = time.perf_counter()
        batch.clear()
        batch.extend(tokens(at, at + n_rows), at, 0, n_outputs=n_rows)
        context.decode_batch(batch)
        context.synchronize()
        found.append(time.perf_counter() - start_s)
    context.remove(0, position)
    return float(np.median(found))


def best(rows: list[dict[str, float]]) -> dict[str, float]:
    """Return the best figure of all rounds: the others were disturbed."""
    found: dict[str, float] = {}
    for name in rows[0]:
        values = [row[name] for row in rows if name in row]
        value = max(values) if name.endswith(("tok_s", "mib")) else min(values)
        found[name] = float(f"{value:.4g}")
    return found


def divergences(model: Model, path: Path, n_threads: int) -> Iterator[dict[str, object]]:
    vocabulary = load_vocabulary()
    answers = nano_prompts(vocabulary)
    text = vocabulary.encode("\n".join(page.read_text("utf-8") for page in pages()))[:N_TEXT]
    expected: dict[str, list[Logits]] = {}
    cases: list[tuple[str, CacheType, int]] = [("f16", "f16", N_KL), ("f16 in parts", "f16", 96)]
    cases += [(kind, kind, N_KL) for kind in get_args(KvType) if kind != "f16"]
    for name, kind, n_batch in cases:
        row: dict[str, object] = {"kv_type": name}
        for what, prompts in (("answers", answers), ("text", [text])):
            rows = logits(model, kind, n_batch, n_threads, prompts)
            found = [log_softmax(each) for each in rows]
            wanted = expected.setdefault(what, found)
            row |= {f"{what}_{key}": value for key, value in compare(wanted, found).items()}
        if name != "f16":
            yield row


def compare(expected: list[Logits], found: list[Logits]) -> dict[str, float]:
    pairs = list(zip(expected, found, strict=True))
    kl = np.concatenate([(np.exp(p) * (p - q)).sum(axis=1) for p, q in pairs])
    same = np.concatenate([p.argmax(axis=1) == q.argmax(axis=1) for p, q in pairs])
    return {
        "n": len(kl),
        "kl_mean": float(f"{kl.mean():.2g}"),
        "kl_max": float(f"{kl.max():.2g}"),
        "same_top_1": round(float(same.mean()), 4),
    }


def pages() -> list[Path]:
    return sorted((Path(__file__).parents[1] / "docs").glob("*.md"))


def logits(
    model: Model, kind: CacheType, n_batch: int, n_threads: int, prompts: list[list[int]]
) -> Iterator[np.ndarray]:
    """Yield the logits of the last `N_KL` positions of each prompt, or of all."""
    shape = shape_of(kind, N_TEXT + 256)
    shape = msgspec.structs.replace(shape, n_batch=n_batch, n_outputs=n_batch)
    context = Context(
        model, shape.context_params(n_threads_prefill=n_threads, n_threads_decode=n_threads)
    )
    batch = Batch(n_batch)
    for prompt in prompts:
        context.remove(0)
        n_before = max(0, len(prompt) - N_KL)
        starts = [*range(0, n_before, n_batch), *range(n_before, len(prompt), n_batch), len(prompt)]
        rows = []
        for start, end in pairwise(starts):
            batch.clear()
            n_outputs = end - start if start >= n_before else 1
            last = batch.extend(prompt[start:end], start, 0, n_outputs=n_outputs)
            context.decode_batch(batch)
            if start >= n_before:
                rows += [context.logits(row).copy() for row in range(last + 1)]
        yield np.array(rows)
    context.close()


def fitting_ctx(facts: ModelFacts, kind: CacheType, vram_bytes: int) -> int:
    """Return the most tokens of context with which a card of this size holds all weights."""
    budget = vram_bytes - 512 * MIB
    for n_ctx in range(facts.n_ctx_train, 0, -256):
        shape = msgspec.structs.replace(shape_of(kind, n_ctx), n_batch=512)
        if next(iter_placements(facts, shape, [budget], n_cpu_moe=0), None):
            return n_ctx
    return 0


if __name__ == "__main__":
    main()
