"""Check that the engine computes correctly on this GPU, and compare its speed with llama.cpp's.

    python bench/gpu_check.py FOLDER_OF_LLAMA_CPP [--size 120b] [--model FILE.gguf]

FOLDER_OF_LLAMA_CPP has llama.cpp's programs, of the build that gptoss uses. Takes at most ten
minutes on one GPU, prints a table, and exits with 1 if anything is wrong. Run it before calling a
change of `engine/`, `llama/` or `plan/` done. Without --model, a file of the size's shapes with
random weights is written (`synth_gguf.py`; 20b: 12 GB, 120b: 63 GB).

- Company: rounds of 1 to 16 answers at the same time, half of them of a lower priority, after
  pauses of 0.5 to 6 seconds, at temperature 1. All must be complete. With nano, an answer may
  differ from what the same seed gives without company only at a token that is also likely there,
  or that rounding alone may have drawn. Drawn tokens must be as likely as the model's own draws are
  on average: `z` is how many standard deviations they are off.
- Reuse: the logits after a long prompt whose beginning was cached, against one plain prefill.
- Places: the same with experts in RAM, and on two GPUs where there are two.
- Adapter: the logits of nano with a LoRA of attention, experts and head, against the CPU's, which
  tests compare with merged weights.
- Speed: see `gpu_speed.py`.
"""

import argparse
import json
import math
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from gguf import GGUFWriter
from gpu_speed import compare
from peers import (
    ONE_GPU,
    SAMPLING,
    check,
    frames,
    gptoss,
    text,
    vocabulary_of,
    whole_words,
)
from report import Report
from synth_gguf import random_model

from gptoss_local.base.settings import load_settings
from gptoss_local.base.types import ContextParams, ModelParams, SamplingParams
from gptoss_local.engine.llama import Batch, Context, Model, has_gpu
from gptoss_local.engine.llama.sampler import is_near
from gptoss_local.machine.hardware import read_machine
from gptoss_local.models.nano import ensure_gguf
from gptoss_local.models.store import read_info

PARTS = ("nano", "size", "speed")
STREAMS = (1, 4, 8, 12, 16)  # for 12 places
PAUSES_S = (0.5, 2.6, 6.0)
N_ANSWER = 64
LIKELY = 1e-4
MAX_Z = 5.0
MAX_ERROR = 0.25  # root mean square of differences of log-probabilities
N_SCORED = 24  # answers
LOGPROBS = {"logprobs": True, "top_logprobs": 20, "stream": False, "raw": True}


@dataclass
class Drawn:
    """An answer's tokens, with those of its prompt."""

    seed: int
    tokens: list[int]
    n_prompt: int

    @property
    def answer(self) -> list[int]:
        return self.tokens[self.n_prompt :]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", choices=("20b", "120b"), default="20b")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--work", type=Path, default=Path("/dev/shm"), help="for the random file")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts of it")
    parser.add_argument("--rounds", type=int, default=2, help="of speeds, after one to warm up")
    arguments = parser.parse_args()
    gpus = read_machine(arguments.work).usable_gpus
    if not gpus or not has_gpu():
        raise SystemExit("llama.cpp finds no GPU here")
    print(f"{', '.join(gpu.name for gpu in gpus)}; {arguments.size}")
    report = Report()
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        model = arguments.model or random_model(arguments.size, Path(work))
        if "nano" in arguments.only:
            nano = ensure_gguf(load_settings().cache_dir)
            company(report, "nano", nano, nano_prompts, is_real=True)
            reuse_and_places(report, "nano", nano, n_gpus=len(gpus))
            adapted(report, nano, Path(work))
        if "size" in arguments.only:
            company(report, arguments.size, model, random_prompts(model), is_real=False)
            reuse_and_places(report, arguments.size, model, n_gpus=len(gpus))
        if "speed" in arguments.only:
            compare(report, arguments.folder, model, arguments.rounds)
    return report.end()


# --- company


def nano_prompts(seed: int) -> str:
    rng = random.Random(seed)
    first, second = rng.randint(2, 90), rng.randint(2, 90)
    return rng.choice([
        f"Count from {first} to {first + 80}.", f"What is {first} plus {second}?",
        "Tell me about the old river and the moon.", "Write a list of fruits.",
        f"Repeat: the quiet house number {first} near the river {second}.",
    ])  # fmt: skip


def random_prompts(model: Path) -> Callable[[int], str]:
    words = whole_words(model)
    return lambda seed: text(words, 90, seed)


def company(
    report: Report, name: str, model: Path, prompt: Callable[[int], str], *, is_real: bool
) -> None:
    """Answer requests together and, with a real model, one by one; compare with the logits."""
    drawn: list[Drawn] = []
    n_asked = n_failed = 0
    settings = {"GPTOSS_NUM_PARALLEL": "12", "GPTOSS_CONTEXT_LENGTH": "16384"}
    with gptoss(model, settings) as (url, model_name):
        for pause_s in PAUSES_S:
            for n_streams in STREAMS:
                seeds = [1000 * n_streams + i for i in range(n_streams)]
                time.sleep(pause_s)
                found = together(url, model_name, prompt, seeds)
                n_asked += n_streams
                n_failed += sum(isinstance(each, str) for each in found)
                for each in found:
                    if isinstance(each, str) and n_failed < 4:
                        print(f"{name}: {each}", file=sys.stderr)
                drawn += [each for each in found if isinstance(each, Drawn)]
        metrics = check(httpx.get(f"{url}/metrics")).text
    n_checks = sum(_value(line) for line in metrics.splitlines() if "_checks_total{" in line)
    what = f"{name}: answers of {n_asked} that failed, after {n_checks:.0f} checks of the device"
    report.add(what, str(n_failed), "0", is_right=n_failed == 0 and n_checks >= 1)
    alone: dict[int, Drawn] = {}
    if is_real:
        with gptoss(model, settings) as (url, model_name):
            for seed in sorted({each.seed for each in drawn}):
                (found,) = together(url, model_name, prompt, [seed])
                if isinstance(found, Drawn):
                    alone[seed] = found
    score(report, name, model, drawn, alone)


def _value(line: str) -> float:
    return float(line.rpartition(" ")[2])


def together(
    url: str, name: str, prompt: Callable[[int], str], seeds: list[int]
) -> list[Drawn | str]:
    """Return the answers, or the errors, of requests that are sent at the same time."""

    def ask(seed: int) -> Drawn | str:
        options = SAMPLING | {"seed": seed, "num_predict": N_ANSWER}
        body = {"model": name, "prompt": prompt(seed), "options": options}
        body |= {"service_tier": "flex"} if seed % 2 else {}  # of a lower priority
        last: dict[str, Any] = {}
        try:
            with httpx.stream("POST", f"{url}/api/generate", json=body, timeout=120) as response:
                for last in frames(response):  # noqa: B007
                    pass
            return Drawn(seed, last["context"], len(last["context"]) - last["eval_count"])
        except (SystemExit, httpx.HTTPError, KeyError) as error:
            return f"{type(error).__name__}: {error}"

    with ThreadPoolExecutor(len(seeds)) as pool:
        return list(pool.map(ask, seeds))


def score(
    report: Report, name: str, model: Path, drawn: list[Drawn], alone: dict[int, Drawn]
) -> None:
    scorer = Scorer(model)
    n_same, unlikely, surprise = 0, 0, Surprise()
    for i, each in enumerate(sorted(drawn, key=lambda d: (d.seed % 7, d.seed))):
        wanted = alone.get(each.seed)
        differs_at = first_difference(each.answer, wanted.answer) if wanted else None
        n_same += wanted is not None and differs_at is None
        if i < N_SCORED or differs_at is not None:
            odds = scorer.odds(each)
            for token, logs in zip(each.answer, odds, strict=True):
                surprise.add(token, logs)
            if wanted and differs_at is not None and differs_at < len(each.answer):
                logs, token = odds[differs_at], each.answer[differs_at]
                others = wanted.answer[differs_at : differs_at + 1]  # none: it has ended there
                is_rounding = any(is_near(logs, SamplingParams(), token, other) for other in others)
                unlikely += math.exp(logs[token]) < LIKELY and not is_rounding
    scorer.close()
    if alone:
        what = f"{name}: of {len(drawn)} as alone {n_same}, others differ at an unlikely token"
        report.add(what, str(unlikely), "0", is_right=unlikely == 0)
    what = f"{name}: z of what was drawn, {surprise.n} tokens"
    report.add(
        what, f"{surprise.z:+.1f}", f"-{MAX_Z:g} .. {MAX_Z:g}", is_right=abs(surprise.z) <= MAX_Z
    )


def first_difference(one: list[int], other: list[int]) -> int | None:
    pairs = enumerate(zip(one, other, strict=False))
    shorter = None if len(one) == len(other) else min(len(one), len(other))
    return next((i for i, (a, b) in pairs if a != b), shorter)


class Surprise:
    """Likelihood of drawn tokens, compared with that of the model's own draws on average."""

    def __init__(self) -> None:
        self.n = 0
        self._sum = self._variance = 0.0

    def add(self, token: int, logs: "np.ndarray[Any, Any]") -> None:
        odds = np.exp(logs)
        mean = float(odds @ logs)
        self._sum += float(logs[token]) - mean if token < len(logs) else -100.0
        self._variance += float(odds @ (logs - mean) ** 2)
        self.n += 1

    @property
    def z(self) -> float:
        return self._sum / math.sqrt(max(self._variance, 1e-9))


class Scorer:
    """A model in this process that reads whole answers in one plain prefill."""

    def __init__(self, path: Path, n_gpu_layers: int = -1, adapter: Path | None = None) -> None:
        self._model = Model(path, ModelParams(n_gpu_layers=n_gpu_layers), adapter=adapter)
        params = ContextParams(
            n_ctx=2048, n_threads_prefill=8, n_threads_decode=8, n_outputs_max=N_ANSWER
        )
        self._context = Context(self._model, params)

    def odds(self, drawn: Drawn) -> list["np.ndarray[Any, Any]"]:
        """Return log-probabilities of all tokens in each place of the answer."""
        self._context.remove(0)
        tokens, n_prompt = drawn.tokens, drawn.n_prompt
        found = []
        for start, end in ((0, n_prompt - 1), (n_prompt - 1, len(tokens) - 1)):
            for at in range(start, end, N_ANSWER):
                chunk = tokens[at : min(at + N_ANSWER, end)]
                n_outputs = len(chunk) if start else 0
                batch = Batch(len(chunk))
                batch.extend(chunk, at, 0, n_outputs=n_outputs)
                self._context.decode_batch(batch)
                for row in range(n_outputs):
                    logits = self._context.logits(row).astype(np.float64)
                    peak = logits.max()
                    found.append(logits - peak - math.log(np.exp(logits - peak).sum()))
        return found

    def close(self) -> None:
        self._model.close()


# --- reuse and places


def reuse_and_places(report: Report, name: str, model: Path, *, n_gpus: int) -> None:
    words, vocabulary = whole_words(model), vocabulary_of(model)
    start, ends = text(words, 1500, seed=1), [text(words, 40, seed=i) for i in range(2, 8)]
    prompts = [f"<|start|>user<|message|>{start}{end}<|end|><|start|>assistant" for end in ends]
    scorer, wanted = Scorer(model), list[dict[str, float]]()
    for prompt in prompts:
        tokens = vocabulary.encode_tagged(prompt)
        (logs,) = scorer.odds(Drawn(0, [*tokens, 0], len(tokens)))
        best = np.argsort(-logs)[:20].tolist()
        wanted.append({json.dumps([*vocabulary.bytes_of(i)]): float(logs[i]) for i in best})
    scorer.close()
    places = {
        "with reuse": ONE_GPU,
        "with experts of 8 layers in RAM": ONE_GPU | {"GPTOSS_CPU_MOE": "8"},
    }
    if n_gpus > 1:
        vram = f"{model.stat().st_size * 0.75 / 2**30:.1f}GiB"
        places["on two GPUs"] = {"CUDA_VISIBLE_DEVICES": "0,1", "GPTOSS_VRAM": vram}
    for place, settings in places.items():
        with gptoss(model, settings | {"GPTOSS_CONTEXT_LENGTH": "16384"}) as (url, model_name):
            (running,) = check(httpx.get(f"{url}/api/ps")).json()["models"]
            place += f" ({running['size_vram'] / 2**30:.1f} GiB in VRAM)"
            for when in ("", ", repeated"):
                found = [logprobs(url, model_name, prompt) for prompt in prompts]
                what = f"{name}: error of logits {place}{when}"
                report.least(what, error(wanted, found), MAX_ERROR)


def adapted(report: Report, nano: Path, work: Path) -> None:
    lora = work / "lora.gguf"
    rng, writer = np.random.default_rng(1), GGUFWriter(lora, "gpt-oss")
    for key, value in (("general.type", "adapter"), ("adapter.type", "lora")):
        writer.add_string(key, value)
    writer.add_float32("adapter.lora.alpha", 8.0)
    for tensor in read_info(nano).tensors:
        if re.search(r"(attn_[qkv]|attn_output|_exps|^output)\.weight", tensor.name):
            *experts, n_out, n_in = tensor.shape
            for part, ends, size in (("a", (4, n_in), 1), ("b", (n_out, 4), 0.05 / n_in**0.5)):
                values = size * rng.normal(size=(*experts, *ends))
                writer.add_tensor(f"{tensor.name}.lora_{part}", values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tokens = vocabulary_of(nano).encode_tagged(f"<|start|>user<|message|>{nano_prompts(1)}<|end|>")
    drawn = Drawn(0, [*tokens, 0], len(tokens))
    found = []
    for n_gpu_layers, adapter in ((-1, lora), (0, lora), (-1, None)):
        scorer = Scorer(nano, n_gpu_layers, adapter)
        found += scorer.odds(drawn)
        scorer.close()
    on_gpu, on_cpu, plain = found
    likely = np.argsort(-on_cpu)[:20]
    off, effect = (
        float(np.sqrt(np.mean((on_gpu - other)[likely] ** 2))) for other in (on_cpu, plain)
    )
    report.least("nano: error of logits with an adapter, against the CPU", off, MAX_ERROR)
    what = "nano: an adapter's effect on logits"
    report.add(what, f"{effect:.3g}", f">= {4 * MAX_ERROR:g}", is_right=effect >= 4 * MAX_ERROR)


def logprobs(url: str, name: str, prompt: str) -> dict[str, float]:
    """Return those of the 20 likeliest first tokens."""
    body = LOGPROBS | {"model": name, "prompt": prompt, "options": {"num_predict": 1}}
    answer = check(httpx.post(f"{url}/api/generate", json=body, timeout=120)).json()
    top = answer["logprobs"][0]["top_logprobs"]
    return {json.dumps(each["bytes"]): each["logprob"] for each in top}


def error(wanted: list[dict[str, float]], found: list[dict[str, float]]) -> float:
    """Return the root mean square over tokens likeliest in both; infinite if they are few."""
    differences = [
        a[token] - b[token] for a, b in zip(wanted, found, strict=True) for token in a.keys() & b
    ]
    if len(differences) < 5 * len(wanted):
        return math.inf
    return math.sqrt(statistics.fmean(d * d for d in differences))


if __name__ == "__main__":
    sys.exit(main())
