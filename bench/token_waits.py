"""What a token waits for over HTTP where the CPU computes experts: threads, and who preempts them.

    python bench/token_waits.py FILE.gguf --free-gib 11 --threads 16 14 8 --spins 30000 300000

For each number of threads and of spins (`GOMP_SPINCOUNT`; OpenMP's own are 300000), `gptoss serve`
answers behind 1,000 tokens: milliseconds a token, and how many times a token the threads of the
engine's process were preempted, or waited of themselves. Threads that give up spinning sleep
through the GPU's turn and are late for theirs. With `--llama-server FILE`, that is asked the same,
as it is and with each number of threads. With `--busy N`, so many other processes compute all the
while.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import NamedTuple

import psutil
from against_llama_server import SAMPLING, Ours, Theirs, free_url
from offload import ballast, load, serving, text, vocabulary_of, whole_words

from gptoss_local.settings import Settings
from gptoss_local.store import adopt_file

N_PROMPT, N_ANSWER, N_ROUNDS = 1000, 96, 3
ENGINE = "gptoss_local.engine.process"


class Switches(NamedTuple):
    """Of all threads of a process so far."""

    n_preempted: int
    n_waited: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--free-gib", type=float, help="all that is free when not given")
    parser.add_argument("--threads", type=int, nargs="+", default=[0], help="0: as planned")
    parser.add_argument("--spins", nargs="+", default=["300000"])
    parser.add_argument("--llama-server", type=Path)
    parser.add_argument("--busy", type=int, default=0, metavar="N")
    arguments = parser.parse_args()
    model, words = arguments.model, whole_words(arguments.model)
    with ExitStack() as stack:
        stack.enter_context(ballast(arguments.free_gib))
        home = stack.enter_context(tempfile.TemporaryDirectory())
        for _ in range(arguments.busy):
            stack.enter_context(busy())
        for n_threads in sorted({0, *arguments.threads}) if arguments.llama_server else ():
            with theirs(arguments.llama_server, model, n_threads) as peer:
                print(f"llama-server, {n_threads} threads: {describe(peer, words)}", flush=True)
        name = adopt_file(model, Settings(home=Path(home))).name
        for n_threads, n_spins in product(arguments.threads, arguments.spins):
            environment = {"GPTOSS_THREADS": str(n_threads), "GOMP_SPINCOUNT": n_spins}
            with ours(home, name, environment) as peer:
                print(f"{n_threads} threads, {n_spins} spins: {describe(peer, words)}", flush=True)


@contextmanager
def busy() -> Iterator[None]:
    """Another program that computes on one core."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def theirs(program: Path, model: Path, n_threads: int) -> Iterator[Theirs]:
    url = free_url()
    command = [str(program), "-m", str(model), "--port", url.rpartition(":")[2]]
    command += ["-t", str(n_threads)] if n_threads else []
    with serving(command, {}, f"{url}/health"):
        yield Theirs(url, vocabulary_of(model))


@contextmanager
def ours(home: str, name: str, environment: dict[str, str]) -> Iterator[Ours]:
    url = free_url()
    environment = environment | {"GPTOSS_HOME": home, "GPTOSS_PORT": url.rpartition(":")[2]}
    command = [sys.executable, "-m", "gptoss_local", "serve"]
    with serving(command, environment, f"{url}/api/version"):
        load(url, name)
        yield Ours(url, name)


def describe(peer: Ours | Theirs, words: list[str]) -> str:
    peer.complete(text(words, N_PROMPT, seed=0), 16, SAMPLING)
    each_ms, preempted, waited = [], [], []
    for seed in range(1, N_ROUNDS + 1):
        prompt = text(words, N_PROMPT, seed)
        peer.complete(prompt, 2, SAMPLING)  # now the prompt is cached
        before = switches(computing())
        answer = peer.complete(prompt, N_ANSWER, SAMPLING)
        after = switches(computing())
        each_ms.append(1e3 * answer.decode_s / (answer.n_tokens - 1))
        preempted.append((after.n_preempted - before.n_preempted) / answer.n_tokens)
        waited.append((after.n_waited - before.n_waited) / answer.n_tokens)
    rounds = " ".join(f"{ms:.2f}" for ms in each_ms)
    times = f"preempted {statistics.median(preempted):.1f} times, waited"
    return (
        f"{statistics.median(each_ms):.2f} ms a token ({rounds}), "
        f"{times} {statistics.median(waited):.1f}"
    )


def computing() -> psutil.Process:
    """The engine's process or llama-server; there should be one on the machine."""
    for process in psutil.process_iter(["name", "cmdline"]):
        if process.info["name"] == "llama-server" or ENGINE in (process.info["cmdline"] or ()):
            return process
    raise SystemExit("no process computes")


def switches(process: psutil.Process) -> Switches:
    found = {"nonvoluntary_ctxt_switches": 0, "voluntary_ctxt_switches": 0}
    for status in Path(f"/proc/{process.pid}/task").glob("*/status"):
        for line in status.read_text().splitlines():
            key, _, value = line.partition(":")
            if key in found:
                found[key] += int(value)
    return Switches(*found.values())


if __name__ == "__main__":
    main()
