"""MCP servers at an address: streamable HTTP, and the older SSE."""

import asyncio
import gzip
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar
from urllib.parse import unquote

import pytest

from gptoss_local.talk.tools.mcp import connection, messages
from tests.conftest import free_port, wait_until
from tests.threaded_server import QuietHandler, served_by
from tests.tools.mcp.conftest import HERE, Prepare


@contextmanager
def running(kind: str, port: int, **variables: str) -> Iterator[str]:
    """Run the good server at an address, until the end of the block."""
    command = [sys.executable, str(HERE / "good_server.py"), kind, str(port)]
    process = subprocess.Popen(command, env=os.environ | variables)
    try:
        wait_until(lambda: listens(port), timeout_s=60)
        yield f"http://127.0.0.1:{port}/{'sse' if kind == 'sse' else 'mcp'}"
    finally:
        process.kill()
        process.wait()


def listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


async def test_streamable_http(prepared: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", "k3y-of-mine")
    port = free_port()
    with running("http", port, MY_KEY="k3y-of-mine") as url:
        good: dict[str, Any] = {"url": url, "headers": {"Authorization": "Bearer ${env:THE_KEY}"}}
        toolbox, news = await prepared(good=good, refused={"url": url})
        assert len(news) == 1
        assert "the MCP server 'refused' failed" in news[0]
        assert "answered 401 Unauthorized" in news[0]
        assert (await toolbox.run("add", {"a": 1, "b": 2})).text == "3"
        assert await toolbox.prepare() == []
        toolbox.allow(toolbox.tools["add"], "always")
        for headers, is_asked in (({}, False), ({"X-As": "${NAME:-me}"}, True)):
            again, _ = await prepared(good=good | {"headers": good["headers"] | headers})
            assert again.needs_consent(again.tools["add"]) == is_asked
    gone = await toolbox.run("add", {"a": 1, "b": 2})
    assert gone.is_error
    assert "the MCP server 'good'" in gone.text
    with running("http", port, MY_KEY="k3y-of-mine"):
        again = await toolbox.run("add", {"a": 1, "b": 2})
        assert again.text == "3", "it is reached again with the next call"


async def test_sse(prepared: Prepare) -> None:
    with running("sse", free_port()) as url:
        toolbox, news = await prepared(good={"url": url, "type": "sse"})
        assert news == []
        assert (await toolbox.run("add", {"a": 1, "b": 2})).text == "3"


async def test_nothing_is_there(prepared: Prepare) -> None:
    url = f"http://127.0.0.1:{free_port()}/mcp?key=abc"
    _, news = await prepared(none={"url": url})
    assert "the MCP server 'none' cannot be reached: All connection attempts failed" in news[0]


class Handler(QuietHandler):
    """Answers as a server must; a server with a fault answers some of it otherwise."""

    protocol_version = "HTTP/1.1"
    version = "2025-06-18"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method = request.get("method")
        if self.answer_otherwise(request, method):
            return
        match method:
            case "initialize":
                info = {"name": "stand-in", "version": "1"}
                known = {"protocolVersion": self.version, "capabilities": {"tools": {}}}
                self.reply(request, {"result": known | {"serverInfo": info}})
            case "tools/list":
                self.reply(request, {"result": {"tools": [{"name": "f"}, {"name": "packed"}]}})
            case "ping":
                self.reply(request, {"result": {}})
            case _:
                self.send(b"", 404 if "id" in request else 202)

    def answer_otherwise(self, request: Any, method: str) -> bool:
        """Answer a request in a way of its own; False if it is answered as usual."""
        return False

    def do_GET(self) -> None:
        self.send(b"", 405)

    do_DELETE = do_GET

    def reply(self, request: Any, message: dict[str, Any], status: int = 200, **how: str) -> bool:
        body = {"jsonrpc": "2.0", "id": request["id"], **message}
        return self.send(json.dumps(body).encode(), status, **how)

    def send(self, body: bytes, status: int = 200, **headers: str) -> bool:
        self.send_response(status)
        headers = {"content_type": "application/json"} | headers
        for name, value in (headers | {"content_length": str(len(body))}).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        with suppress(ConnectionError):
            self.wfile.write(body)
        return True


@contextmanager
def served(handler: type[Handler]) -> Iterator[str]:
    """Serve requests by a handler at an address, until the end of the block."""
    with served_by(handler) as port:
        yield f"http://127.0.0.1:{port}"


class Old(Handler):
    """A server that takes one version of the protocol, and says so in a way of its own."""

    versions: ClassVar[list[str]] = []

    def answer_otherwise(self, request: Any, method: str) -> bool:
        _, self.version, way = self.path.split("/")
        if method != "initialize":
            return False
        self.versions.append(version := request["params"]["protocolVersion"])
        if version == self.version:
            return False
        if way == "bare":
            return self.send(b"Bad Request", 400, content_type="text/plain")
        data = {"supported": [self.version, "1999-01-01"]} if way == "offered" else None
        error = {"code": -32602, "message": "Unsupported protocol version", "data": data}
        return self.reply(request, {"error": error}, 400)


@pytest.mark.parametrize("way", ["bare", "named", "offered"])
@pytest.mark.parametrize("only", ["2025-06-18", "2024-11-05"])
async def test_a_server_of_an_older_version(prepared: Prepare, only: str, way: str) -> None:
    Old.versions.clear()
    with served(Old) as url:
        toolbox, news = await prepared(old={"url": f"{url}/{only}/{way}"})
    assert news == []
    assert "f" in toolbox.tools
    assert Old.versions[-1] == only


async def test_a_server_of_no_known_version(prepared: Prepare) -> None:
    Old.versions.clear()
    with served(Old) as url:
        _, news = await prepared(old={"url": f"{url}/1998-01-01/named"})
    assert "Unsupported protocol version" in news[0]
    assert len(Old.versions) == 4


class Forgetful(Handler):
    """A server with sessions. A call is refused as its path says: a status, a kind of body, words.

    It is refused without having run if its session is lost, or else after it has run.
    """

    sessions: ClassVar[list[str]] = []
    n_calls = 0

    def answer_otherwise(self, request: Any, method: str) -> bool:
        words = unquote(self.path).split("/")[-1]
        known = self.headers.get("mcp-session-id", "")
        is_lost = known != self.sessions[-1] if self.sessions else False
        if method in ("tools/call", "ping") and (is_lost or "never" in words):
            return self._refuse(request)
        if method != "tools/call":
            return False
        Forgetful.n_calls += 1
        if "ran" in words:
            return self._refuse(request)
        content = [{"type": "text", "text": f"in {known}"}]
        return self.reply(request, {"result": {"content": content}})

    def reply(self, request: Any, message: dict[str, Any], status: int = 200, **how: str) -> bool:
        if "serverInfo" in message.get("result", {}):
            self.sessions.append(f"s{len(self.sessions)}")
            how = {"mcp_session_id": self.sessions[-1]}
        return super().reply(request, message, status, **how)

    def _refuse(self, request: Any) -> bool:
        _, status, kind, words = unquote(self.path).split("/")
        if kind in ("text", "empty"):
            body = words.encode() * (kind == "text")
            return self.send(body, int(status), content_type="text/plain")
        id_ = request["id"] if kind == "own" else None
        error = {"code": -32000, "message": words}
        return self.reply({"id": id_}, {"error": error}, int(status))


@pytest.fixture
def forgetful() -> Iterator[str]:
    Forgetful.sessions.clear()
    Forgetful.n_calls = 0
    with served(Forgetful) as url:
        yield url


@pytest.mark.parametrize(
    "how",
    [
        *(f"{status}/json/Session not found" for status in (400, 401, 404, 410, 500, 503, 200)),
        *("404/text/gone", "404/empty/x", "400/text/Server not initialized", "503/empty/x"),
    ],
)
async def test_a_lost_session_is_renewed(prepared: Prepare, forgetful: str, how: str) -> None:
    toolbox, news = await prepared(lost={"url": f"{forgetful}/{how}"})
    assert news == []
    first = await toolbox.run("f", {})
    assert first.text == f"in {Forgetful.sessions[-1]}"
    Forgetful.sessions.append("another")  # as after a restart
    again = await toolbox.run("f", {})
    assert not again.is_error, again.text
    assert again.text == f"in {Forgetful.sessions[-1]}" != "in another"
    assert Forgetful.n_calls == 2


async def test_a_session_is_renewed_once(prepared: Prepare, forgetful: str) -> None:
    toolbox, _ = await prepared(lost={"url": f"{forgetful}/404/json/never"})
    n_before = len(Forgetful.sessions)
    result = await toolbox.run("f", {})
    assert result.is_error
    assert "the MCP server 'lost' answered 404 Not Found: never" in result.text
    assert len(Forgetful.sessions) <= n_before + 2


@pytest.mark.parametrize("status", [200, 400, 404, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("kind", ["own", "json", "text"])
async def test_a_call_that_may_have_run_is_not_repeated(
    prepared: Prepare, forgetful: str, status: int, kind: str
) -> None:
    words = "it ran, but the browser session has expired"
    toolbox, _ = await prepared(refuses={"url": f"{forgetful}/{status}/{kind}/{words}"})
    for n_calls in (1, 2):
        async with asyncio.timeout(10):
            result = await toolbox.run("f", {})
        assert result.is_error
        if (status, kind) != (200, "text"):
            assert words in result.text
            assert ("answered" in result.text) == (kind != "own")
        assert Forgetful.n_calls == n_calls
    assert len(Forgetful.sessions) == 1


async def test_an_answer_to_a_lost_session_is_the_last_in_it(
    prepared: Prepare, forgetful: str
) -> None:
    """It has the id of the call, which is therefore not repeated."""
    toolbox, _ = await prepared(lost={"url": f"{forgetful}/404/own/Session not found"})
    Forgetful.sessions.append("another")
    assert (await toolbox.run("f", {})).text == "Error: Session not found"
    assert (await toolbox.run("f", {})).text == f"in {Forgetful.sessions[-1]}"
    assert Forgetful.n_calls == 1


class Faulty(Handler):
    """A server with a fault, the last part of its path."""

    def answer_otherwise(self, request: Any, method: str) -> bool:
        fault = self.path.strip("/")
        if fault == "hang":
            threading.Event().wait(30)
        elif fault == "html":
            return self.send(b"<h1>Welcome</h1>", content_type="text/html")
        elif fault == "redirect":
            return self.send(b"", 307, location="http://127.0.0.1:1/other?token=secret")
        elif method != "tools/call":
            return False
        elif request["params"]["name"] == "packed":
            return self.send(gzip.compress(b" " * 2**24), content_encoding="gzip")
        content = [{"type": "text", "text": "x" * (3 * 2**20)}]
        message = {"jsonrpc": "2.0", "id": request.get("id"), "result": {"content": content}}
        if fault == "event":
            body = f"event: message\ndata: {json.dumps(message)}\n\n".encode()
            return self.send(body, content_type="text/event-stream")
        return self.send(json.dumps(message).encode())


@pytest.fixture
def faulty() -> Iterator[str]:
    with served(Faulty) as url:
        yield url


@pytest.mark.parametrize("kind", ["json", "event"])
async def test_a_result_that_is_too_long(
    prepared: Prepare, faulty: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolbox, news = await prepared(long={"url": f"{faulty}/{kind}"})
    assert news == []
    assert not (await toolbox.run("f", {})).is_error
    monkeypatch.setattr(messages, "MAX_MESSAGE_BYTES", 2**20)
    toolbox, _ = await prepared(long={"url": f"{faulty}/{kind}"})
    result = await toolbox.run("f", {})
    assert result.is_error
    assert len(result.text) < 1000
    assert ("more than 1 MiB" in result.text) == (kind == "json")
    if kind == "json":
        packed = await toolbox.run("packed", {})
        assert "it is compressed, which was not asked for" in packed.text


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("html", "Unexpected content type: text/html"),
        ("redirect", "Redirect to http://127.0.0.1:1/other not followed"),
        ("hang", "did not answer within 1 s"),
    ],
)
async def test_an_address_of_something_else(
    prepared: Prepare, faulty: str, monkeypatch: pytest.MonkeyPatch, fault: str, said: str
) -> None:
    monkeypatch.setattr(connection, "START_TIMEOUT_S", 1.0 if fault == "hang" else 30.0)
    _, news = await prepared(other={"url": f"{faulty}/{fault}"})
    assert said in news[0]
    assert "secret" not in news[0]
