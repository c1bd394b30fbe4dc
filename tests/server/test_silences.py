"""Clients get headers at once, and something to count while nothing is written."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from gptoss_local.harmony import Vocabulary
from tests.scripted_engine import Script, answer, calls, run_scripted_server
from tests.server.dialects import NAMES, speak, user

ARGUMENTS = {"path": "a.py", "text": "x = 1\n" * 200}
SCHEMA = {"type": "object", "properties": {name: {"type": "string"} for name in ARGUMENTS}}
SILENCE_S = 12.0
BEAT_S = 10.0
TURNS = {"/v1/responses": "input", "/v1/completions": "prompt", "/api/generate": "prompt"}
PATHS = ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat"]


@pytest.fixture(scope="module")
def url(nano_home: Path, vocabulary: Vocabulary) -> Iterator[str]:
    script = Script(vocabulary)
    script.say("Late", answer("Here I am.", prefill_s=SILENCE_S))
    script.say("Slow", calls("write", ARGUMENTS, pauses={200: SILENCE_S}, tok_s=2000))
    with run_scripted_server(nano_home, script) as server:
        yield server.url


def body(path: str, question: str) -> dict[str, Any]:
    """A streamed request, with a tool in each dialect's spelling."""
    turns: Any = question if path in TURNS else [user(question)]
    tool = {"type": "function", "name": "write", "parameters": SCHEMA}
    if path in ("/v1/chat/completions", "/api/chat"):
        tool = {"type": "function", "function": {"name": "write", "parameters": SCHEMA}}
    tools = {} if TURNS.get(path) == "prompt" else {"tools": [tool]}
    limit = {"max_tokens": 9000} if path == "/v1/messages" else {}
    return {"model": "nano", "stream": True, TURNS.get(path, "messages"): turns} | tools | limit


async def _gaps(url: str, path: str, question: str) -> list[float]:
    """Seconds between the events that a client's parser sees, and the comments of Responses."""
    beats = ("data:", "{", ":") if path == "/v1/responses" else ("data:", "{")
    last_s, gaps = time.monotonic(), []
    async with (
        httpx.AsyncClient(base_url=url, timeout=60) as client,
        client.stream("POST", path, json=body(path, question)) as response,
    ):
        async for line in response.aiter_lines():
            if line.startswith(beats):
                gaps.append(time.monotonic() - last_s)
                last_s = time.monotonic()
    return gaps


@pytest.mark.timing
async def test_events_come_while_nothing_else_does(url: str) -> None:
    """A client that waits for the next event, as most do, waits for ten seconds at most."""
    asked = [(path, question) for path in PATHS for question in ("Late", "Slow")]
    asked += [("/v1/completions", "Late"), ("/api/generate", "Late")]
    found = await asyncio.gather(*(_gaps(url, *one) for one in asked))
    for one, gaps in zip(asked, found, strict=True):
        assert sum(gaps) > SILENCE_S, one
        assert max(gaps) < SILENCE_S, one
        assert sum(gap > BEAT_S - 1 for gap in gaps) == 1, one  # a beat fills a silence only


def test_sdks_take_the_events_that_say_nothing(url: str) -> None:
    with speak(url) as dialects, ThreadPoolExecutor() as pool:
        said = pool.map(lambda name: dialects[name].ask([user("Late")], stream=True), NAMES)
        assert [each.content for each in said] == ["Here I am."] * len(NAMES)


@pytest.mark.timing
@pytest.mark.parametrize("path", ["/api/chat", "/v1/responses"])
def test_headers_do_not_wait_for_the_first_frame(url: str, path: str) -> None:
    begun_s, sent = time.monotonic(), body(path, "Late")
    with httpx.stream("POST", url + path, json=sent, timeout=30, trust_env=False) as reply:
        assert reply.status_code == 200
        assert time.monotonic() - begun_s < SILENCE_S - 1
        assert "Here" in reply.read().decode()
