"""No other server can fill our memory: by an answer that never ends, or one of a few kilobytes."""

import asyncio
import gzip
import re
import tracemalloc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from functools import cache

import pytest

from gptoss_local.api.client import Client
from gptoss_local.base.errors import GptOssError, ToolError
from gptoss_local.base.settings import Settings
from gptoss_local.models.catalog import UpstreamAddress
from gptoss_local.models.hub.client import HubClient
from gptoss_local.runner.upstream.connection import (
    Replica,
    UpstreamCall,
    UpstreamConnection,
    UpstreamFault,
    silent_urls,
)
from gptoss_local.talk.tools.browser.fetching import Fetcher
from gptoss_local.talk.tools.browser.searching import SearchEngine
from tests.threaded_server import QuietHandler, served_by

pytestmark = pytest.mark.quick

MB = 10**6
N_MB = 100


@cache
def bomb() -> bytes:
    return gzip.compress(b"[" * (N_MB * MB), compresslevel=1)


class Endless(QuietHandler):
    """Answers with 100 MB."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        with suppress(ConnectionError):
            self.send_body()

    do_POST = do_GET

    def send_body(self) -> None:
        self.send_header("Connection", "close")
        self.end_headers()
        for _ in range(N_MB):
            self.wfile.write(b"[" * MB)


class Packed(Endless):
    """Answers with a few kilobytes, which are 100 MB."""

    def send_body(self) -> None:
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(bomb())))
        self.end_headers()
        self.wfile.write(bomb())


@pytest.fixture(params=[Packed, Endless])
def hostile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    bomb()  # before memory is counted
    with served_by(request.param) as port:
        yield f"http://127.0.0.1:{port}"


def upstream_at(url: str) -> UpstreamAddress:
    return UpstreamAddress(urls=(url,), kind="vllm", model="served")


async def context_of_an_upstream(url: str) -> None:
    connection = UpstreamConnection("far", upstream_at(url))
    try:
        await connection.n_ctx(Replica(url))
    finally:
        await connection.close()


async def answer_of_an_upstream(url: str) -> None:
    connection = UpstreamConnection("far", upstream_at(url))
    call = UpstreamCall(url, "vllm", "served", n_prompt=1, n_resent=0)
    try:
        async for _ in connection.stream(Replica(url), {}, None, call):
            pass
    except UpstreamFault as fault:
        raise fault.error from fault
    finally:
        await connection.close()


async def health_of_an_upstream(url: str) -> None:
    """Ask for its status, which is well without a look at the body."""
    assert await silent_urls("far", upstream_at(url)) == ()
    raise ToolError("it is well")


async def hub(url: str) -> None:
    HubClient(url).list_files("openai/gpt-oss-20b", "main")


async def search_engine(url: str) -> None:
    await SearchEngine(Settings(search="searxng", searxng_url=url)).search("x", 3)


async def page(url: str) -> None:
    await Fetcher(may_be_private=True).fetch(url)


async def program_on_our_port(url: str) -> None:
    Client(Settings(host="127.0.0.1", port=int(url.rpartition(":")[2]))).is_running()


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (context_of_an_upstream, "the upstream of 'far' at {url}.*(more than 2 MiB|compressed)"),
        (answer_of_an_upstream, "the upstream"),
        (health_of_an_upstream, "it is well"),
        (hub, "{url}.*(more than 16 MiB|it is compressed)"),
        (search_engine, "{url}"),
        (page, "{url}.*more than 10 MiB"),
        (program_on_our_port, "{url}"),
    ],
)
def test_an_answer_without_end_is_refused(
    hostile: str, ask: Callable[[str], Coroutine[None, None, None]], words: str
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(GptOssError) as refused:
            asyncio.run(ask(hostile))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 40 * MB
    said = f"{refused.value.message} {refused.value.hint}"
    assert re.search(words.format(url=hostile), said, re.DOTALL), said
