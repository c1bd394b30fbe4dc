"""Compare the time to the first token of prompts of 4,096 tokens, over HTTP, with llama-bench's.

    python bench/ttft.py LLAMA_FOLDER FILE.gguf

LLAMA_FOLDER has `llama-bench`. With 1 place, the default number and 16: plain prompts at once and
after a pause, in which the engine plans; then with filters, which are new to it at first. No prompt
is like an earlier one. Prints each time in order, as cached prompts of other places cost, too.
Exits with 1 if a median is below 0.93 of llama-bench.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

from gpu_speed import FILTERS, N_PROMPT, llama_bench
from peers import ONE_GPU, SAMPLING, Ours, gptoss, text, whole_words

PLACES = {"1 place": "1", "default places": "", "16 places": "16"}
ASKED = {  # the pause before each prompt, and its sampling
    "plain, at once": (0.05, SAMPLING),
    "plain, after a pause": (2.6, SAMPLING),
    "filtered, after a pause": (2.6, FILTERS),
}
N_ROUNDS, N_TOKENS = 4, 8
LEAST = 0.93


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("llama_folder", type=Path)
    parser.add_argument("model", type=Path)
    arguments = parser.parse_args()
    bare_ms = N_PROMPT / llama_bench(arguments.llama_folder, arguments.model)[0] * 1e3
    print(f"llama-bench: {bare_ms:.0f} ms", flush=True)
    words, ratios = whole_words(arguments.model), list[float]()
    for places, number in PLACES.items():
        settings = {"GPTOSS_CONTEXT_LENGTH": "65536"}
        settings |= {"GPTOSS_NUM_PARALLEL": number} if number else {}
        with gptoss(arguments.model, ONE_GPU | settings) as (url, name):
            peer = Ours(url, name)
            peer.complete(text(words, N_PROMPT, 0), N_TOKENS, SAMPLING)
            for i, (what, (pause_s, sampling)) in enumerate(ASKED.items()):
                times_ms, tokens_ms = list[float](), list[float]()
                for k in range(N_ROUNDS):
                    time.sleep(pause_s)
                    prompt = text(words, N_PROMPT, 1 + i * N_ROUNDS + k)
                    answer = peer.complete(prompt, N_TOKENS, sampling)
                    times_ms.append(answer.ttft_s * 1e3)
                    tokens_ms.append(answer.decode_s * 1e3 / (N_TOKENS - 1))
                ratios.append(bare_ms / statistics.median(times_ms))
                row = " ".join(f"{ms:.0f}" for ms in times_ms)
                print(
                    f"{places}, {what}: {row} ms, {ratios[-1]:.2f} of llama-bench; "
                    f"then {statistics.median(tokens_ms):.1f} ms a token",
                    flush=True,
                )
            peer.close()
    sys.exit(min(ratios) < LEAST)


if __name__ == "__main__":
    main()
