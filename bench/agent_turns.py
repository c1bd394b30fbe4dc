"""Measure what an agent waits for in each turn, from request to first token, in Chat Completions.

    python bench/agent_turns.py LLAMA_CPP_BIN FILE.gguf [--tokens 10000 40000] [--free-gib 15.6]

gptoss and `llama-server` run one after the other, with their defaults except for `--ctx` tokens,
and get the same requests: a conversation in which an agent has read files of this repository with a
tool, then turns of one more call and its short result. Prints seconds of a whole request for one
token, which does not include the wait for a header of harmony.
"""

import argparse
import json
import statistics
import time
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
from offload import ballast, gptoss
from peers import check, llama_server, load

N_TURNS, PAUSE_S, CHARACTERS_A_TOKEN = 8, 0.3, 4
FUNCTION = {
    "name": "read_file",
    "description": "Reads a file.",
    "parameters": {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
    },
}
Json = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="of llama-server")
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, nargs="+", default=[10_000, 40_000])
    parser.add_argument("--free-gib", type=float, help="all that is free when not given")
    parser.add_argument("--ctx", type=int, default=65_536, help="of llama-server")
    arguments = parser.parse_args()
    with ballast(arguments.free_gib):
        with gptoss(arguments.model) as (_, url, name, _, _):
            load(url, name)
            measure("gptoss", url, name, arguments.tokens)
        program = arguments.folder / "llama-server"
        with llama_server(program, arguments.model, "-c", str(arguments.ctx)) as url:
            measure("llama-server", url, "any", arguments.tokens)


def measure(side: str, url: str, name: str, sizes: list[int]) -> None:
    client = httpx.Client(base_url=url, timeout=1800)
    for n_tokens in sizes:
        messages = [{"role": "user", "content": f"Read files of {n_tokens} tokens."}]
        messages += conversation(n_tokens)
        first_s, n_prompt = ask(client, name, messages)
        later_s = []
        for i in range(N_TURNS):
            time.sleep(PAUSE_S)
            messages += turn(-1 - i, f"It holds {i} lines, and nothing else of interest.")
            seconds, n_prompt = ask(client, name, messages)
            later_s.append(seconds)
        shown = " ".join(f"{1e3 * seconds:.0f}" for seconds in later_s)
        median_ms = 1e3 * statistics.median(later_s)
        print(f"{side}, {n_prompt} tokens: first {first_s:.2f} s, each later turn "
              f"{median_ms:.1f} ms ({shown})", flush=True)  # fmt: skip


def conversation(n_tokens: int) -> list[Json]:
    """Make a conversation of about this many tokens."""
    messages: list[Json] = []
    n_left = n_tokens * CHARACTERS_A_TOKEN
    paths = sorted(Path(__file__).parents[1].glob("gptoss_local/**/*.py"))
    for i, path in enumerate(cycle(paths)):
        text = path.read_text()
        messages += turn(i, text)
        n_left -= len(text)
        if n_left <= 0:
            return messages
    raise AssertionError("a cycle has no end")


def turn(i: int, text: str) -> list[Json]:
    arguments = json.dumps({"path": f"file_{i}.py"})
    function = {"name": "read_file", "arguments": arguments}
    call = {"id": f"call_{i}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{i}", "content": text},
    ]


def body(name: str, messages: list[Json]) -> Json:
    tools = [{"type": "function", "function": FUNCTION}]
    return {"model": name, "messages": messages, "tools": tools, "max_tokens": 1}


def ask(client: httpx.Client, name: str, messages: list[Json]) -> tuple[float, int]:
    """Return seconds, and the number of tokens of the prompt."""
    start_s = time.perf_counter()
    answer = check(client.post("/v1/chat/completions", json=body(name, messages)))
    seconds = time.perf_counter() - start_s
    return seconds, answer.json()["usage"]["prompt_tokens"]


if __name__ == "__main__":
    main()
