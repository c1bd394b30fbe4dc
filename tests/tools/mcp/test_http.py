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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import unquote

import pytest

from gptoss_local.talk.tools.mcp import connection, messages
from tests.conftest import free_port, wait_until
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


class Quiet(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that leave."""


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve requests by a handler at an address, until the end of the block."""
    with Quiet(("127.0.0.1", 0), handler) as http:
        http.daemon_threads = True
        http.block_on_close = False
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


class Faulty(BaseHTTPRequestHandler):
    """A server with a fault, the last part of its path."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        fault = self.path.strip("/")
        match request.get("method"):
            case _ if fault == "hang":
                threading.Event().wait(30)
            case _ if fault == "html":
                self._send(b"<h1>Welcome</h1>", kind="text/html")
            case _ if fault == "redirect":
                self.send_response(307)
                self.send_header("Location", "http://127.0.0.1:1/other?token=secret")
                self.send_header("Content-Length", "0")
                self.end_headers()
            case "initialize":
                info = {"name": "faulty", "version": "1"}
                result: dict[str, Any] = {"protocolVersion": "2025-06-18", "capabilities": {}}
                self._answer(request, result | {"serverInfo": info})
            case "tools/list":
                self._answer(request, {"tools": [{"name": "f"}, {"name": "packed"}]})
            case "tools/call" if request["params"]["name"] == "packed":
                self._send(gzip.compress(b" " * 2**24), encoding="gzip")
            case "tools/call":
                text = "x" * (3 * 2**20)
                self._answer(request, {"content": [{"type": "text", "text": text}]})
            case _ if "id" not in request:
                self._send(b"", 202)
            case _:
                self._send(b"", 404)

    def do_GET(self) -> None:
        self._send(b"", 405)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _answer(self, request: dict[str, Any], result: dict[str, Any]) -> None:
        message = {"jsonrpc": "2.0", "id": request["id"], "result": result}
        if self.path == "/event" and request["method"] == "tools/call":
            body = f"event: message\ndata: {json.dumps(message)}\n\n".encode()
            return self._send(body, kind="text/event-stream")
        self._send(json.dumps(message).encode())

    def _send(
        self, body: bytes, status: int = 200, *, kind: str = "application/json", encoding: str = ""
    ) -> None:
        self.send_response(status)
        if encoding:
            self.send_header("Content-Encoding", encoding)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(ConnectionError):
            self.wfile.write(body)


class Old(Faulty):
    """A server that takes one version of the protocol, and says so in a way of its own."""

    versions: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        _, only, way = self.path.split("/")
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if request.get("method") == "initialize":
            self.versions.append(version := request["params"]["protocolVersion"])
            if version != only:
                return self._refuse(request, way, only)
            info = {"name": "old", "version": "1"}
            capable = {"capabilities": {"tools": {}}, "serverInfo": info}
            return self._answer(request, {"protocolVersion": only} | capable)
        if request.get("method") == "tools/list":
            tools = [{"name": "f", "inputSchema": {"type": "object"}}]
            return self._answer(request, {"tools": tools})
        return self._send(b"", status=404 if "id" in request else 202)

    def do_DELETE(self) -> None:
        self._send(b"", status=405)

    def _refuse(self, request: Any, way: str, only: str) -> None:
        if way == "bare":
            return self._send(b"Bad Request", kind="text/plain", status=400)
        data = {"supported": [only, "1999-01-01"]} if way == "offered" else None
        error = {"code": -32602, "message": "Unsupported protocol version", "data": data}
        body = json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}).encode()
        return self._send(body, kind="application/json", status=400)


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


class Forgetful(Faulty):
    """A server with sessions. A call is refused as its path says: a status, a kind of body, words.

    It is refused without having run if its session is lost, or else after it has run.
    """

    sessions: ClassVar[list[str]] = []
    n_calls = 0

    def do_POST(self) -> None:
        _, status, kind, words = unquote(self.path).split("/")
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        known = self.headers.get("mcp-session-id", "")
        is_lost = known != self.sessions[-1] if self.sessions else False
        match request.get("method"):
            case "initialize":
                self.sessions.append(f"s{len(self.sessions)}")
                info = {"name": "forgetful", "version": "1"}
                result: dict[str, Any] = {"protocolVersion": "2025-06-18", "serverInfo": info}
                message = {"result": result | {"capabilities": {"tools": {}}}}
                self._reply(request, message, session=self.sessions[-1])
            case "tools/call" | "ping" if is_lost or "never" in words:
                self._refuse(request, int(status), kind, words)
            case "ping":
                self._reply(request, {"result": {}})
            case "tools/call":
                Forgetful.n_calls += 1
                if "ran" in words:
                    return self._refuse(request, int(status), kind, words)
                text = f"in {known}"
                self._reply(request, {"result": {"content": [{"type": "text", "text": text}]}})
            case "tools/list":
                tools = [{"name": "f", "inputSchema": {"type": "object"}}]
                self._reply(request, {"result": {"tools": tools}})
            case _:
                self._send(b"", 202 if "id" not in request else 404)

    def do_DELETE(self) -> None:
        self._send(b"", 405)

    def _refuse(self, request: Any, status: int, kind: str, words: str) -> None:
        if kind in ("text", "empty"):
            body = words.encode() * (kind == "text")
            return self._send(body, kind="text/plain", status=status)
        id_ = request["id"] if kind == "own" else None
        error = {"code": -32000, "message": words}
        self._reply({"id": id_}, {"error": error}, status)

    def _reply(
        self, request: Any, message: dict[str, Any], status: int = 200, session: str = ""
    ) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": request["id"], **message}).encode()
        self.send_response(status)
        if session:
            self.send_header("Mcp-Session-Id", session)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


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
