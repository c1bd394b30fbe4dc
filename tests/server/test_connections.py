"""Limits of connections: descriptors, time and size of headers, lines of log."""

import logging
import re
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPResponse
from pathlib import Path

import httpx
import psutil
import pytest

from gptoss_local.harmony import Vocabulary
from gptoss_local.server import connections
from gptoss_local.server.connections import OncePerMinute
from gptoss_local.server.lan import lan_addresses
from tests.conftest import RunningServer, run_server, wait_until
from tests.scripted_engine import Script, run_scripted_server
from tests.server.second_client import assert_undisturbed

MIB = 2**20
GET = b"GET /api/version HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /api/show HTTP/1.1\r\nHost: localhost\r\n"


def connect(server: RunningServer, source: str = "127.0.0.1", host: str = "") -> socket.socket:
    """Connect from an address of this machine to the server's, or to another `host`."""
    address = (host or "127.0.0.1", int(server.url.rpartition(":")[2]))
    return socket.create_connection(address, 10, (source, 0))


def status(connection: socket.socket) -> int:
    """Return the status of the next answer; 0 for a connection that is closed without one."""
    with closing(HTTPResponse(connection)) as reply:  # which holds the socket until it is closed
        try:
            reply.begin()
            reply.read()
        except ConnectionError:
            return 0
        return reply.status


def status_of_get(connection: socket.socket) -> int:
    connection.sendall(GET + b"\r\n")
    return status(connection)


def is_closed(connection: socket.socket) -> bool:
    readable, _, _ = select.select([connection], [], [], 0)
    try:
        return bool(readable) and connection.recv(1) == b""
    except ConnectionError:
        return True


@contextmanager
def limited(home: Path, soft: int, hard: int) -> Iterator[RunningServer]:
    files = {"N_FILES": f"{soft},{hard}"}
    with run_server(home, "tests.server.few_files", variables=files) as server:
        yield server


@pytest.fixture(scope="module")
def few(nano_home: Path) -> Iterator[RunningServer]:
    """A server that has few descriptors, so few connections."""
    with limited(nano_home, 128, 128) as server:
        yield server


@pytest.mark.timing
def test_more_connections_than_descriptors(
    nano_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither those that are connected nor those that come wait for them, and the log is short."""
    with limited(nano_home, 64, 64) as server:

        def attack() -> None:
            with ExitStack() as stack:
                for _ in range(80):
                    stack.enter_context(connect(server)).sendall(GET)  # no end of the header
                reply = httpx.get(f"{server.url}/api/version", timeout=1, trust_env=False)
                assert reply.status_code == 200
                time.sleep(0.2)

        assert_undisturbed(server.url, attack)
    assert len(capfd.readouterr().err.splitlines()) < 50


def test_the_soft_limit_of_descriptors_is_raised(nano_home: Path) -> None:
    with limited(nano_home, 64, 1024) as server, ExitStack() as stack:
        clients = [stack.enter_context(connect(server)) for _ in range(500)]
        for client in clients:
            client.sendall(GET + b"\r\n")
        assert [status(client) for client in clients] == [200] * 500


def is_refused(client: socket.socket) -> bool:
    """Return whether something else has come than the headers of a stream."""
    if not select.select([client], [], [], 0)[0]:
        return False
    try:
        return not client.recv(15, socket.MSG_PEEK).startswith(b"HTTP/1.1 200")
    except ConnectionError:
        return True


def test_running_answers_are_not_cut_for_new_connections(nano_home: Path) -> None:
    body = b'{"model":"nano","messages":[{"role":"user","content":"What is 2 + 2?"}]}'
    request = b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b"
    with limited(nano_home, 64, 64) as server, ExitStack() as stack:
        httpx.post(f"{server.url}/api/generate", json={"model": "nano"}, timeout=60)
        clients = []
        with server.engine_suspended():
            for _ in range(40):
                clients.append(stack.enter_context(connect(server)))
                clients[-1].settimeout(60)
                clients[-1].sendall(request % (len(body), body))
            wait_until(lambda: any(map(is_refused, clients)))
            refused: list[socket.socket] = []
            while len(refused) < sum(map(is_refused, clients)):  # until no more come
                refused = [client for client in clients if is_refused(client)]
                time.sleep(1)
            assert {status(client) for client in refused} <= {503, 0}
            for path, headers, expected in (
                ("version", {}, 503),
                ("gptoss/status", server.owner, 200),
                ("version", {"authorization": "Bearer wrong"}, 503),
            ):
                url = f"{server.url}/api/{path}"
                reply = httpx.get(url, headers=headers, timeout=10, trust_env=False)
                assert reply.status_code == expected
        answered = [client for client in clients if client not in refused]
        assert len(answered) > 15
        for client in answered:
            text = b""
            while b'"done":true' not in text:
                piece = client.recv(65_536)
                assert piece
                text += piece


OPEN = b"POST /api/gptoss/open HTTP/1.1\r\nHost: localhost\r\n"
STALLS = {
    "nothing": b"",
    "half a header": GET,
    "half a body": POST + b"Content-Length: 1000\r\n\r\n{",
    "half a body for all": OPEN + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
    "half a large body": POST + b"Content-Length: 2000000\r\n\r\n{" + b" " * 200_000,
    "idle": GET + b"\r\n",
    "half a body after another request": GET + b"\r\n" + OPEN + b"Content-Length: 9\r\n\r\n{",
    "answers that are not read": 16
    * (GET.replace(b"api/version", b"web/vendor/katex.js") + b"\r\n"),
}


@contextmanager
def stalled(server: RunningServer, data: bytes, n: int, host: str = "") -> Iterator[None]:
    """So many connections that send no more; to this machine, they are another account's."""
    with ExitStack() as stack:
        for _ in range(n):
            connection = stack.enter_context(connect(server, host or "127.0.0.2", host))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.setblocking(False)
            with suppress(OSError):  # it was closed already, or reads no more
                connection.send(data)
        yield


def assert_served(server: RunningServer) -> None:
    """The owner is answered ten times, long before any of the others is given up."""
    for _ in range(10):
        url, body = f"{server.url}/api/gptoss/lan", {"scheme": "ftp"}
        reply = httpx.post(url, json=body, headers=server.owner, timeout=10, trust_env=False)
        assert reply.status_code == 400


@pytest.mark.timing
@pytest.mark.parametrize("kind", STALLS)
def test_connections_that_stall_keep_nobody_out(few: RunningServer, kind: str) -> None:
    """Some of the first that stalled are closed."""
    with stalled(few, STALLS[kind], 100):
        assert_served(few)
        assert httpx.get(f"{few.url}/health", timeout=10, trust_env=False).is_success


@pytest.mark.timing
@pytest.mark.skipif(not lan_addresses(), reason="needs an address of a local network")
@pytest.mark.parametrize(
    ("scheme", "kind"), [("http", "half a body for all"), ("https", "nothing")]
)
def test_the_local_network_keeps_nobody_out(few: RunningServer, scheme: str, kind: str) -> None:
    """Not even a program of this machine without a key; a TLS handshake is a connection, too."""
    url = f"{few.url}/api/gptoss/lan"
    with connect(few) as idle:
        httpx.post(url, json={"scheme": scheme}, headers=few.owner, trust_env=False)
        assert status_of_get(idle) == 200
        with stalled(few, STALLS[kind], 150, lan_addresses()[0]):
            assert_served(few)
            assert status_of_get(idle) == 200
    httpx.delete(url, headers=few.owner, trust_env=False).raise_for_status()


@pytest.mark.timing
def test_memory_of_stalled_bodies_comes_back(own_server: RunningServer) -> None:
    process = psutil.Process(own_server.process.pid)
    before = process.memory_info().rss
    with stalled(own_server, STALLS["half a large body"], 1600):
        url = f"{own_server.url}/api/gptoss/status"
        reply = httpx.get(url, headers=own_server.owner, timeout=60, trust_env=False)
        assert reply.status_code == 200
        most = process.memory_info().rss - before
    wait_until(lambda: process.num_fds() < 100, timeout_s=30)
    assert process.memory_info().rss - before < max(most / 2, 60 * MIB)


def test_trailers_are_no_headers(keyed: RunningServer) -> None:
    """The second has arrived before the first is answered, with its trailers."""
    request = GET.replace(b"version", b"tags") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n"
    trailers = b"Authorization: Bearer secret\r\nX-Api-Key: secret\r\nHost: evil.example\r\n\r\n"
    with connect(keyed) as connection:
        connection.sendall((request + trailers) * 2)
        answers = b""
        while answers.count(b"HTTP/1.1 ") < 2:
            answers += connection.recv(65_536)
    assert answers.count(b"HTTP/1.1 401 ") == 2


def test_the_log_stays_short(nano_home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Broken requests are logged once a minute; an end, or a wish for a WebSocket, is no error."""
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n"
    with run_server(nano_home, grace_s="0") as server, ExitStack() as stack:
        asked = stack.enter_context(connect(server))
        asked.sendall(GET + upgrade)
        assert status(asked) == 200
        for _ in range(200):
            with connect(server) as connection:
                connection.sendall(b"\x16\x03\x01 TLS, by mistake\r\n\r\n")
                assert status(connection) == 400
        httpx.post(f"{server.url}/api/generate", json={"model": "nano"}, timeout=60)
        body = b'{"model":"nano","messages":[{"role":"user","content":"Hi"}]}'
        with server.engine_suspended():
            for path in (b"chat", b"gptoss/chats/changes") * 5:
                client = stack.enter_context(connect(server))
                method = b"POST" if path == b"chat" else b"GET"
                secret = server.owner["authorization"].encode()
                client.sendall(
                    b"%b /api/%b HTTP/1.1\r\nHost: localhost\r\nAuthorization: %b\r\n"
                    b"Content-Length: %d\r\n\r\n%b" % (method, path, secret, len(body), body)
                )
            stack.enter_context(stalled(server, STALLS["half a body"], 5))
            time.sleep(1)
            server.process.terminate()
            time.sleep(0.5)
        server.process.wait(timeout=30)
    log = capfd.readouterr().err
    assert log.count("Invalid HTTP request") == 1
    assert not re.findall("ERROR|WARNING.*(?:upgrade|pip)", log)


@pytest.mark.timing
def test_headers_have_a_time_limit(
    nano_home: Path, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However they come: nothing, a half, a byte every now and then, after an answer or before."""
    monkeypatch.setattr(connections, "_HEADERS_S", 2.0)
    with run_scripted_server(nano_home, Script(vocabulary)) as server, ExitStack() as stack:
        silent, half, dripping, used, reading = (
            stack.enter_context(connect(server)) for _ in range(5)
        )
        half.sendall(GET)
        dripping.sendall(GET + b"X: ")
        assert status_of_get(used) == 200
        question = b'{"model":"nano"}'
        reading.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(question))
        for _ in range(10):
            dripping.sendall(b"x")
            time.sleep(0.1)
        assert not any(map(is_closed, (silent, half, dripping, used, reading)))
        wait_until(lambda: all(map(is_closed, (silent, half, dripping))), timeout_s=5)
        reading.sendall(question)  # the time for a body is longer
        assert status(reading) == 200
        assert status_of_get(used) == 200  # idle connections live longer


def big_headers() -> Iterator[bytes]:
    """200 MB, in headers that each would be right."""
    yield GET
    for i in range(200):
        yield b"X-%d: %b\r\n" % (i, b"x" * MIB)
    yield b"\r\n"


TOO_LARGE = {
    "one": lambda: [GET + b"X: " + b"x" * 70_000 + b"\r\n\r\n"],
    "one without an end": lambda: [GET + b"X: ", *[b"x" * 50_000] * 20],
    "a name without an end": lambda: [GET, *[b"x" * 50_000] * 20],
    "many": lambda: [GET + b"".join(b"X-%d: y\r\n" % i for i in range(100_000)) + b"\r\n"],
    "address": lambda: [b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"],
    "200 MB": big_headers,
}


@pytest.mark.parametrize("kind", TOO_LARGE)
def test_headers_have_a_size_limit(nano_home: Path, keyed: RunningServer, kind: str) -> None:
    """Before the key is asked."""
    process = psutil.Process(keyed.process.pid)
    before = process.memory_info().rss
    n_sent = 0
    with connect(keyed) as connection:
        try:
            for piece in TOO_LARGE[kind]():
                connection.sendall(piece)
                n_sent += len(piece)
        except ConnectionError:
            pass
        assert n_sent < 20 * MIB
        assert status(connection) in (431, 0)
    assert process.memory_info().rss - before < 30 * MIB
    assert httpx.get(keyed.url, trust_env=False).status_code == 200


@pytest.fixture(scope="module")
def keyed(nano_home: Path) -> Iterator[RunningServer]:
    with run_server(nano_home, api_key="secret") as server:
        yield server


@pytest.mark.parametrize(
    "start", [GET, POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"]
)
def test_a_header_that_is_too_large_is_said_so(server: RunningServer, start: bytes) -> None:
    """Also one that comes after the body."""
    with connect(server) as connection:
        connection.sendall(start)
        time.sleep(0.1)
        connection.sendall(b"Cookie: " + b"x" * 70_000 + b"\r\n\r\n")
        answer = connection.recv(65_536)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"headers are larger than 64 KiB" in answer


def test_large_headers_within_the_limit(server: RunningServer, http: httpx.Client) -> None:
    """Browsers send all cookies of localhost; nothing of one request counts for the next."""
    for asks_much in (False, False, True, False, True):
        if asks_much:
            reply = http.post("/api/show", json={"model": "nano", "x": "x" * MIB})
        else:
            reply = http.get("/api/version", headers={"Cookie": "x" * 60_000})
        assert reply.status_code == 200


def test_errors_from_different_places_are_all_logged(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("gptoss.test_connections")
    log.addFilter(OncePerMinute())
    names: dict[str, str] = {}
    for _ in range(3):
        try:
            names["first"]
        except KeyError:
            log.exception("it failed")
        try:
            names["second"]
        except KeyError:
            log.exception("it failed")
    assert len(caplog.records) == 2
