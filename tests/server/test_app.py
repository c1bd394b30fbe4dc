"""The listening socket, and the application without a server around it."""

import socket

import httpx
import pytest

from gptoss_local.errors import ServerUnavailableError
from gptoss_local.server.app import _bind, make_app
from gptoss_local.settings import Settings


def test_nagle_is_off() -> None:
    """asyncio does it for sockets whose protocol is TCP by name, and costs 40 ms otherwise."""
    with _bind(Settings(port=0)) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_taken_address() -> None:
    with _bind(Settings(port=0)) as first:
        first.listen()
        port = first.getsockname()[1]
        with pytest.raises(ServerUnavailableError, match=rf"127\.0\.0\.1:{port}"):
            _bind(Settings(port=port))


async def test_an_unexpected_error_has_an_id() -> None:
    """Nothing has been started, so there is no manager of models."""
    app = httpx.ASGITransport(make_app(Settings(), shut_down=lambda: None), False)
    async with httpx.AsyncClient(transport=app, base_url="http://localhost") as client:
        reply = await client.post("/v1/messages", json={})
    assert reply.status_code == 500
    assert reply.headers["request-id"] == reply.headers["x-request-id"]
    assert reply.headers["request-id"] == reply.json()["request_id"]
