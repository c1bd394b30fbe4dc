"""Measure the time to the first token of each turn of a growing conversation, over HTTP, on nano.

    python bench/turns.py [--turns N] [--tokens N] [--pause S]
    python bench/turns.py --restart [--tokens N]
    python bench/turns.py --day FILE.gguf [--tokens N]

Starts a server in an empty home. Every turn adds a message of about `--tokens` tokens and waits
`--pause` seconds after the answer, as a reader does. Some turns are sent a second time with another
first message, so that nothing of them is cached. Prints both times.

With `--restart`, a conversation of one long message continues after the server was restarted, with
prefixes on disk and without.

With `--day`, five conversations of `--tokens` continue, and 35 others are read once. Compares the
last turns with the first, and exits with 1 if they are more than 3 % slower.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from peers import ONE_GPU, SAMPLING, Answer, Ours, frames, gptoss, text, whole_words

N_ACTIVE, N_IDLE, N_ROUNDS, N_MEASURED = 5, 35, 16, 3


def ask(
    url: str, model: str, messages: list[dict[str, Any]]
) -> tuple[float, dict[str, Any], dict[str, Any]]:
    """Return seconds to the first token, the answer's message and the last frame."""
    body = {
        "model": model,
        "messages": messages,
        "options": {"temperature": 0, "num_predict": 200},
    }
    start_s, first_s = time.perf_counter(), 0.0
    content = thinking = ""
    with httpx.stream("POST", f"{url}/api/chat", json=body, timeout=600, trust_env=False) as reply:
        for frame in frames(reply):
            first_s = first_s or time.perf_counter() - start_s
            content += frame["message"]["content"]
            thinking += frame["message"].get("thinking", "")
    return first_s, {"role": "assistant", "content": content, "thinking": thinking}, frame


def question(turn: int, n_tokens: int) -> dict[str, Any]:
    sentences = [f"The old river near house {turn} of {i} is quiet." for i in range(n_tokens // 13)]
    return {"role": "user", "content": " ".join([*sentences, "What is 3 plus 4?"])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=800)
    parser.add_argument("--pause", type=float, default=1.0)
    parser.add_argument("--restart", action="store_true")
    parser.add_argument("--day", type=Path, help="a GGUF")
    arguments = parser.parse_args()
    if arguments.day:
        sys.exit(day(arguments.day, arguments.tokens))
    if arguments.restart:
        restart(arguments.tokens)
    else:
        run(arguments.turns, arguments.tokens, arguments.pause)


def run(n_turns: int, n_tokens: int, pause_s: float) -> None:
    messages: list[dict[str, Any]] = []
    with gptoss(None, {}) as server:
        for turn in range(1, n_turns + 1):
            messages.append(question(turn, n_tokens))
            first_s, message, end = ask(*server, messages)
            n_prompt, n_cached = end["prompt_eval_count"], end.get("prompt_cached_count", 0)
            line = (
                f"turn {turn:2}: {n_prompt:6} tokens, {n_cached:6} cached, {first_s * 1e3:6.0f} ms"
            )
            time.sleep(pause_s)
            if turn % 5 == 0:
                others = [{"role": "system", "content": f"Be brief in turn {turn}."}, *messages]
                line += f", without reuse {ask(*server, others)[0] * 1e3:6.0f} ms"
            print(line, flush=True)
            messages.append(message)


def restart(n_tokens: int) -> None:
    messages = [question(1, n_tokens)]
    on_disk = {"GPTOSS_PREFIX_DISK_BYTES": str(2**32)}
    with tempfile.TemporaryDirectory() as home:
        with gptoss(None, on_disk, home) as server:
            first_s, message, end = ask(*server, messages)
            print(f"first turn: {end['prompt_eval_count']} tokens, {first_s:.1f} s")
            time.sleep(1)  # it saves when it ends
        (path,) = Path(home).rglob("*.prefix")
        print(f"{path.stat().st_size / 1e6:.0f} MB on disk")
        messages += [message, {"role": "user", "content": "What is 3 plus 5?"}]
        for settings in (on_disk, {}):
            with gptoss(None, settings, home) as server:
                first_s, _, end = ask(*server, messages)
            n_cached = end.get("prompt_cached_count", 0)
            print(f"again: {end['prompt_eval_count']} tokens, {n_cached} cached, {first_s:.2f} s")


def day(model: Path, n_tokens: int) -> int:
    words = whole_words(model)
    settings = {"GPTOSS_NUM_PARALLEL": "16", "GPTOSS_CONTEXT_LENGTH": "131072"}
    settings |= {"GPTOSS_PREFIX_DISK_BYTES": str(2**34), "GPTOSS_PREFIX_SAVE_S": "1"}
    prompts = [text(words, n_tokens, seed) for seed in range(N_ACTIVE + N_IDLE)]
    with gptoss(model, ONE_GPU | settings) as (url, name):
        peer = Ours(url, name)

        def continued(n_rounds: int) -> list[Answer]:
            answers = []
            for _ in range(n_rounds):
                for i in range(N_ACTIVE):
                    prompts[i] += text(words, 16, len(prompts[i]))
                    answers.append(peer.complete(prompts[i], 128, SAMPLING))
            return answers

        def read(some: list[str]) -> None:
            for prompt in some:
                peer.complete(prompt, 2, SAMPLING)

        read(prompts[:N_ACTIVE])
        first = show("first turns", url, continued(N_MEASURED))
        read(prompts[N_ACTIVE:])
        show("with idle ones", url, continued(1))
        time.sleep(10)  # those in the cache are written
        continued(N_ROUNDS)
        time.sleep(6)  # the others move to the first cells
        last = show("last turns", url, continued(N_MEASURED))
        peer.close()
    ratios = [last[0] / first[0], last[1] / first[1]]
    print(f"first token {ratios[0]:.3f}, wanted <= 1.03; "
          f"tokens/s {ratios[1]:.3f}, wanted >= 0.97")  # fmt: skip
    return int(ratios[0] > 1.03 or ratios[1] < 0.97)


def show(when: str, url: str, answers: list[Answer]) -> tuple[float, float]:
    """Return the medians of seconds to the first token and of tokens per second."""
    first_s = statistics.median(answer.ttft_s for answer in answers)
    tok_s = statistics.median((answer.n_tokens - 1) / answer.decode_s for answer in answers)
    metrics = httpx.get(f"{url}/metrics", trust_env=False).text.splitlines()
    (n_cells,) = (line.split()[-1] for line in metrics if "_cache_cells_kept{" in line)
    print(f"{when}: {1e3 * first_s:.1f} ms, {tok_s:.1f} tokens/s, {n_cells} cells", flush=True)
    return first_s, tok_s


if __name__ == "__main__":
    main()
