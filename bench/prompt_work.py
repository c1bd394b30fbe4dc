"""Measure the server's own work on a prompt, and how long other requests wait meanwhile.

    python bench/prompt_work.py [--tokens 4096 33000] [--rounds N]

Anthropic's counting endpoint reads, renders and encodes a new prompt as an answer does, but asks no
engine. Meanwhile another connection asks for the version again and again; its longest wait in each
round counts. Prints medians; the same with a short prompt shows what the machine adds.
"""

import argparse
import http.client
import json
import random
import statistics
import tempfile
import threading
import time
from pathlib import Path

from http_overhead import Server

from gptoss_local.models.nano import ensure_gguf
from gptoss_local.settings import load_settings

_SOURCES = Path(__file__).parent.parent / "gptoss_local"
_CHARACTERS_A_TOKEN = 4.3


class Poller:
    """Ask for the version again and again, and keep the longest wait."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.longest_s = 0.0

    def __enter__(self) -> "Poller":
        self._thread.start()
        time.sleep(0.05)
        self.longest_s = 0.0
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            start_s = time.perf_counter()
            ask(self._connection, "GET", "/api/version")
            self.longest_s = max(self.longest_s, time.perf_counter() - start_s)
            time.sleep(0.0005)


def ask(connection: http.client.HTTPConnection, method: str, path: str, body: object = None) -> str:
    data = None if body is None else json.dumps(body)
    connection.request(method, path, data, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read().decode()
    if answer.status != 200:
        raise SystemExit(text)
    return text


def source_text() -> str:
    return "\n".join(path.read_text() for path in sorted(_SOURCES.rglob("*.py")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=[0, 4_096, 33_000])
    parser.add_argument("--rounds", type=int, default=31)
    arguments = parser.parse_args()
    gguf = ensure_gguf(load_settings().cache_dir)
    text = source_text()
    with tempfile.TemporaryDirectory() as home, Server(Path(home), gguf, threads=1) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        for n_tokens in arguments.tokens:
            times_s, waits_s, n_counted = [], [], []
            for _ in range(arguments.rounds):
                begin = random.randrange(len(text) // 2)
                content = text[begin : begin + int(n_tokens * _CHARACTERS_A_TOKEN)]
                body = {
                    "model": server.model,
                    "messages": [{"role": "user", "content": content or "Hi"}],
                }
                with Poller(server.port) as poller:
                    start_s = time.perf_counter()
                    answer = ask(connection, "POST", "/v1/messages/count_tokens", body)
                    times_s.append(time.perf_counter() - start_s)
                waits_s.append(poller.longest_s)
                n_counted.append(json.loads(answer)["input_tokens"])
            print(
                f"{statistics.median(n_counted):,.0f} tokens: "
                f"{1e3 * statistics.median(times_s):.1f} ms "
                f"(least {1e3 * min(times_s):.1f}), another request waits "
                f"{1e3 * statistics.median(waits_s):.1f} ms (least {1e3 * min(waits_s):.1f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
