"""Check that the engine computes correctly on this GPU, and compare its speed with llama.cpp's.

    python bench/gpu_check.py FOLDER_OF_LLAMA_CPP [--size 120b] [--model FILE.gguf]

FOLDER_OF_LLAMA_CPP has llama.cpp's programs, of the build that gptoss uses. Takes at most eight
minutes on one GPU, prints a table, and exits with 1 if anything is wrong. Run it before calling a
change of `engine/`, `llama/` or `plan/` done. Without --model, a file of the size's shapes with
random weights is written (`synth_gguf.py`; 20b: 12 GB, 120b: 63 GB).

- Company: rounds of 1 to 16 answers at the same time, half of them of a lower priority, after
  pauses of 0.5 to 6 seconds, at temperature 1. All must be complete. With nano, an answer may
  differ from what the same seed gives without company only at a token that is also likely there.
  Drawn tokens must be as likely as the model's own draws are on average: `z` is how many standard
  deviations they are off.
- Reuse: the logits after a long prompt whose beginning was cached, against one plain prefill.
- Places: the same with experts in RAM, and on two GPUs where there are two.
- Adapter: the logits of nano with a LoRA of attention, experts and head, against the CPU's, which
  tests compare with merged weights.
- Speed: the same prompts and answers for gptoss and `llama-server`, with its defaults and set by
  hand, with and without filters; `llama-bench` and `llama-batched-bench`, which sample nothing.
"""

import argparse
import json
import math
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
from gguf import GGUFWriter
from peers import (
    SAMPLING,
    Ours,
    Peer,
    Theirs,
    check,
    frames,
    free_url,
    load,
    serving,
    text,
    vocabulary_of,
    whole_words,
)
from synth_gguf import fill, write_header

from gptoss_local.engine.llama import Batch, Context, Model, list_devices
from gptoss_local.models.nano import ensure_gguf
from gptoss_local.models.store import adopt_file, read_info
from gptoss_local.settings import Settings, load_settings
from gptoss_local.types import ContextParams, ModelParams

PARTS = ("nano", "size", "speed")
STREAMS = (1, 4, 8, 12, 16)  # for 12 places
PAUSES_S = (0.5, 2.6, 6.0)
N_ANSWER = 64
N_PROMPT, N_NEW, N_DECODE = 4096, 64, 128
LIKELY = 1e-4  # rounding leads to a token about as often as it is likely
MAX_Z = 5.0
MAX_ERROR = 0.25  # root mean square of differences of log-probabilities
N_SCORED = 24  # answers
FILTERS = {"temperature": 1.0, "top_p": 0.95, "top_k": 40, "min_p": 0.05}
"""The sampling that many clients send, llama.cpp's own default."""
SERVER = ("-c", "32768", "-np", "8", "-kvu", "-ngl", "99", "-fa", "on")
BY_HAND = ("--backend-sampling", "-b", "2048", "-ub", "2048")
"""With these options llama-server is the fastest."""

ONE_GPU = {"CUDA_VISIBLE_DEVICES": "0"}
LOGPROBS = {"logprobs": True, "top_logprobs": 20, "stream": False, "raw": True}


class Row(NamedTuple):
    what: str
    value: str
    wanted: str
    is_right: bool


class Report:
    """Print rows as they come, and keep them."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def add(self, what: str, value: str, wanted: str, *, is_right: bool) -> None:
        self.rows.append(Row(what, value, wanted, is_right))
        mark = "ok" if is_right else "WRONG"
        print(f"| {what} | {value} | {wanted} | {mark} |", flush=True)

    def ratio(self, what: str, ours: float, theirs: float, least: float, unit: str) -> None:
        value = f"{ours:,.4g} / {theirs:,.4g} {unit} = {ours / theirs:.2f}"
        self.add(what, value, f">= {least}", is_right=ours / theirs >= least)

    def least(self, what: str, value: float, most: float) -> None:
        self.add(what, f"{value:.3g}", f"<= {most:g}", is_right=value <= most)


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
    arguments = parser.parse_args()
    gpus = [device for device in list_devices() if device.kind == "gpu"]
    if not gpus:
        raise SystemExit("llama.cpp finds no GPU here")
    start_s, report = time.monotonic(), Report()
    print(f"{', '.join(gpu.description for gpu in gpus)}; {arguments.size}\n")
    print("| what | found | wanted | |\n|---|---|---|---|")
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
            speed(report, arguments.folder, arguments.size, model)
    n_wrong = sum(not row.is_right for row in report.rows)
    seconds = time.monotonic() - start_s
    print(f"\n{len(report.rows)} checks, {n_wrong} wrong, {seconds:.0f} s")
    return 1 if n_wrong else 0


def random_model(size: str, folder: Path) -> Path:
    path = folder / f"{size}.gguf"
    write_header(size, path)
    fill(path)
    return path


@contextmanager
def gptoss(model: Path, settings: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Run `gptoss serve` with a model loaded; yield its address and the model's name."""
    with tempfile.TemporaryDirectory() as home:
        name = adopt_file(model, Settings(home=Path(home))).name
        url = free_url()
        environment = {"GPTOSS_HOME": home, "GPTOSS_PORT": url.rpartition(":")[2]}
        environment |= {"GPTOSS_KEEP_ALIVE_S": "-1", "GPTOSS_PREFIX_DISK_BYTES": "0"}
        command = [sys.executable, "-m", "gptoss_local", "serve"]
        with serving(command, environment | settings, f"{url}/api/version"):
            load(url, name)
            yield url, name


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
            if differs_at is not None and differs_at < len(each.answer):
                unlikely += math.exp(odds[differs_at][each.answer[differs_at]]) < LIKELY
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


# --- speed


class Speeds(NamedTuple):
    """Tokens a second, by how many answers there are; seconds until a follow-up's first token."""

    plain: dict[int, float]
    filtered: dict[int, float]
    prompt: float
    follow_s: float


def speed(report: Report, folder: Path, size: str, model: Path) -> None:
    words = whole_words(model)
    settings = ONE_GPU | {"GPTOSS_NUM_PARALLEL": "8", "GPTOSS_CONTEXT_LENGTH": "32768"}
    with gptoss(model, settings) as (url, name):
        ours = measure(Ours(url, name), words)
    served = {}
    for peer, options in (("llama-server", ()), ("llama-server by hand", BY_HAND)):
        url = free_url()
        command = [str(folder / "llama-server"), "-m", str(model), *SERVER, *options]
        with serving([*command, "--port", url.rpartition(":")[2]], ONE_GPU, f"{url}/health"):
            served[peer] = measure(Theirs(url, vocabulary_of(model)), words)
    prompt, decode = llama_bench(folder, model)
    for n, bare in ((1, decode), (8, batched_bench(folder, model, 8))):
        report.ratio(f"{size}: {n} answers, llama-bench", ours.plain[n], bare, 0.85, "tok/s")
    # Of 120b more time goes to weights, which both read alike, and less to sampling on the host.
    least_of = {"llama-server": (1.3, 2.0) if size == "20b" else (1.2, 1.6)}
    for peer, theirs in served.items():
        for n, least in zip((1, 8), least_of.get(peer, (0.95, 1.0)), strict=True):
            what = f"{size}: {n} answers, {peer}"
            report.ratio(what, ours.plain[n], theirs.plain[n], least, "tok/s")
            what = f"{size}: {n} answers, top-k 40, {peer}"
            report.ratio(what, ours.filtered[n], theirs.filtered[n], 0.85, "tok/s")
        report.ratio(f"{size}: prompt, {peer}", ours.prompt, theirs.prompt, 1.0, "tok/s")
        follow = f"{size}: {N_NEW} more tokens, {peer}"
        report.ratio(follow, 1 / ours.follow_s, 1 / theirs.follow_s, 0.8, "1/s")
    report.ratio(f"{size}: prompt, llama-bench", ours.prompt, prompt, 0.78, "tok/s")


def measure(peer: Peer, words: list[str], n_rounds: int = 3) -> Speeds:
    plain: dict[int, list[float]] = {1: [], 8: []}
    filtered: dict[int, list[float]] = {1: [], 8: []}
    prompts, follows = [], []
    for seed in range(n_rounds + 1):  # of which the first warms up
        for n, rates in plain.items():
            rates.append(rate(peer, words, [100 * seed + i for i in range(n)], SAMPLING))
    for seed in range(n_rounds + 1):
        for n, rates in filtered.items():
            rates.append(rate(peer, words, [100 * seed + 50 + i for i in range(n)], FILTERS))
    # Only then, as each prompt in the cache makes answers slower, which llama-bench's do not meet.
    for seed in range(n_rounds + 1):
        prompt = text(words, N_PROMPT, seed + 5000)
        time.sleep(2.6)  # as a person does; our engine prepares for the next prompt
        prompts.append(N_PROMPT / peer.complete(prompt, 8, SAMPLING).ttft_s)
        more = text(words, N_NEW, seed + 6000)
        time.sleep(0.2)
        follows.append(peer.complete(prompt + more, 8, SAMPLING).ttft_s)
    return Speeds(
        {n: statistics.median(rates[1:]) for n, rates in plain.items()},
        {n: statistics.median(rates[1:]) for n, rates in filtered.items()},
        statistics.median(prompts[1:]),
        statistics.median(follows[1:]),
    )


def rate(peer: Peer, words: list[str], seeds: list[int], options: dict[str, float]) -> float:
    """Return tokens a second of all answers together, after the first token of each."""
    with ThreadPoolExecutor(len(seeds)) as pool:
        answers = list(
            pool.map(lambda s: peer.complete(text(words, 90, s), N_DECODE, options), seeds)
        )
    n_decoded = sum(answer.n_tokens - 1 for answer in answers)
    return n_decoded / max(answer.decode_s for answer in answers)


def batched_bench(folder: Path, model: Path, n: int) -> float:
    """Return tokens a second of so many answers together, none of which is sampled."""
    command = [str(folder / "llama-batched-bench"), "-m", str(model), "-ngl", "99", "-fa", "on"]
    command += ["-c", "8192", "-b", "2048", "-ub", "2048", "-npp", "90", "-ntg", str(N_DECODE)]
    command += ["-npl", f"{n},{n}", "--output-format", "jsonl"]  # the first warms up
    done = subprocess.run(command, env=os.environ | ONE_GPU, capture_output=True, text=True)
    found = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not found:
        raise SystemExit(f"llama-batched-bench failed: {done.stderr[-1000:]}")
    return float(json.loads(found[-1])["speed_tg"])


def llama_bench(folder: Path, model: Path) -> tuple[float, float]:
    """Return tokens a second of a prompt and of an answer, with the best correct settings."""
    command = [str(folder / "llama-bench"), "-m", str(model), "-ngl", "99", "-fa", "1"]
    command += ["-ub", "2048", "-b", "2048", "-p", str(N_PROMPT), "-n", str(N_DECODE), "-r", "3"]
    environment = os.environ | ONE_GPU
    done = subprocess.run([*command, "-o", "json"], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"llama-bench failed: {done.stderr[-1000:]}")
    rates = {bool(r["n_gen"]): r["avg_ts"] for r in json.loads(done.stdout)}
    return rates[False], rates[True]


if __name__ == "__main__":
    sys.exit(main())
