"""Many large bodies at the same time: they wait for room, and small ones do not."""

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

from gptoss_local.errors import (
    GptOssError,
    RequestTimeoutError,
    ServerBusyError,
    UsageError,
)
from gptoss_local.server import body
from gptoss_local.server.body_limits import Room, RoomShare
from gptoss_local.server.dialects.ollama.request import ModelBody
from tests.conftest import RunningServer
from tests.server.second_client import assert_undisturbed

ROOM_BYTES = 100_000
N_CLIENTS = 32
MOST_RSS_BYTES = 450_000_000  # beyond that of an idle server
TEXT = json.dumps({"model": "nano", "messages": [{"role": "user", "content": "ab" * 9_000_000}]})


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    monkeypatch.setattr(body, "_TIMEOUT_S", 0.3)
    small = Room(ROOM_BYTES)
    monkeypatch.setattr(body, "_room", small)
    monkeypatch.setattr(body, "_FREE_BYTES", 32_000)
    return small


def request(
    data: bytes, *, ends: bool = True, leaves: bool = False, headers: dict[str, str] | None = None
) -> Request:
    """A request whose body is there, or else its beginning."""
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": data, "more_body": not ends}]
    messages += [{"type": "http.disconnect"}] if leaves else []

    async def receive() -> Any:
        if not messages:
            await asyncio.Event().wait()
        return messages.pop(0)

    given = {"content-length": "90000"} if headers is None else headers
    encoded = [(name.encode(), value.encode()) for name, value in given.items()]
    return Request({"type": "http", "headers": encoded}, receive)


def large(n_bytes: int = 90_000) -> bytes:
    return b'{"model": "nano", "x": "' + b"x" * (n_bytes - 26) + b'"}'


async def read(asked: Request) -> str:
    """Read and translate, as a route does."""
    found = await body.read_body(asked, ModelBody)
    return await body.translate(asked, lambda: found.model)


def free_bytes(room: Room) -> int:
    return room._n_free


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (lambda: request(large()), None),
        (lambda: request(large(), headers={}), None),  # in chunks, nobody knows how many
        (lambda: request(b"x" * 90_000), UsageError),
        (lambda: request(b"x" * 50_000, ends=False, leaves=True), UsageError),
        (lambda: request(b"x" * 50_000, ends=False), RequestTimeoutError),
    ],
    ids=["read", "chunks", "broken", "left", "stalled"],
)
async def test_room_is_given_back(
    room: Room,
    monkeypatch: pytest.MonkeyPatch,
    asked: Callable[[], Request],
    error: type[GptOssError] | None,
) -> None:
    monkeypatch.setattr(body, "_MAX_BYTES", ROOM_BYTES)
    reading = asyncio.create_task(read(asked()))
    if error is None:
        assert await reading == "nano"
    else:
        with pytest.raises(error):
            await reading
    await asyncio.sleep(0)  # what the end of a task begins
    assert free_bytes(room) == ROOM_BYTES


async def test_what_is_not_translated_gives_it_back_in_time(room: Room) -> None:
    await body.read_body(request(large()), ModelBody)
    assert free_bytes(room) == ROOM_BYTES - 90_000
    async with asyncio.timeout(30):
        while free_bytes(room) < ROOM_BYTES:
            await asyncio.sleep(0.01)
    assert free_bytes(room) == ROOM_BYTES


async def test_plain_bytes_count_of_a_compressed_body(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body, "_MAX_BYTES", ROOM_BYTES)
    packed = gzip.compress(large())
    asked = request(packed, headers={"content-encoding": "gzip", "content-length": "500"})
    await body.read_body(asked, ModelBody)
    assert free_bytes(room) == ROOM_BYTES - 90_000


async def test_without_room_in_time_a_large_one_is_refused_and_a_small_one_read(room: Room) -> None:
    place = await room.take(ROOM_BYTES)
    with pytest.raises(ServerBusyError) as caught:
        await read(request(large()))
    assert caught.value.http_status == 503
    packed = gzip.compress(large(30_000))  # as Codex sends them
    small = [
        request(large(30_000)),
        request(large(30_000), headers={}),
        request(packed, headers={"content-encoding": "gzip"}),
    ]
    assert [await read(each) for each in small] == ["nano"] * 3
    place.leave()
    assert await read(request(large())) == "nano"


async def test_a_client_that_stalls_holds_the_room_for_a_while_only(room: Room) -> None:
    stalls = asyncio.create_task(read(request(b"x" * 50_000, ends=False)))
    await asyncio.sleep(0.05)
    assert free_bytes(room) < 90_000
    assert await read(request(large())) == "nano"
    with pytest.raises(RequestTimeoutError):
        await stalls


async def test_first_come_first_served(room: Room) -> None:
    places = [await room.take(60_000)]
    entered: list[str] = []

    async def enter(name: str, n_bytes: int) -> RoomShare:
        place = await room.take(n_bytes)
        entered.append(name)
        return place

    waiting = [
        asyncio.create_task(enter(name, n_bytes))
        for name, n_bytes in (("given up", 90_000), ("large", 70_000), ("small", 10_000))
    ]
    await asyncio.sleep(0)
    assert entered == []  # the small one would fit, but large ones would wait for ever then
    waiting[0].cancel()
    places[0].leave()
    places = await asyncio.gather(*waiting[1:])
    assert entered == ["large", "small"]
    for place in places:
        place.leave()
        place.leave()
    assert free_bytes(room) == ROOM_BYTES


async def test_a_wait_that_is_given_up_as_it_ends(room: Room) -> None:
    place = await room.take(ROOM_BYTES)
    waiting = asyncio.create_task(room.take(ROOM_BYTES))
    await asyncio.sleep(0)
    place.leave()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert free_bytes(room) == ROOM_BYTES


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
