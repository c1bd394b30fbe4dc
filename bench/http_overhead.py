"""Measure what gptoss adds to llama.cpp: a model over HTTP against the same GGUF in a bare loop.

    python bench/http_overhead.py [--model FILE.gguf] [--threads N] [--tokens N] [--rounds N]

Both sides decode the same greedy tokens in turns, in one run. The bare loop is the shortest one
possible over llama_cpp (decode, sample, repeat) with the engine's own sizes. The HTTP side is a
real `gptoss serve` process, read through a plain socket, so that little of the client is measured.
Prints medians over the rounds, and of the differences pair by pair.
"""

import os

os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # as the engine has it; read when OpenMP loads

import argparse
import json
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from gptoss_local.engine.llama import Context, Model, Sampler
from gptoss_local.harmony import load_vocabulary
from gptoss_local.harmony.vocabulary import STOP_TOKENS
from gptoss_local.models.nano import ensure_gguf
from gptoss_local.models.store import adopt_file
from gptoss_local.settings import Settings, load_settings
from gptoss_local.types import ContextParams, SamplingParams

PROMPT = (
    "<|start|>user<|message|>Count from 1 to 150.<|end|>"
    "<|start|>assistant<|channel|>final<|message|>"
)
N_CTX = 32_768
WARM_UP = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2, help="of prefill; decode has 1")
    parser.add_argument("--model", type=Path, help="a GGUF; the embedded nano when not given")
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=31)
    arguments = parser.parse_args()
    cache = load_settings().cache_dir
    path = arguments.model or ensure_gguf(cache)
    vocabulary = load_vocabulary()
    prompt = vocabulary.encoding.encode(PROMPT, allowed_special="all")
    n_tokens = arguments.tokens
    bare = BareLoop(path, prompt, arguments.threads)
    with tempfile.TemporaryDirectory() as home, Server(Path(home), path, arguments.threads) as http:
        rounds = []
        for _ in range(arguments.rounds):
            for side in (bare, http):
                side.run(WARM_UP)  # the other side has just had the caches
                rounds.append(side.run(n_tokens))
    report(rounds[0::2], rounds[1::2], arguments.threads)


def report(bare: list["Run"], http: list["Run"], threads: int) -> None:
    for name, runs in (("bare", bare), ("http", http)):
        ttft_ms = statistics.median(r.ttft_s for r in runs) * 1e3
        token_us = statistics.median(r.token_s for r in runs) * 1e6
        print(
            f"{name}: {runs[0].n_tokens} tokens, first after {ttft_ms:.2f} ms, "
            f"then {token_us:.0f} us each ({1e6 / token_us:.0f} tok/s)"
        )
    pairs = list(zip(bare, http, strict=True))
    ttft_ms = [(h.ttft_s - b.ttft_s) * 1e3 for b, h in pairs]
    token_us = [(h.token_s - b.token_s) * 1e6 for b, h in pairs]
    print(
        f"gptoss adds {spread(ttft_ms, 2)} ms to the first token, {spread(token_us, 0)} us to each "
        f"(engine threads: {threads}, {os.cpu_count()} cores)"
    )


def spread(values: list[float], digits: int) -> str:
    """Return median and quartiles of differences taken pair by pair, so that drift cancels."""
    low, middle, high = (f"{q:+.{digits}f}" for q in statistics.quantiles(values, n=4))
    return f"{middle} ({low} .. {high})"


@dataclass
class Run:
    """Times of the first token and of the end of one answer."""

    n_tokens: int
    start_s: float
    first_s: float
    last_s: float

    @property
    def ttft_s(self) -> float:
        return self.first_s - self.start_s

    @property
    def token_s(self) -> float:
        return (self.last_s - self.first_s) / (self.n_tokens - 1)


class BareLoop:
    def __init__(self, path: Path, prompt: list[int], threads: int) -> None:
        params = ContextParams(n_ctx=N_CTX, n_threads_prefill=threads, n_threads_decode=1)
        self._context = Context(Model(path), params)
        self._prompt = prompt

    def run(self, n_tokens: int) -> Run:
        sampler = Sampler(SamplingParams(temperature=0))
        self._context.remove(0)
        start_s = time.perf_counter()
        self._context.decode(self._prompt, position=0)
        position = len(self._prompt)
        token = sampler.sample(self._context)
        first_s = time.perf_counter()
        n = 1
        while n < n_tokens and token not in STOP_TOKENS:
            self._context.decode([token], position=position)
            token = sampler.sample(self._context)
            position += 1
            n += 1
        return Run(n, start_s, first_s, time.perf_counter())


class Server:
    """`gptoss serve` with nano loaded."""

    def __init__(self, home: Path, gguf: Path, threads: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.model = adopt_file(gguf, Settings(home=home)).name
        self._environment = os.environ | {
            "GPTOSS_HOME": str(home),
            "GPTOSS_PORT": str(self.port),
            "GPTOSS_THREADS": str(threads),
        }

    def __enter__(self) -> "Server":
        command = [sys.executable, "-m", "gptoss_local", "serve"]
        self._process = subprocess.Popen(command, env=self._environment, stderr=subprocess.DEVNULL)
        while True:
            try:
                self._connection = socket.create_connection(("127.0.0.1", self.port))
                return self
            except ConnectionRefusedError:
                time.sleep(0.05)

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.terminate()
        self._process.wait()

    def run(self, n_tokens: int) -> Run:
        options = {"temperature": 0, "num_predict": n_tokens}
        request = {"model": self.model, "prompt": PROMPT, "raw": True, "options": options}
        body = json.dumps(request).encode()
        head = (
            f"POST /api/generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        start_s = time.perf_counter()
        self._connection.sendall(head.encode() + body)
        received, first_s = b"", 0.0
        while not received.endswith(b"0\r\n\r\n"):
            received += self._connection.recv(65536)
            if not first_s and b'"done":false' in received:
                first_s = time.perf_counter()
        last_s = time.perf_counter()
        count = re.search(rb'"eval_count":(\d+)', received)
        if count is None:
            raise SystemExit(received.decode())
        return Run(int(count[1]), start_s, first_s, last_s)


if __name__ == "__main__":
    main()
