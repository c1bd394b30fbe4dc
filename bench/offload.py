"""Compare gptoss, llama-server and llama-bench on a card that is too small, in one run.

    python bench/offload.py FOLDER FILE.gguf --free-gib 15.6 [--bench "-ncmoe 31 -ub 4096" ...]

FOLDER holds llama.cpp's `llama-server` and `llama-bench`, of the build that gptoss uses.
`vram_ballast.py` holds the rest of the first GPU's memory. `gptoss serve` and `llama-server -m
FILE` run with their defaults and get requests over HTTP with gpt-oss's sampling: a prompt of 4,096
tokens, an answer, and the same prompt with 64 tokens more. Each set of `--bench` flags is one run
of llama-bench. For gptoss, the VRAM that its plan predicts is printed next to what the driver lost.
With `--grab GIB`, only gptoss is loaded, while another program takes that much of what its plan
counts on. FILE may be random: `bench/synth_gguf.py`.
"""

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
from peers import (
    SAMPLING,
    Ours,
    Theirs,
    check,
    free_url,
    llama_server,
    load,
    serving,
    text,
    vocabulary_of,
    whole_words,
)
from vram_ballast import GIB, free_bytes

from gptoss_local.base.settings import Settings, load_settings
from gptoss_local.machine.plan.measured import Measured, read_measured
from gptoss_local.machine.plan.result import Plan
from gptoss_local.models.store import adopt_file
from gptoss_local.runner.planning import plan_load

N_PROMPT, N_NEW, N_ANSWER = 4096, 64, 64
PAUSE_S = 2.5  # before each prompt: more than our engine needs to rest
MIB = 2**20

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--free-gib", type=float, help="all that is free when not given")
    parser.add_argument("--bench", nargs="+", default=[], help="flags of llama-bench")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["gptoss", "llama-server"])
    parser.add_argument("--grab", type=float)
    parser.add_argument("--json", type=Path, help="a file to append results to, one a line")
    arguments = parser.parse_args()
    with ballast(arguments.free_gib):
        if arguments.grab is not None:
            survive(arguments.model, arguments.grab)
            return
        for row in rows(arguments):
            print(describe(row), flush=True)
            if arguments.json:
                with arguments.json.open("a") as file:
                    file.write(json.dumps(row) + "\n")


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    about = {"model": arguments.model.stem, "free_gib": arguments.free_gib}
    if arguments.only != "gptoss":
        yield about | theirs(arguments.folder, arguments.model, arguments.rounds)
    if arguments.only != "llama-server":
        yield about | ours(arguments.model, arguments.rounds)
    for flags in arguments.bench:
        yield about | bench(arguments.folder, arguments.model, flags)


def ours(model: Path, n_rounds: int) -> Row:
    with gptoss(model) as (peer, url, name, _, settings):
        first_s = load(url, name)  # measures, where experts are in RAM
        unload(url, name)
        plan = plan_load(model, settings, None, tuning=measured(settings).tuning)
        before = free_bytes()
        load_s = load(url, name)
        (running,) = check(httpx.get(f"{url}/api/ps")).json()["models"]
        figures = measure(peer, whole_words(model), n_rounds, N_PROMPT)
        used = before - free_bytes()  # llama.cpp gives nothing back
        outcome = measured(settings).outcome
    allocated = outcome.buffer_bytes if outcome else {}
    gpu = plan.placement.gpus[0] if plan.placement.gpus else None
    return {
        "what": "gptoss",
        "command": f"gptoss serve; gptoss run {name}",
        "n_ctx": running["context_length"],
        "first_load_s": first_s,
        "load_s": load_s,
        "n_batch": plan.shape.n_batch,
        "host_experts": len(plan.placement.host_experts),
        "load_mode": plan.load_mode,
        "offload_min_batch": plan.speed.offload_min_batch,
        "expected": (plan.speed.prefill_tok_s, plan.speed.decode_tok_s),
        "vram_predicted_mib": gpu.total / MIB if gpu else 0,
        "vram_used_mib": used / MIB,
        "vram_predicted_of": msgspec.to_builtins(gpu),
        "allocated_mib": {place: n / MIB for place, n in allocated.items()},
    } | figures


def measured(settings: Settings) -> Measured:
    """Return what has been measured for the only model of these settings."""
    (path,) = (settings.cache_dir / "measured").iterdir()
    return read_measured(path)


@contextmanager
def gptoss(model: Path) -> Iterator[tuple[Ours, str, str, Plan, Settings]]:
    """Return a gptoss server, the plan that it will make, and its settings."""
    with tempfile.TemporaryDirectory() as home:
        settings = load_settings(home=Path(home))
        name = adopt_file(model, Settings(home=Path(home))).name
        plan = plan_load(model, settings, None)
        url = free_url()
        environment = {"GPTOSS_HOME": home, "GPTOSS_PORT": url.rpartition(":")[2]}
        command = [sys.executable, "-m", "gptoss_local", "serve"]
        with serving(command, environment, f"{url}/api/version"):
            yield Ours(url, name), url, name, plan, settings


def unload(url: str, name: str) -> None:
    body = {"model": name, "keep_alive": 0}
    check(httpx.post(f"{url}/api/generate", json=body, timeout=60))
    while check(httpx.get(f"{url}/api/ps")).json()["models"]:
        time.sleep(0.1)


def theirs(folder: Path, model: Path, n_rounds: int) -> Row:
    row: Row = {"what": "llama-server", "command": f"llama-server -m {model}"}
    before, start_s = free_bytes(), time.monotonic()
    try:
        with llama_server(folder / "llama-server", model) as url:
            load_s = time.monotonic() - start_s
            n_ctx = check(httpx.get(f"{url}/props")).json()["default_generation_settings"]["n_ctx"]
            vocabulary = vocabulary_of(model)
            n_prompt = min(N_PROMPT, n_ctx - 256)  # leaves room for the answer and the 64 tokens
            figures = measure(Theirs(url, vocabulary), whole_words(model), n_rounds, n_prompt)
            figures["vram_used_mib"] = (before - free_bytes()) / MIB
    except httpx.TransportError as error:  # seen where it plans for more VRAM than there is
        return row | {"error": f"it has ended: {error}"}
    return row | {"n_ctx": n_ctx, "load_s": load_s} | figures


def measure(peer: Ours | Theirs, words: list[str], n_rounds: int, n_prompt: int) -> Row:
    """Return medians of some rounds, each with its own prompt."""
    peer.complete(text(words, n_prompt, seed=0), 4, SAMPLING)  # llama-bench warms up, too
    prefill, decode, follow_s = [], [], []
    for seed in range(1, n_rounds + 1):
        prompt = text(words, n_prompt, seed)
        time.sleep(PAUSE_S)
        first = peer.complete(prompt, N_ANSWER, SAMPLING)
        prefill.append(n_prompt / first.ttft_s)
        decode.append((first.n_tokens - 1) / first.decode_s)
        new = text(words, N_NEW, seed + 1000)
        time.sleep(PAUSE_S)
        follow_s.append(peer.complete(prompt + new, 8, SAMPLING).ttft_s)
    return {
        "n_prompt": n_prompt,
        "prefill_tok_s": statistics.median(prefill),
        "decode_tok_s": statistics.median(decode),
        "follow_up_s": statistics.median(follow_s),
        "rounds": [prefill, decode, follow_s],
    }


def bench(folder: Path, model: Path, flags: str) -> Row:
    command = [str(folder / "llama-bench"), "-m", str(model), *shlex.split(flags)]
    command += ["-p", str(N_PROMPT), "-n", str(N_ANSWER), "-r", "2"]
    done = subprocess.run([*command, "-o", "json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{shlex.join(command)} failed: {done.stderr[-1000:]}")
    rates = {bool(r["n_gen"]): r["avg_ts"] for r in json.loads(done.stdout)}
    command[0] = "llama-bench"
    row: Row = {"what": "llama-bench", "command": " ".join(command)}
    return row | {"prefill_tok_s": rates[False], "decode_tok_s": rates[True]}


def survive(model: Path, grab_gib: float) -> None:
    """Load while another program takes VRAM, and check that it answers anyway."""
    with gptoss(model) as (peer, url, name, plan, _):
        command = ["--grab", str(grab_gib), "--when", "0.2"]  # CUDA's own, before the weights
        with helper(command) as (_, read_line):
            seconds = load(url, name)
            print(f"the other program: {read_line()}")
            (running,) = check(httpx.get(f"{url}/api/ps")).json()["models"]
            answer = peer.complete(text(whole_words(model), 100, seed=1), 16, SAMPLING)
            print(
                f"planned {plan.shape.n_ctx} tokens, batches of {plan.shape.n_batch}, experts of "
                f"{len(plan.placement.host_experts)} layers in RAM; loaded in {seconds:.1f} s with "
                f"{running['context_length']} tokens, {running['size_vram'] / GIB:.2f} GiB in VRAM;"
                f" answered {answer.n_tokens} tokens"
            )


@contextmanager
def ballast(leave_gib: float | None) -> Iterator[None]:
    if leave_gib is None:
        yield
        return
    with helper(["--leave", str(leave_gib)]) as (first_line, _):
        print(first_line)
        yield


@contextmanager
def helper(flags: list[str]) -> Iterator[tuple[str, Callable[[], str]]]:
    """`vram_ballast.py`: its first line, and what reads its next one."""
    script = Path(__file__).with_name("vram_ballast.py")
    process = subprocess.Popen([sys.executable, str(script), *flags], text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    assert process.stdout
    stdout = process.stdout
    try:
        yield stdout.readline().strip(), lambda: stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


def describe(row: Row) -> str:
    head = f"{row['model']} {row['free_gib']} {row['command']}"
    if "error" in row:
        return f"{head}: {row['error']}"
    text = f"{head}: prompt {row['prefill_tok_s']:.0f}, answer {row['decode_tok_s']:.1f} tok/s"
    if "n_ctx" in row:
        text += f", {row['n_prompt']} tokens read, follow-up {row['follow_up_s']:.3f} s, "
        text += f"context {row['n_ctx']}, ready in {row['load_s']:.1f} s"
    if "n_batch" in row:
        text += f" (first load {row['first_load_s']:.1f} s); batch {row['n_batch']}, "
        text += f"{row['host_experts']} layers in RAM ({row['load_mode']}), from"
        text += f" {row['offload_min_batch']} tokens on the GPU, expected {row['expected']},"
        text += f" VRAM {row['vram_predicted_mib']:.0f} / {row['vram_used_mib']:.0f} MiB"
    return text


if __name__ == "__main__":
    main()
