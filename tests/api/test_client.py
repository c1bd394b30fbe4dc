"""The client of our own server, against servers that answer otherwise."""

import asyncio
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from gptoss_local.api.client import AsyncClient, Client
from gptoss_local.api.models import JobStatus, RunningModels
from gptoss_local.base.errors import ContextOverflowError, ServerUnavailableError
from gptoss_local.base.settings import Settings
from tests.threaded_server import served_by

pytestmark = pytest.mark.quick

OVERFLOW = (
    b'{"error": "too long", "code": "ContextOverflowError", "prompt_tokens": 9,'
    b' "context_length": 4, "max_context_length": 8, "of a later version": true}\n'
)


class Later(BaseHTTPRequestHandler):
    """A server of a later version: other fields, and one that is missing."""

    def do_GET(self) -> None:
        self._send(b'{"models": [{"name": "nano", "is_fast": true}]}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._send(b'{"status": "pulling", "layers": 3}\n' + OVERFLOW)

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    with served_by(Later) as port:
        yield Settings(port=port, home=tmp_path)


def test_a_server_of_another_version_is_named_as_such(settings: Settings) -> None:
    async def ask() -> None:
        client = AsyncClient(settings)
        try:
            await client.get("/api/ps", RunningModels)
        finally:
            await client.close()

    with pytest.raises(ServerUnavailableError, match="another version") as refused:
        Client(settings).running_models()
    assert "gptoss stop" in refused.value.hint
    with pytest.raises(ServerUnavailableError, match="another version"):
        asyncio.run(ask())


def test_fields_of_a_later_version_are_no_obstacle(settings: Settings) -> None:
    lines = Client(settings).stream("/api/pull", {"model": "nano"}, JobStatus)
    assert next(lines) == JobStatus("pulling")
    with pytest.raises(ContextOverflowError, match="too long") as overflow:
        next(lines)
    error = overflow.value
    assert (error.n_prompt, error.n_ctx, error.n_ctx_max) == (9, 4, 8)
