"""Bodies that arrive slowly, or not at all."""

import asyncio
from typing import Any

import pytest
from starlette.requests import Request

from gptoss_local.errors import RequestTimeoutError, UsageError
from gptoss_local.server import body
from gptoss_local.server.ollama_request import ModelBody


def request(*messages: dict[str, Any]) -> Request:
    """A request whose messages arrive at once; then nothing does."""
    waiting = list(messages)

    async def receive() -> Any:
        if not waiting:
            await asyncio.Event().wait()
        return waiting.pop(0)

    return Request({"type": "http", "headers": []}, receive)


PIECE = {"type": "http.request", "body": b'{"model": ', "more_body": True}


async def test_pieces_are_joined() -> None:
    rest = {"type": "http.request", "body": b'"nano"}', "more_body": False}
    assert (await body.read_body(request(PIECE, rest), ModelBody)).model == "nano"


async def test_a_body_that_stops_arriving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "_TIMEOUT_S", 0.05)
    with pytest.raises(RequestTimeoutError) as caught:
        await body.read_body(request(PIECE), ModelBody)
    assert caught.value.http_status == 408


async def test_a_client_that_leaves_amid_its_body() -> None:
    with pytest.raises(UsageError, match="client left"):
        await body.read_body(request(PIECE, {"type": "http.disconnect"}), ModelBody)
