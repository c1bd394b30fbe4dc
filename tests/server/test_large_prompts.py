"""Prompts that are far too long: refused early, forgotten when their client leaves."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import msgspec
import psutil
import pytest

from tests.conftest import RunningServer, wait_until
from tests.server.second_client import assert_undisturbed

SLOW_TEXT = "ab" * 5_000_000  # one word; rendered to its end, it takes 10 s
PROSE = "All of it is plain words, and one after the other. " * 200_000
ASKED = [{"role": "user", "content": "What is 2 + 2?"}]


def chat(text: str) -> dict[str, Any]:
    return {"model": "nano", "messages": [{"role": "user", "content": text}]}


BODIES: dict[str, dict[str, Any]] = {
    "/api/chat": chat(SLOW_TEXT),
    "/api/generate": {"model": "nano", "prompt": SLOW_TEXT, "raw": True},
    "/v1/chat/completions": chat(SLOW_TEXT),
    "/v1/responses": {"model": "nano", "input": SLOW_TEXT},
    "/v1/messages": {**chat(SLOW_TEXT), "max_tokens": 10},
    "/v1/messages/count_tokens": chat(SLOW_TEXT),
    "/api/gptoss/inspect": chat(SLOW_TEXT),
}
REFUSED = [path for path in BODIES if path != "/v1/messages/count_tokens"]


@contextmanager
def sent(server: RunningServer, path: str, n_clients: int = 1) -> Iterator[None]:
    """Clients that have sent a large body, and leave at the end without having read an answer."""
    body = msgspec.json.encode(BODIES[path])
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with ExitStack() as clients:
        for _ in range(n_clients):
            port = int(server.url.rpartition(":")[2])
            client = clients.enter_context(socket.create_connection(("127.0.0.1", port)))
            client.sendall(head.encode() + body)
        yield


def ask(http: httpx.Client) -> float:
    """Ask a normal question; return how long that took, in seconds."""
    start_s = time.monotonic()
    body = {"model": "nano", "messages": ASKED, "stream": False, "think": False}
    assert http.post("/api/chat", json=body).is_success
    return time.monotonic() - start_s


@pytest.fixture(autouse=True)
def loaded(http: httpx.Client) -> None:
    ask(http)


@pytest.mark.timing
@pytest.mark.parametrize("path", ["/api/chat", "/api/generate", "/v1/messages/count_tokens"])
def test_others_are_served_meanwhile(server: RunningServer, path: str) -> None:
    def attack() -> None:
        with sent(server, path, 6):
            time.sleep(1)

    assert_undisturbed(server.url, attack)


@pytest.mark.timing
@pytest.mark.parametrize("path", ["/api/chat", "/v1/messages/count_tokens"])
def test_a_question_is_answered_beside_large_ones(
    server: RunningServer, http: httpx.Client, path: str
) -> None:
    waits_s: list[float] = []
    while min(waits_s, default=9) > 1.5:  # this machine may be busy with something else
        assert len(waits_s) < 4, waits_s
        with sent(server, path, 6):
            time.sleep(0.5)
            waits_s.append(ask(http))


@pytest.mark.timing
@pytest.mark.parametrize("path", ["/api/generate", "/v1/responses"])
def test_what_no_client_waits_for_is_not_rendered(server: RunningServer, path: str) -> None:
    process = psutil.Process(server.process.pid)

    def used_s() -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    def is_idle() -> bool:
        before_s = used_s()
        time.sleep(0.3)
        return used_s() - before_s < 0.05

    with sent(server, path, 6):
        time.sleep(0.5)
    wait_until(is_idle, timeout_s=3)


@pytest.mark.parametrize("path", REFUSED)
def test_a_prompt_that_cannot_fit_is_refused(http: httpx.Client, path: str) -> None:
    reply = http.post(path, json=BODIES[path] | {"stream": False})
    assert reply.status_code == 400
    assert "tokens > " in reply.text


@pytest.mark.timing
def test_a_prompt_that_cannot_fit_is_refused_unread(http: httpx.Client) -> None:
    """Blanks are the longest tokens there are, and 17 million of them more than any context."""
    start_s = time.process_time()
    reply = http.post("/api/chat", json=chat(" " * 17_000_000))
    assert reply.status_code == 400
    assert "at least 132812 tokens > " in reply.text
    assert time.process_time() - start_s < 5


def test_a_prompt_is_counted_to_its_end_where_that_is_asked(http: httpx.Client) -> None:
    reply = http.post("/v1/messages/count_tokens", json=chat(PROSE[:1_000_000]))
    assert reply.json()["input_tokens"] > 200_000
