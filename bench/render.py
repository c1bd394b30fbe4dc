"""Measure how long an agent's conversation takes to become tokens, turn after turn.

    python bench/render.py [--tokens 10000 40000 100000]

Files of this repository stand for what an agent has read, one a turn. Prints milliseconds of the
first rendering, and of the next turn's, which has two messages more.
"""

import argparse
import datetime
import statistics
import time

import msgspec
from agent_turns import Json, body, conversation, turn

from gptoss_local.harmony import ChatRequest, Vocabulary
from gptoss_local.harmony.render import render_chat
from gptoss_local.models.nano.ranks import load_ranks
from gptoss_local.server.dialects.openai.chat_request import ChatCompletionBody

N_ROUNDS, N_TURNS = 5, 3
DATE = datetime.date(2026, 1, 1)


def request_of(messages: list[Json]) -> ChatRequest:
    return msgspec.convert(body("nano", messages), ChatCompletionBody).to_request()


def render_ms(vocabulary: Vocabulary, request: ChatRequest) -> float:
    start_s = time.perf_counter()
    render_chat(request, vocabulary, DATE)
    return 1e3 * (time.perf_counter() - start_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=[10_000, 40_000, 100_000])
    for n_tokens in parser.parse_args().tokens:
        messages: list[Json] = [{"role": "user", "content": "Read all files."}]
        messages += conversation(n_tokens)
        first, later = [], []
        for _ in range(N_ROUNDS):
            vocabulary = Vocabulary(load_ranks())  # which has rendered nothing
            first.append(render_ms(vocabulary, request_of(messages)))
            for i in range(N_TURNS):
                messages += turn(-i, "A few new words.")
                request = request_of(messages)
                later.append(render_ms(vocabulary, request))
        shown = (f"{statistics.median(each):.1f}" for each in (first, later))
        text = "first {} ms, each later turn {}".format(*shown)
        n_prompt = len(render_chat(request_of(messages), vocabulary, DATE))
        print(f"{n_prompt:,} tokens: {text}", flush=True)


if __name__ == "__main__":
    main()
