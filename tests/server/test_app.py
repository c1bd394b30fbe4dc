"""The listening socket."""

import socket

import pytest

from gptoss_local.errors import ServerUnavailableError
from gptoss_local.server.app import _bind
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
