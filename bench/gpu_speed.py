"""Compare the speed of gptoss with the best that llama.cpp's programs can be set to.

All get the same prompts: gptoss and `llama-server`, with its defaults and set by hand, each with 1
to 16 answers together, with the sampling that OpenAI recommends and with the filters that many
clients send; then prompts of 4,096 tokens, and 64 tokens more. `llama-bench` and
`llama-batched-bench` sample nothing.
"""

import json
import os
import statistics
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from peers import (
    ONE_GPU,
    SAMPLING,
    Ours,
    Peer,
    Theirs,
    gptoss,
    llama_server,
    text,
    vocabulary_of,
    whole_words,
)
from report import Report

WIDTHS = (1, 2, 4, 8, 16)
N_PROMPT, N_NEW, N_DECODE = 4096, 64, 128
FILTERS = {"temperature": 1.0, "top_p": 0.95, "top_k": 40, "min_p": 0.05}
"""The sampling that many clients send, llama.cpp's own default."""
SAMPLINGS = {"plain": SAMPLING, "filtered": FILTERS}
SERVER = ("-c", "65536", "-np", str(WIDTHS[-1]), "-kvu", "-ngl", "99", "-fa", "on")
BY_HAND = ("--backend-sampling", "-b", "2048", "-ub", "2048")
"""With these options llama-server is the fastest."""
LEAST_OF_BARE = 0.85  # of llama-bench and llama-batched-bench
LEAST_OF_SERVERS = {"plain": 1.0, "filtered": 0.9}


class Speeds(NamedTuple):
    """Tokens a second, by sampling and number of answers; seconds until a follow-up's first one.

    Those of `answers` count from the first token of each, those of `whole` from sending, with the
    prompts of all.
    """

    answers: dict[str, dict[int, float]]
    whole: dict[str, dict[int, float]]
    prompt: float
    follow_s: float


def compare(report: Report, folder: Path, model: Path, n_rounds: int) -> None:
    words, served = whole_words(model), dict[str, Speeds]()
    settings = {"GPTOSS_NUM_PARALLEL": str(WIDTHS[-1]), "GPTOSS_CONTEXT_LENGTH": "65536"}
    with gptoss(model, ONE_GPU | settings) as (url, name):
        ours = measured("gptoss", Ours(url, name), words, n_rounds)
    for peer, options in (("llama-server", ()), ("llama-server by hand", BY_HAND)):
        program = folder / "llama-server"
        with llama_server(program, model, *SERVER, *options, environment=ONE_GPU) as url:
            served[peer] = measured(peer, Theirs(url, vocabulary_of(model)), words, n_rounds)
    prompt, decode = llama_bench(folder, model)
    batched = batched_bench(folder, model)
    cells = " | ".join(f"{rate:.1f}" for rate in batched.values())
    print(f"llama-batched-bench: {cells}; llama-bench: {decode:.1f}, prompt {prompt:.0f}")
    report.begin()
    for n, bare in (batched | {1: max(decode, batched[1])}).items():
        what = f"{n} answers, llama-batched-bench"
        report.ratio(what, ours.answers["plain"][n], bare, LEAST_OF_BARE, "tok/s")
    for sampling, least in LEAST_OF_SERVERS.items():
        for n, rate in ours.answers[sampling].items():
            best = max(theirs.answers[sampling][n] for theirs in served.values())
            report.ratio(f"{n} answers, {sampling}, llama-server", rate, best, least, "tok/s")
    best = max(theirs.prompt for theirs in served.values())
    report.ratio("prompt, llama-server", ours.prompt, best, 1.0, "tok/s")
    report.ratio("prompt, llama-bench", ours.prompt, prompt, 0.78, "tok/s")
    soonest_s = min(theirs.follow_s for theirs in served.values())
    report.ratio(f"{N_NEW} more tokens, llama-server", 1 / ours.follow_s, 1 / soonest_s, 0.8, "1/s")


def measured(name: str, peer: Peer, words: list[str], n_rounds: int) -> Speeds:
    speeds = measure(peer, words, n_rounds)
    print(f"\n| {name} | {' | '.join(map(str, WIDTHS))} | prompt | {N_NEW} more |")
    for sampling in SAMPLINGS:
        ends = f"{speeds.prompt:.0f} | {1e3 * speeds.follow_s:.1f} ms"
        for what, rates in ((sampling, speeds.answers), ("from sending", speeds.whole)):
            cells = " | ".join(f"{rate:.1f}" for rate in rates[sampling].values())
            print(f"| {what} | {cells} | {ends if what == 'plain' else '|'} |", flush=True)
    return speeds


def measure(peer: Peer, words: list[str], n_rounds: int) -> Speeds:
    """Measure answers, and then prompts; the first round warms up."""
    found: dict[str, dict[int, float]] = {}
    whole: dict[str, dict[int, float]] = {}
    for sampling, options in SAMPLINGS.items():
        rates: dict[int, list[tuple[float, float]]] = {n: [] for n in WIDTHS}
        for seed in range(n_rounds + 1):
            for n in WIDTHS:
                seeds = [10_000 * len(found) + 1000 * seed + 50 * n + i for i in range(n)]
                rates[n].append(rate(peer, words, seeds, options))
        for kind, to in enumerate((found, whole)):
            to[sampling] = {n: statistics.median(r[kind] for r in rates[n][1:]) for n in WIDTHS}
    prompts, follows = [], []
    for seed in range(n_rounds + 1):
        prompt = text(words, N_PROMPT, seed + 50_000)
        time.sleep(2.6)  # as a person does; our engine prepares for the next prompt
        prompts.append(N_PROMPT / peer.complete(prompt, 8, FILTERS).ttft_s)
        more = text(words, N_NEW, seed + 60_000)
        time.sleep(0.2)
        follows.append(peer.complete(prompt + more, 8, FILTERS).ttft_s)
    return Speeds(found, whole, statistics.median(prompts[1:]), statistics.median(follows[1:]))


def rate(
    peer: Peer, words: list[str], seeds: list[int], options: dict[str, float]
) -> tuple[float, float]:
    """Return tokens a second of all answers together, as `Speeds` has them."""
    with ThreadPoolExecutor(len(seeds)) as pool:
        answers = list(
            pool.map(lambda s: peer.complete(text(words, 90, s), N_DECODE, options), seeds)
        )
    n_tokens = sum(answer.n_tokens for answer in answers)
    return (
        (n_tokens - len(answers)) / max(answer.decode_s for answer in answers),
        n_tokens / max(answer.ttft_s + answer.decode_s for answer in answers),
    )


def batched_bench(folder: Path, model: Path) -> dict[int, float]:
    """Return tokens a second of answers together, by their number; none is sampled."""
    command = [str(folder / "llama-batched-bench"), "-m", str(model), "-ngl", "99", "-fa", "on"]
    command += ["-c", "8192", "-b", "2048", "-ub", "2048", "-npp", "90", "-ntg", str(N_DECODE)]
    widths = ",".join(map(str, (*WIDTHS, *WIDTHS)))  # of which the first warm up
    command += ["-npl", widths, "--output-format", "jsonl"]
    done = subprocess.run(command, env=os.environ | ONE_GPU, capture_output=True, text=True)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not found:
        raise SystemExit(f"llama-batched-bench failed: {done.stderr[-1000:]}")
    return {each["pl"]: float(each["speed_tg"]) for each in found}


def llama_bench(folder: Path, model: Path) -> tuple[float, float]:
    """Return tokens a second of a prompt and of an answer, with the best correct settings."""
    command = [str(folder / "llama-bench"), "-m", str(model), "-ngl", "99", "-fa", "1"]
    command += ["-ub", "2048", "-b", "2048", "-p", str(N_PROMPT), "-n", str(N_DECODE), "-r", "3"]
    environment = os.environ | ONE_GPU
    done = subprocess.run([*command, "-o", "json"], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"llama-bench failed: {done.stderr[-1000:]}")
    rates: dict[bool, Any] = {bool(r["n_gen"]): r["avg_ts"] for r in json.loads(done.stdout)}
    return rates[False], rates[True]
