"""Compare gptoss and llama-server: the same GGUF and prompts, over HTTP, in one run.

    python bench/against_llama_server.py LLAMA_SERVER [--model FILE.gguf] [--threads N] [--gpu]

LLAMA_SERVER is built from the llama.cpp that our llama-cpp-python ships (its source distribution,
vendor/llama.cpp: `cmake -B build && cmake --build build --target llama-server`). Both sample as
gpt-oss is meant to be sampled (temperature 1, all filters off). Measured are the decode of 1
stream, of 8, and of 1 again, 32 requests at the same time, and the time to the first token of each
turn of a conversation. In it, a turn generates its analysis, and the next prompt has a short answer
in its place. The conversation is then repeated, as if the user went back to its beginning. Rounds
alternate; medians are printed.
"""

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from peers import SAMPLING, Answer, Ours, Peer, Theirs, gptoss, llama_server

from gptoss_local.base.settings import load_settings
from gptoss_local.harmony import ChatRequest, Message, Vocabulary, load_vocabulary
from gptoss_local.harmony.render import render_chat
from gptoss_local.models.nano import ensure_gguf

N_PARALLEL, N_CTX, N_QUEUED = 8, 32_768, 32
GREEDY = {"temperature": 0.0}
PAUSE_S = 0.5  # between two turns
ANSWER_WORDS = 60  # of what a turn leaves in the conversation


def decode_rate(peer: Peer, n_streams: int, n_tokens: int, seed: int) -> float:
    """Return tokens per second of all streams together, from the first token on."""
    answers = together(peer, n_streams, n_tokens, seed)
    n_decoded = sum(answer.n_tokens - 1 for answer in answers)
    return n_decoded / max(answer.decode_s for answer in answers)


def queue(peer: Peer, seed: int) -> tuple[float, float]:
    """Return seconds until 32 requests are answered, and the median time to first token."""
    start_s = time.perf_counter()
    answers = together(peer, N_QUEUED, 64, seed)
    return time.perf_counter() - start_s, statistics.median(a.ttft_s for a in answers)


def together(peer: Peer, n_requests: int, n_tokens: int, seed: int) -> list[Answer]:
    """Send all requests at the same time; for long stories, so that no answer stops soon."""
    rng = random.Random(seed)
    prompts = [
        f"<|start|>user<|message|>{words(rng, 90)}<|end|><|start|>assistant<|channel|>"
        for _ in range(n_requests)
    ]
    with ThreadPoolExecutor(n_requests) as pool:
        return list(pool.map(lambda p: peer.complete(p, n_tokens, SAMPLING), prompts))


def turns(
    peer: Peer, vocabulary: Vocabulary, n_turns: int, n_words: int, n_analysis: int
) -> list[Answer]:
    """Hold a conversation that grows by the same number of words a turn, with pauses to read."""
    rng, messages, answers = random.Random(1), list[Message](), []
    for _ in range(n_turns):
        messages.append(Message(role="user", content=words(rng, n_words)))
        request = ChatRequest(messages=tuple(messages), effort="high")
        prompt = vocabulary.encoding.decode(render_chat(request, vocabulary))
        answers.append(peer.complete(prompt, n_analysis, GREEDY))
        messages.append(Message(role="assistant", content=words(rng, ANSWER_WORDS)))
        time.sleep(PAUSE_S)
    return answers


def words(rng: random.Random, n_words: int) -> str:
    letters = "abcdefghijklmnoprstuvw"
    return " ".join("".join(rng.choices(letters, k=rng.randint(2, 6))) for _ in range(n_words))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("llama_server", type=Path)
    parser.add_argument("--model", type=Path, help="a GGUF; the embedded nano when not given")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--turns", type=int, default=0, help="of the conversation; 0 for none")
    parser.add_argument("--turn-words", type=int, default=400, help="2.2 tokens each")
    parser.add_argument("--analysis", type=int, default=300, help="tokens that a turn generates")
    arguments = parser.parse_args()
    cache = load_settings().cache_dir
    model = arguments.model or ensure_gguf(cache)
    vocabulary = load_vocabulary()
    threads = str(arguments.threads)
    options = ("-c", str(N_CTX), "-np", str(N_PARALLEL), "-kvu", "-t", threads, "-ngl", "99")
    settings = {"GPTOSS_THREADS": threads, "GPTOSS_NUM_PARALLEL": str(N_PARALLEL)}
    settings |= {"GPTOSS_CONTEXT_LENGTH": str(N_CTX)}
    patient = {"GOMP_SPINCOUNT": "1000"}  # as our engine has it; kind to a busy machine
    with (
        gptoss(model, settings) as (url, name),
        llama_server(
            arguments.llama_server, model, *options, "-fa", "on", environment=patient
        ) as theirs,
    ):
        compare([Ours(url, name), Theirs(theirs, vocabulary)], vocabulary, arguments)


def compare(peers: list[Peer], vocabulary: Vocabulary, arguments: argparse.Namespace) -> None:
    for n_streams, when in ((1, ""), (N_PARALLEL, ""), (1, " after these")):
        for peer in peers:
            decode_rate(peer, n_streams, 32, seed=0)  # load, warm up
        rates = in_turns(peers, arguments.rounds, lambda p, r, n=n_streams: decode_rate(
            p, n, arguments.tokens, r))  # fmt: skip
        show(f"decode, {n_streams} streams{when}, tok/s", rates, higher_is_better=True)
    queued = in_turns(peers, arguments.rounds, lambda p, r: queue(p, 100 + r))
    for i, what in enumerate(("until all are answered", "median time to first token")):
        values = {name: [value[i] for value in found] for name, found in queued.items()}
        show(f"{N_QUEUED} requests, {what}, s", values, higher_is_better=False)
    if arguments.turns:
        sizes = arguments.turns, arguments.turn_words, arguments.analysis
        for when in ("", " again"):
            for peer in peers:
                ttft_ms = [1e3 * answer.ttft_s for answer in turns(peer, vocabulary, *sizes)]
                found = " ".join(f"{t:.0f}" for t in ttft_ms)
                print(f"turns{when}, {peer.name}: ms to first token {found}", flush=True)


def in_turns(
    peers: list[Peer], n_rounds: int, measure: Callable[[Peer, int], Any]
) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {peer.name: [] for peer in peers}
    for number in range(n_rounds):
        for peer in peers:
            found[peer.name].append(measure(peer, number))
    return found


def show(what: str, found: dict[str, list[float]], *, higher_is_better: bool) -> None:
    ours, theirs = (statistics.median(values) for values in found.values())
    ratio = ours / theirs if higher_is_better else theirs / ours
    print(f"{what}: gptoss {ours:.3g}, llama-server {theirs:.3g}, ratio {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
