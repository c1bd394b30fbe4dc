"""Compare Dynamo's router that knows our caches with one that does not, on nano.

    python bench/dynamo_routing.py [--conversations N] [--turns N] [--prefixes N] [--rounds N]

A frontend of Dynamo and two workers of ours, on this machine, answer the same trace with
`--router-mode kv` and `round-robin`, each time in new processes. Conversations share a system
message; each turn adds a question and an answer of 16 tokens, and conversations take turns in a
random order, `--clients` of them at a time. A worker's cache has `--prefixes` slots. Printed are
the share of all prompt tokens that came from a cache, and the time to the first token. pip fetches
Dynamo once (80 MB).
"""

import argparse
import os
import random
import statistics
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gptoss_local.harmony import Vocabulary, load_vocabulary
from gptoss_local.models.nano import ensure_gguf
from gptoss_local.settings import load_settings
from tests.dynamo.cluster import Cluster, running
from tests.dynamo.packages import dynamo_packages

N_ANSWER = 16
SYSTEM = "You are a helpful assistant. " + "Be brief, be kind, and say what you do not know. " * 8


class Conversation:
    """The prompts of one client, each with all earlier ones in it."""

    def __init__(self, number: int, vocabulary: Vocabulary) -> None:
        self._number, self._vocabulary = number, vocabulary
        self._n_turns = 0
        self._tokens = vocabulary.encode_tagged(f"<|start|>system<|message|>{SYSTEM}<|end|>")
        self.lock = threading.Lock()

    def turn(self, cluster: Cluster) -> tuple[int, int, float]:
        """Ask the next question; returns the prompt's tokens, those cached, and seconds."""
        self._n_turns += 1
        n_sentences = 40 if self._n_turns == 1 else 10
        about = [f"House {self._number} has room {i}." for i in range(n_sentences)]
        self._tokens += self._vocabulary.encode_tagged(
            f"<|start|>user<|message|>{' '.join(about)} Question {self._n_turns}?<|end|>"
        )
        prompt = self._tokens + self._vocabulary.encode_tagged(
            "<|start|>assistant<|channel|>final<|message|>"
        )
        answer = cluster.stream(prompt, N_ANSWER, ignore_eos=True)
        start_s = time.perf_counter()
        tokens = iter(answer)
        next(tokens)
        first_s = time.perf_counter() - start_s
        list(tokens)
        if answer.error or answer.n_cached is None:
            raise RuntimeError(answer.error or "the frontend does not say what was cached")
        self._tokens = prompt + answer.tokens + self._vocabulary.encode_tagged("<|end|>")
        return len(prompt), answer.n_cached, first_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=12)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--prefixes", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    os.environ["NO_PROXY"] = "127.0.0.1"
    packages = dynamo_packages()
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "cache").mkdir()
        gguf = ensure_gguf(load_settings().cache_dir)
        (Path(home) / "cache" / gguf.name).hardlink_to(gguf)
        vocabulary = load_vocabulary()
        for _ in range(arguments.rounds):
            for mode in ("kv", "round-robin"):
                options = {"router_mode": mode, "n_parallel": arguments.prefixes}
                with (
                    tempfile.TemporaryDirectory() as folder,
                    running(packages, Path(home), Path(folder), **options) as cluster,
                ):
                    cluster.add_workers(2)
                    measure(mode, cluster, vocabulary, arguments)


def measure(
    mode: str, cluster: Cluster, vocabulary: Vocabulary, arguments: argparse.Namespace
) -> None:
    conversations = [Conversation(i, vocabulary) for i in range(arguments.conversations)]
    order = conversations * arguments.turns
    random.Random(1).shuffle(order)

    def turn(conversation: Conversation) -> tuple[int, int, float]:
        with conversation.lock:
            return conversation.turn(cluster)

    with ThreadPoolExecutor(arguments.clients) as pool:
        turns = list(pool.map(turn, order))
    n_prompt, n_cached = sum(t[0] for t in turns), sum(t[1] for t in turns)
    first_ms = sorted(t[2] * 1e3 for t in turns)
    deciles = statistics.quantiles(first_ms, n=10)
    print(
        f"{mode:12} {len(turns)} turns, {n_prompt} prompt tokens, {n_cached / n_prompt:.1%} cached,"
        f" first token {statistics.median(first_ms):.0f} ms (median), {deciles[-1]:.0f} ms (90 %)",
        flush=True,
    )


if __name__ == "__main__":
    main()
