"""Many large bodies at the same time: they wait for a place, and small ones do not."""

import asyncio
import gzip
import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import httpx
import psutil
import pytest
from starlette.requests import Request

from gptoss_local.base.errors import (
    GptOssError,
    RequestTimeoutError,
    ServerBusyError,
    UsageError,
)
from gptoss_local.server import access, body
from gptoss_local.server.access import Caller
from gptoss_local.server.dialects.ollama.request import ModelBody
from tests.conftest import RunningServer
from tests.server.second_client import assert_undisturbed

N_CLIENTS = 32
MOST_RSS_BYTES = 450_000_000  # beyond that of an idle server
TEXT = json.dumps({"model": "nano", "messages": [{"role": "user", "content": "ab" * 9_000_000}]})
ADA, BOB = Caller("key", "ada"), Caller("key", "bob")


@pytest.fixture(autouse=True)
def one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each caller has one, for bodies of more than 32 kB."""
    monkeypatch.setattr(body, "_TIMEOUT_S", 0.3)
    monkeypatch.setattr(body, "_PLACES", {32_000: 1})
    monkeypatch.setattr(body, "_places", {})


def request(data: bytes, *, ends: bool = True, leaves: bool = False, encoding: str = "") -> Request:
    """A request whose body is there, or else its beginning."""
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": data, "more_body": not ends}]
    messages += [{"type": "http.disconnect"}] if leaves else []

    async def receive() -> Any:
        if not messages:
            await asyncio.Event().wait()
        return messages.pop(0)

    headers = [(b"content-encoding", encoding.encode())] if encoding else []
    return Request({"type": "http", "headers": headers}, receive)


def large(n_bytes: int = 90_000) -> bytes:
    return b'{"model": "nano", "x": "' + b"x" * (n_bytes - 26) + b'"}'


async def read(asked: Request, caller: Caller = ADA) -> str:
    """Read and translate, as a route does."""
    access._caller.set(caller)
    found = await body.read_body(asked, ModelBody)
    return await body.translate(asked, lambda: found.model)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (lambda: request(large()), None),
        (lambda: request(gzip.compress(large()), encoding="gzip"), None),
        (lambda: request(b"x" * 90_000), UsageError),
        (lambda: request(b"x" * 50_000, ends=False, leaves=True), UsageError),
        (lambda: request(b"x" * 50_000, ends=False), RequestTimeoutError),
    ],
    ids=["read", "compressed", "broken", "left", "stalled"],
)
async def test_a_place_is_given_back(
    asked: Callable[[], Request], error: type[GptOssError] | None
) -> None:
    reading = asyncio.create_task(read(asked()))
    if error is None:
        assert await reading == "nano"
    else:
        with pytest.raises(error):
            await reading
    assert await read(request(large())) == "nano"


async def test_a_caller_without_a_place_waits_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if what holds it is a pull, which may last for hours: it holds it until it ends."""
    monkeypatch.setattr(body, "_TIMEOUT_S", 5)
    over = asyncio.Event()

    async def pull() -> None:
        access._caller.set(ADA)
        await body.read_body(request(large()), ModelBody)
        over.set()
        await asyncio.Event().wait()

    pulling = asyncio.create_task(pull())
    await over.wait()
    waiting = asyncio.create_task(read(request(large())))
    for caller in (BOB, Caller("phone", "phone"), Caller("owner"), Caller()):
        assert await asyncio.create_task(read(request(large()), caller)) == "nano"
    small = gzip.compress(large(30_000))  # as Codex sends them
    for asked in (request(large(30_000)), request(small, encoding="gzip")):
        assert await asyncio.create_task(read(asked)) == "nano"
    monkeypatch.setattr(body, "_TIMEOUT_S", 0.1)
    for asked in (request(large()), request(gzip.compress(large()), encoding="gzip")):
        with pytest.raises(ServerBusyError) as caught:
            await asyncio.create_task(read(asked))
        assert caught.value.http_status == 503
    assert not waiting.done()
    pulling.cancel()
    assert await waiting == "nano"


async def test_a_client_that_stalls_holds_a_place_for_a_while_only() -> None:
    stalls = asyncio.create_task(read(request(b"x" * 50_000, ends=False)))
    await asyncio.sleep(0.1)
    assert await asyncio.create_task(read(request(large()))) == "nano"
    with pytest.raises(RequestTimeoutError):
        await stalls


@pytest.mark.timing
def test_many_large_bodies(own_server: RunningServer) -> None:
    """They are answered or refused, take no more memory than a few, and disturb nobody."""
    process = psutil.Process(own_server.process.pid)
    chat = {"model": "nano", "messages": [{"role": "user", "content": "Hi"}], "stream": False}
    with httpx.Client(base_url=own_server.url, timeout=120, trust_env=False) as http:
        assert http.post("/api/chat", json=chat).is_success
        idle_bytes = process.memory_info().rss

        def send() -> httpx.Response:
            return http.post("/api/chat", content=TEXT)

        def attack() -> None:
            most_bytes = 0
            with ThreadPoolExecutor(N_CLIENTS) as clients:
                replies: list[Future[httpx.Response]] = [
                    clients.submit(send) for _ in range(N_CLIENTS)
                ]
                while wait(replies, timeout=0.02).not_done:
                    most_bytes = max(most_bytes, process.memory_info().rss)
            print(f"{(most_bytes - idle_bytes) / 1e6:.0f} MB more")
            assert most_bytes - idle_bytes < MOST_RSS_BYTES
            for reply in map(Future.result, replies):
                assert reply.status_code in (400, 503)
                words = "tokens > " if reply.status_code == 400 else "server busy"
                assert words in reply.json()["error"]

        assert_undisturbed(own_server.url, attack)
