"""Bodies as they arrive: in pieces, slowly, not at all, compressed, and too many of large ones."""

import asyncio
import gzip
import json
import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import Request

from gptoss_local.base.errors import (
    GptOssError,
    RequestTimeoutError,
    RequestTooLargeError,
    ServerBusyError,
    UsageError,
)
from gptoss_local.server import access, body
from gptoss_local.server.access import Caller
from gptoss_local.server.dialects.ollama.request import ModelBody
from gptoss_local.server.dialects.openai.chat_request import ChatCompletionBody
from tests.server.test_limits import MIB, NANO, PACK

pytestmark = pytest.mark.quick

ADA, BOB = Caller("key", "ada"), Caller("key", "bob")
ENCODINGS = pytest.mark.parametrize("encoding", PACK)


@pytest.fixture(autouse=True)
def one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each caller one, for bodies of more than 32 kB."""
    monkeypatch.setattr(body, "_TIMEOUT_S", 0.3)
    monkeypatch.setattr(body, "_PLACES", {32_000: 1})
    monkeypatch.setattr(body, "_places", {})


def request(*pieces: bytes, ends: bool = True, leaves: bool = False, encoding: str = "") -> Request:
    """Make a request with a body, or with the beginning of one."""
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": piece, "more_body": True} for piece in pieces
    ]
    messages[-1]["more_body"] = not ends
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
        (lambda: request(b'{"model": ', b'"nano"}'), None),
        (lambda: request(large()), None),
        (lambda: request(gzip.compress(large()), encoding="gzip"), None),
        (lambda: request(b"x" * 90_000), UsageError),
        (lambda: request(b"x" * 50_000, ends=False, leaves=True), UsageError),
        (lambda: request(b"x" * 50_000, ends=False), RequestTimeoutError),
    ],
    ids=["pieces", "read", "compressed", "broken", "left", "stalled"],
)
async def test_a_body_ends_and_its_place_is_given_back(
    asked: Callable[[], Request], error: type[GptOssError] | None
) -> None:
    reading = asyncio.create_task(read(asked()))
    if error is None:
        assert await reading == "nano"
    else:
        with pytest.raises(error, match=r"client left|invalid request|did not arrive") as caught:
            await reading
        assert caught.value.http_status == (408 if error is RequestTimeoutError else 400)
    for _ in range(2):  # the second in the same task, as while an answer streams
        assert await read(request(large())) == "nano"


async def test_a_caller_without_a_place_waits_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a pull, which may last for hours, holds it until it ends."""
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


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (r"cut \ud83d", "cut \ufffd"),
        (r"\ude00 \uD83Dx \ud83d\n", "\ufffd \ufffdx \ufffd\n"),
        (r"\ud83d\ud83d\ude00", "\ufffd😀"),
        (r"whole \ud83d\ude00, a path C:\\ud83d, \ud83d", "whole 😀, a path C:\\ud83d, \ufffd"),
    ],
)
def test_half_a_character_does_not_end_a_conversation(sent: str, read: str) -> None:
    """As JSON.stringify writes a text that was cut between the halves."""
    data = f'{{"messages": [{{"role": "user", "content": "{sent}"}}]}}'
    assert body.parse_body(data.encode(), ChatCompletionBody).messages[0].content == read
    assert body.parse_object(f'{{"a": "{sent}"}}', "arguments") == {"a": read}


def test_a_mark_is_skipped_and_broken_escapes_are_not() -> None:
    assert body.parse_body(b'\xef\xbb\xbf{"model": "nano"}', ModelBody).model == "nano"
    for text in (r"\ud83", r"\udzzz", "\\"):
        with pytest.raises(UsageError, match="invalid request"):
            body.parse_body(f'{{"model": "{text}"}}'.encode(), ModelBody)


@ENCODINGS
async def test_a_bomb_is_not_unpacked_to_its_end(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body, "_MAX_BYTES", MIB)
    bomb = PACK[encoding](b" " * (32 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(RequestTooLargeError):
            await body.read_bytes(request(bomb, encoding=encoding))
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()


@ENCODINGS
async def test_pieces_are_the_whole(encoding: str) -> None:
    """Of data that cannot be compressed, too, however it arrives."""
    plain = random.Random(1).randbytes(3 * MIB // 4) + b"x" * (MIB // 4)
    packed = PACK[encoding](plain)
    for size in (1000, 70_000, len(packed)):
        pieces = (packed[i : i + size] for i in range(0, len(packed), size))
        reading = body.read_bytes(request(*pieces, encoding=encoding))
        assert await asyncio.create_task(reading) == plain


@ENCODINGS
async def test_every_cut_is_seen(encoding: str) -> None:
    packed = PACK[encoding](NANO)
    for n_bytes in range(1, len(packed)):
        with pytest.raises(UsageError, match="ends too early"):
            await body.read_bytes(request(packed[:n_bytes], encoding=encoding))


VALUES = st.recursive(
    st.none() | st.integers() | st.text(alphabet='ab,:[{\\\\"\\né'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='a,:"\\\\'), inner),
)


def n_signs(value: Any) -> tuple[int, int]:
    """Count the commas of a value as JSON, and its colons and opening brackets."""
    if not isinstance(value, dict | list):
        return 0, 0
    counts = map(n_signs, value.values() if isinstance(value, dict) else value)
    n_names = 1 + (len(value) if isinstance(value, dict) else 0)
    return tuple(map(sum, zip((max(0, len(value) - 1), n_names), *counts, strict=True)))


@settings(deadline=None)
@given(VALUES, st.integers(1, 40))
def test_values_are_counted_outside_of_texts(value: Any, size: int) -> None:
    data, (n_values, n_names) = json.dumps(value).encode(), n_signs(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(body, "_PIECE_BYTES", size)
        patch.setattr(body, "MAX_VALUES", n_values)
        patch.setattr(body, "MAX_NAMES", n_names)
        body.check_values(data)
        for name, n in (("MAX_VALUES", n_values), ("MAX_NAMES", n_names)):
            patch.setattr(body, name, n - 1)
            with pytest.raises(RequestTooLargeError):
                body.check_values(data)
            patch.setattr(body, name, n)
