"""Clients get headers at once, and something to count while nothing is written."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from gptoss_local.harmony import Vocabulary
from gptoss_local.server import streaming
from tests.scripted_engine import Script, answer, calls, run_scripted_server
from tests.server.dialects import NAMES, Said, speak, user

ARGUMENTS = {"path": "a.py", "text": "x = 1\n" * 200}
SCHEMA = {"type": "object", "properties": {name: {"type": "string"} for name in ARGUMENTS}}
WRITE = {"name": "write", "description": "", "parameters": SCHEMA}
SILENCE_S, BEAT_S = 3.0, 1.0
PROMPTS = ("/v1/completions", "/api/generate")
PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat")


@pytest.fixture(scope="module")
def url(nano_home: Path, vocabulary: Vocabulary) -> Iterator[str]:
    script = Script(vocabulary)
    script.say("Late", answer("Here I am.", prefill_s=SILENCE_S))
    script.say("Slow", calls("write", ARGUMENTS, pauses={200: SILENCE_S}, tok_s=2000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "_HEARTBEAT_S", BEAT_S)
        with run_scripted_server(nano_home, script) as server:
            yield server.url


def longest_wait_s(url: str, path: str, body: dict[str, Any]) -> float:
    """Return the longest time between events that a client's parser sees, and comments of
    Responses.
    """
    beats = ("data:", "{", ":") if path == "/v1/responses" else ("data:", "{")
    last_s, longest_s = time.monotonic(), 0.0
    with httpx.stream("POST", url + path, json=body, timeout=60, trust_env=False) as reply:
        assert reply.status_code == 200
        assert time.monotonic() - last_s < SILENCE_S - 1, "the headers waited"
        for line in reply.iter_lines():
            if line.startswith(beats):
                longest_s = max(longest_s, time.monotonic() - last_s)
                last_s = time.monotonic()
    return longest_s


def body(path: str, question: str) -> dict[str, Any]:
    """Make a streamed request, with a tool in each dialect's spelling."""
    if path in PROMPTS:
        return {"model": "nano", "stream": True, "prompt": question}
    tool: dict[str, Any] = {"type": "function", **WRITE}
    if path in ("/v1/chat/completions", "/api/chat"):
        tool = {"type": "function", "function": WRITE}
    turns: dict[str, Any] = {"messages": [user(question)]}
    if path == "/v1/responses":
        turns = {"input": question}
    elif path == "/v1/messages":
        turns["max_tokens"] = 9000
    return {"model": "nano", "stream": True, "tools": [tool]} | turns


@pytest.mark.timing
def test_events_come_while_nothing_else_does(url: str) -> None:
    """A client that waits for the next event, as most do, waits for a beat at most."""
    asked = [(path, question) for path in PATHS for question in ("Late", "Slow")]
    asked += [(path, "Late") for path in PROMPTS]
    with ThreadPoolExecutor(len(asked)) as pool:
        found = pool.map(lambda one: longest_wait_s(url, one[0], body(*one)), asked)
        for one, wait_s in zip(asked, found, strict=True):
            assert BEAT_S / 2 < wait_s < SILENCE_S - 1, one


def test_sdks_take_the_events_that_say_nothing(url: str) -> None:
    with speak(url) as dialects, ThreadPoolExecutor() as pool:

        def ask(name: str) -> Said:
            return dialects[name].ask([user("Slow")], tools=[WRITE], stream=True)

        for said in pool.map(ask, NAMES):
            assert [call.arguments for call in said.calls] == [ARGUMENTS]
