"""No other server can fill our memory: by an answer that never ends, or one of a few kilobytes."""

import asyncio
import gzip
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gptoss_local.api.client import Client
from gptoss_local.base.errors import GptOssError, ToolError
from gptoss_local.base.settings import Settings
from gptoss_local.models.catalog import UpstreamAddress
from gptoss_local.models.hub.client import HubClient
from gptoss_local.runner.upstream.calls import UpstreamCall, UpstreamFault
from gptoss_local.runner.upstream.connection import UpstreamConnection, silent_urls
from gptoss_local.runner.upstream.replicas import Replica
from gptoss_local.talk.tools.browser.searching import SearchEngine

pytestmark = pytest.mark.quick

MB = 10**6
N_MB = 100


@cache
def bomb() -> bytes:
    return gzip.compress(b"[" * (N_MB * MB), compresslevel=1)


class Hostile(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        is_packed = self.server.server_name == "packed"  # type: ignore[attr-defined]
        self.send_response(200)
        if is_packed:
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(bomb())))
        else:
            self.send_header("Connection", "close")
        self.end_headers()
        with suppress(ConnectionError):
            if is_packed:
                self.wfile.write(bomb())
            self.close_connection = True
            for _ in range(0 if is_packed else N_MB):
                self.wfile.write(b"[" * MB)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(params=["packed", "endless"])
def hostile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    bomb()  # before memory is counted
    with ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as http:
        http.daemon_threads, http.block_on_close = True, False
        http.server_name = request.param
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


def said(ask: Callable[[], object]) -> str:
    """Return how a question is refused, after a look at the memory that it took."""
    tracemalloc.start()
    try:
        with pytest.raises(GptOssError) as refused:
            ask()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 40 * MB
    return f"{refused.value.message} {refused.value.hint}"


def upstream_at(url: str) -> UpstreamAddress:
    return UpstreamAddress(urls=(url,), kind="vllm", model="served")


def test_the_context_of_an_upstream(hostile: str) -> None:
    async def ask() -> None:
        connection = UpstreamConnection("far", upstream_at(hostile))
        try:
            await connection.n_ctx(Replica(hostile))
        finally:
            await connection.close()

    words = said(lambda: asyncio.run(ask()))
    assert f"the upstream of 'far' at {hostile}" in words
    assert "more than 2 MiB" in words or "it is compressed" in words


def test_the_answer_of_an_upstream(hostile: str) -> None:
    call = UpstreamCall(hostile, "vllm", "served", n_prompt=1, n_resent=0)

    async def ask() -> None:
        connection = UpstreamConnection("far", upstream_at(hostile))
        try:
            async for _ in connection.stream(Replica(hostile), {}, None, call):
                pass
        except UpstreamFault as fault:
            raise fault.error from fault
        finally:
            await connection.close()

    assert "the upstream" in said(lambda: asyncio.run(ask()))


def test_the_health_of_an_upstream_is_its_status_alone(hostile: str) -> None:
    def ask() -> None:
        assert asyncio.run(silent_urls("far", upstream_at(hostile))) == ()
        raise ToolError("it is well")

    assert "it is well" in said(ask)


def test_a_hub(hostile: str) -> None:
    words = said(lambda: HubClient(hostile).list_files("openai/gpt-oss-20b", "main"))
    assert hostile in words
    assert "more than 16 MiB" in words or "it is compressed" in words


def test_a_search_engine(hostile: str) -> None:
    engine = SearchEngine(Settings(search="searxng", searxng_url=hostile))
    assert hostile in said(lambda: asyncio.run(engine.search("x", 3)))


def test_another_program_on_our_port(hostile: str) -> None:
    settings = Settings(host="127.0.0.1", port=int(hostile.rpartition(":")[2]))
    assert hostile in said(Client(settings).is_running)
