"""How long an agent's conversation takes to become tokens, turn after turn.

    python bench/render.py [--tokens 10000 40000 100000]

Files of this repository stand for what an agent has read, one a turn. Milliseconds of the first
rendering, of the next turn's, which has two messages more, and of openai-harmony alone, which
renders all of it each time.
"""

import argparse
import datetime
import statistics
import time
from itertools import cycle
from pathlib import Path

from openai_harmony import Conversation, Role
from openai_harmony import Message as HarmonyMessage

from gptoss_local.chat import ChatRequest, Message, ToolRequest, Vocabulary
from gptoss_local.chat.parts import RenderedParts
from gptoss_local.chat.render import render_chat
from gptoss_local.nano import ensure_gguf
from gptoss_local.settings import load_settings
from gptoss_local.store import read_tokens

N_ROUNDS, N_TURNS = 5, 3
DATE = datetime.date(2026, 1, 1)


def conversation(vocabulary: Vocabulary, n_tokens: int) -> list[Message]:
    """Of at least so many tokens."""
    messages = [Message(role="user", content="Read all files.")]
    for i, path in enumerate(cycle(sorted(Path(__file__).parents[1].glob("gptoss_local/**/*.py")))):
        messages += turn(i, path.read_text())
        if n_rendered(vocabulary, messages) >= n_tokens:
            return messages
    raise AssertionError("a cycle has no end")


def turn(i: int, text: str) -> list[Message]:
    call = ToolRequest("read_file", {"path": f"file_{i}.py"}, f"call_{i}")
    result = Message(role="tool", content=f"# {i}\n{text}", tool_call_id=call.id)
    return [Message(role="assistant", tool_calls=(call,)), result]


def n_rendered(vocabulary: Vocabulary, messages: list[Message]) -> int:
    return len(render_chat(ChatRequest(messages=tuple(messages)), vocabulary, DATE))


def render_ms(vocabulary: Vocabulary, messages: list[Message]) -> float:
    start_s = time.perf_counter()
    n_rendered(vocabulary, messages)
    return 1e3 * (time.perf_counter() - start_s)


def harmony_ms(vocabulary: Vocabulary, messages: list[Message]) -> float:
    """Texts alone, in messages of one kind."""
    start_s = time.perf_counter()
    all_text = [HarmonyMessage.from_role_and_content(Role.USER, m.content) for m in messages]
    vocabulary.encoding.render_conversation(Conversation.from_messages(all_text))
    return 1e3 * (time.perf_counter() - start_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=[10_000, 40_000, 100_000])
    cache_dir = load_settings().cache_dir
    vocabulary = Vocabulary.from_model(read_tokens(ensure_gguf(cache_dir)), cache_dir)
    for n_tokens in parser.parse_args().tokens:
        messages = conversation(vocabulary, n_tokens)
        first, later, harmony = [], [], []
        for _ in range(N_ROUNDS):
            vocabulary.rendered = RenderedParts(vocabulary.encoding)
            first.append(render_ms(vocabulary, messages))
            for i in range(N_TURNS):
                messages += turn(-i, "A few new words.")
                later.append(render_ms(vocabulary, messages))
                harmony.append(harmony_ms(vocabulary, messages))
        shown = (f"{statistics.median(each):.1f}" for each in (first, later, harmony))
        text = "first {} ms, each later turn {}, openai-harmony {}".format(*shown)
        print(f"{n_rendered(vocabulary, messages):,} tokens: {text}", flush=True)


if __name__ == "__main__":
    main()
