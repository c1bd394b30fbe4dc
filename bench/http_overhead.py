"""What gptoss adds to llama.cpp: nano over HTTP against the same GGUF in a bare loop.

    python bench/http_overhead.py [--threads N] [--rounds N]

Both sides decode the same greedy tokens in turns, in one run; the bare loop is the shortest
possible one over llama_cpp (decode, sample, repeat) with the engine's own sizes. The HTTP side is
a real `gptoss serve` process, read through a plain socket, so that little of the client is
measured. Prints medians over the rounds.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gptoss_local.chat import ChatRequest, Message, Vocabulary
from gptoss_local.chat.render import render_chat
from gptoss_local.chat.vocabulary import STOP_TOKENS
from gptoss_local.llama import Context, ContextParams, Model, Sampler
from gptoss_local.nano import ensure_gguf
from gptoss_local.settings import load_settings
from gptoss_local.store import read_tokens
from gptoss_local.types import SamplingParams

QUESTION = "Count from 1 to 150."
N_CTX = 32_768


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2, help="of prefill; decode has 1")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # as the engine process has it
    cache = load_settings().cache_dir
    path = ensure_gguf(cache)
    vocabulary = Vocabulary.from_model(read_tokens(path), cache)
    request = ChatRequest(messages=(Message(role="user", content=QUESTION),), reasoning=False)
    bare = BareLoop(path, render_chat(request, vocabulary), arguments.threads)
    with tempfile.TemporaryDirectory() as home, Server(Path(home), path, arguments.threads) as http:
        for side in (bare, http):
            side.run()  # warm-up
        rounds = [(bare.run(), http.run()) for _ in range(arguments.rounds)]
    report(rounds, arguments.threads)


def report(rounds: list[tuple["Run", "Run"]], threads: int) -> None:
    figures = {}
    for name, runs in (("bare", [b for b, _ in rounds]), ("http", [h for _, h in rounds])):
        ttft_ms = statistics.median(r.ttft_s for r in runs) * 1e3
        token_us = statistics.median(r.token_s for r in runs) * 1e6
        figures[name] = (ttft_ms, token_us)
        print(
            f"{name}: {runs[0].n_tokens} tokens, first after {ttft_ms:.2f} ms, "
            f"then {token_us:.0f} us each ({1e6 / token_us:.0f} tok/s)"
        )
    ttft_ms, token_us = (h - b for h, b in zip(figures["http"], figures["bare"], strict=True))
    print(f"gptoss adds {ttft_ms:+.2f} ms to the first token, {token_us:+.0f} us to each ", end="")
    print(f"(engine threads: {threads}, {os.cpu_count()} cores)")


class Run:
    """Times at which tokens came."""

    def __init__(self) -> None:
        self._start_s = time.perf_counter()
        self._times_s: list[float] = []

    def tick(self) -> None:
        self._times_s.append(time.perf_counter())

    @property
    def n_tokens(self) -> int:
        return len(self._times_s)

    @property
    def ttft_s(self) -> float:
        return self._times_s[0] - self._start_s

    @property
    def token_s(self) -> float:
        return (self._times_s[-1] - self._times_s[0]) / (len(self._times_s) - 1)


class BareLoop:
    def __init__(self, path: Path, prompt: list[int], threads: int) -> None:
        params = ContextParams(n_ctx=N_CTX, n_threads_prefill=threads, n_threads_decode=1)
        self._context = Context(Model(path), params)
        self._prompt = prompt

    def run(self) -> Run:
        sampler = Sampler(SamplingParams(temperature=0))
        self._context.remove(0)
        run = Run()
        self._context.decode(self._prompt, position=0)
        position = len(self._prompt)
        while (token := sampler.sample(self._context)) not in STOP_TOKENS:
            run.tick()
            self._context.decode([token], position=position)
            position += 1
        return run


class Server:
    """`gptoss serve` with nano loaded."""

    def __init__(self, home: Path, gguf: Path, threads: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._model = str(gguf)
        self._environment = os.environ | {
            "GPTOSS_HOME": str(home),
            "GPTOSS_PORT": str(self._port),
            "GPTOSS_THREADS": str(threads),
        }

    def __enter__(self) -> "Server":
        command = [sys.executable, "-m", "gptoss_local", "serve"]
        self._process = subprocess.Popen(command, env=self._environment, stderr=subprocess.DEVNULL)
        while True:
            try:
                self._connection = socket.create_connection(("127.0.0.1", self._port))
                return self
            except ConnectionRefusedError:
                time.sleep(0.05)

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.terminate()
        self._process.wait()

    def run(self) -> Run:
        body = json.dumps(
            {
                "model": self._model,
                "messages": [{"role": "user", "content": QUESTION}],
                "think": False,
                "options": {"temperature": 0},
            }
        ).encode()
        head = f"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        run = Run()
        self._connection.sendall(head.encode() + body)
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            received += self._connection.recv(65536)
            for _ in range(received.count(b'"done":false') - run.n_tokens):
                run.tick()
        return run


if __name__ == "__main__":
    main()
