"""Measure, over HTTP, what a long conversation costs the next one and what returning to it costs.

    python bench/beside.py FILE.gguf [--long 65536] [--rounds 3]

`gptoss serve` answers a message of `--long` tokens, then others of 4,096, then the first one
followed by another of 64. In one way, the first stays in the cache, as it does without prefixes on
disk. In the other, it is on disk and leaves the cache as soon as another has been answered and a
second has passed without a request; by default that takes ten seconds, and two minutes without use
of the first.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from peers import SAMPLING, Ours, free_url, load, serving, text, whole_words

from gptoss_local.models.store import adopt_file
from gptoss_local.settings import Settings

N_PROMPT, N_ANSWER, N_NEW = 4096, 64, 64
WAYS = {
    "stays": {"GPTOSS_PREFIX_DISK_BYTES": "0"},
    "makes way": {"GPTOSS_PREFIX_SAVE_S": "1", "GPTOSS_PREFIX_KEEP_S": "0"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--long", type=int, default=65_536, help="tokens")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    for way, environment in WAYS.items():
        with tempfile.TemporaryDirectory() as home:
            print(f"{way}: {measure(arguments, Path(home), environment)}", flush=True)


def measure(arguments: argparse.Namespace, home: Path, environment: dict[str, str]) -> str:
    words = whole_words(arguments.model)
    name = adopt_file(arguments.model, Settings(home=home)).name
    url = free_url()
    port = url.rpartition(":")[2]
    environment = environment | {"GPTOSS_HOME": str(home), "GPTOSS_PORT": port}
    command = [sys.executable, "-m", "gptoss_local", "serve"]
    with serving(command, environment, f"{url}/api/version"):
        load(url, name)
        peer = Ours(url, name)
        peer.complete(message(words, N_PROMPT, seed=0), 16, SAMPLING)
        first = message(words, arguments.long, seed=1)
        first_s = peer.complete(first, 16, SAMPLING).ttft_s
        peer.complete(message(words, N_PROMPT, seed=2), 16, SAMPLING)
        if "GPTOSS_PREFIX_SAVE_S" in environment:
            wait_for_files(home)
        found = []
        for seed in range(3, 3 + arguments.rounds):
            answer = peer.complete(message(words, N_PROMPT, seed), N_ANSWER, SAMPLING)
            each_ms = 1e3 * answer.decode_s / (answer.n_tokens - 1)
            found.append((N_PROMPT / answer.ttft_s, each_ms))
        back_s = peer.complete(first + message(words, N_NEW, seed=99), 8, SAMPLING).ttft_s
    speed, each_ms = (statistics.median(values) for values in zip(*found, strict=True))
    return (
        f"{arguments.long} tokens read in {first_s:.2f} s; then prompts with {speed:.0f} tokens/s,"
        f" {each_ms:.2f} ms a token; {N_NEW} tokens after the first again in {back_s:.2f} s"
    )


def message(words: list[str], n_tokens: int, seed: int) -> str:
    """Make a message after which the conversation can continue, as in a chat."""
    return f"<|start|>user<|message|>{text(words, n_tokens, seed)}<|end|>"


def wait_for_files(home: Path) -> None:
    """Wait until all three are on disk, and what leaves the cache has left it."""
    while len(list(home.rglob("*.prefix"))) < 3:
        time.sleep(0.2)
    time.sleep(2)


if __name__ == "__main__":
    main()
