"""Bodies and prompts that are far too large: refused, and no other client waits for it."""

import gzip
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from http.client import HTTPConnection
from socket import create_connection
from typing import Any

import httpx
import msgspec
import psutil
import pytest

from tests.conftest import RunningServer, wait_until
from tests.server.second_client import assert_undisturbed
from tests.server.test_limits import BODIES, TEN_MILLION

N_CLIENTS = 32
MOST_RSS_BYTES = 450_000_000  # more than an idle server has
ALLOWED = ("[" + "{}," * 65_000 + "{}]", json.dumps(dict.fromkeys(map(str, range(32_000)))))
SLOW_TEXT = "ab" * 5_000_000  # one word; rendered to its end, it takes 10 s
PROSE = "All of it is plain words, and one after the other. " * 200_000


def chat(text: str) -> dict[str, Any]:
    return {"model": "nano", "messages": [{"role": "user", "content": text}]}


PROMPTS: dict[str, dict[str, Any]] = {
    "/api/chat": chat(SLOW_TEXT),
    "/api/generate": {"model": "nano", "prompt": SLOW_TEXT, "raw": True},
    "/v1/chat/completions": chat(SLOW_TEXT),
    "/v1/responses": {"model": "nano", "input": SLOW_TEXT},
    "/v1/messages": {**chat(SLOW_TEXT), "max_tokens": 10},
    "/v1/messages/count_tokens": chat(SLOW_TEXT),
    "/api/gptoss/inspect": chat(SLOW_TEXT),
}


def with_arguments(*texts: str, model: str = "nano") -> bytes:
    """Make a body with values inside texts, where the arguments of calls have them."""
    calls = [{"function": {"name": "f", "arguments": text}} for text in texts]
    messages = [{"role": "user"}, {"role": "assistant", "tool_calls": calls}]
    return json.dumps({"model": model, "messages": messages}).encode()


@contextmanager
def sent(server: RunningServer, path: str, n_clients: int = 6) -> Iterator[None]:
    """Have clients send a large prompt; in the end they leave without having read an answer."""
    body = msgspec.json.encode(PROMPTS[path])
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with ExitStack() as clients:
        for _ in range(n_clients):
            port = int(server.url.rpartition(":")[2])
            client = clients.enter_context(create_connection(("127.0.0.1", port)))
            client.sendall(head.encode() + body)
        yield


def ask(http: httpx.Client) -> float:
    """Ask a normal question; return how long that took, in seconds."""
    start_s = time.monotonic()
    body = chat("What is 2 + 2?") | {"stream": False, "think": False}
    assert http.post("/api/chat", json=body).is_success
    return time.monotonic() - start_s


def of_values(make: Callable[[], bytes], encoding: str = "") -> Callable[..., None]:
    content = cache(make)  # made when it is sent, not where tests are only collected

    def attack(_: RunningServer, http: httpx.Client) -> None:
        reply = http.post("/api/chat", content=content(), headers={"content-encoding": encoding})
        assert reply.status_code == 413
        assert "names, objects and arrays" in reply.json()["error"]

    return attack


def of_as_many_as_are_allowed(_: RunningServer, http: httpx.Client) -> None:
    for x in ALLOWED:
        reply = http.post("/api/show", content=f'{{"model":"nano","x":{x}}}'.encode())
        assert reply.status_code == 200


def of_a_path_of_many_parts(_: RunningServer, http: httpx.Client) -> None:
    assert http.get("/a" * 25_000).status_code == 404


def of_prompts(path: str, n_clients: int) -> Callable[..., None]:
    def attack(server: RunningServer, _: httpx.Client) -> None:
        with sent(server, path, n_clients):
            time.sleep(1)

    return attack


def million_keys() -> bytes:
    return b'{"model":"nano","x":{' + b",".join(b'"k%d":1' % i for i in range(1_000_000)) + b"}}"


ATTACKS: dict[str, Callable[[RunningServer, httpx.Client], None]] = {
    "compressed values": of_values(lambda: gzip.compress(TEN_MILLION, 9), "gzip"),
    "values": of_values(lambda: TEN_MILLION),
    "keys": of_values(million_keys),
    "values inside a text": of_values(lambda: with_arguments("[" + "{}," * 1_000_000 + "{}]")),
    "as many as are allowed": of_as_many_as_are_allowed,
    "a path of many parts": of_a_path_of_many_parts,
    "prompts": of_prompts("/api/chat", 6),
    "prompts to count": of_prompts("/v1/messages/count_tokens", 2),  # each has a core
}


@pytest.mark.timing
@pytest.mark.parametrize("attack", ATTACKS)
def test_others_are_served_meanwhile(
    server: RunningServer, http: httpx.Client, attack: str
) -> None:
    ask(http)
    assert_undisturbed(server.url, lambda: ATTACKS[attack](server, http))


@pytest.mark.timing
def test_many_large_bodies(own_server: RunningServer) -> None:
    """They are answered or refused, take no more memory than a few, and disturb nobody."""
    process = psutil.Process(own_server.process.pid)
    text = json.dumps(chat("ab" * 9_000_000))
    with httpx.Client(base_url=own_server.url, timeout=120, trust_env=False) as http:
        ask(http)
        idle_bytes = process.memory_info().rss

        def attack() -> None:
            most_bytes = 0
            with ThreadPoolExecutor(N_CLIENTS) as clients:
                replies: list[Future[httpx.Response]] = [
                    clients.submit(http.post, "/api/chat", content=text) for _ in range(N_CLIENTS)
                ]
                while wait(replies, timeout=0.02).not_done:
                    most_bytes = max(most_bytes, process.memory_info().rss)
            print(f"{(most_bytes - idle_bytes) / 1e6:.0f} MB more")
            assert most_bytes - idle_bytes < MOST_RSS_BYTES
            for reply in map(Future.result, replies):
                assert reply.status_code in (400, 503)
                words = "tokens > " if reply.status_code == 400 else "server busy"
                assert words in reply.json()["error"]

        assert_undisturbed(own_server.url, attack)


@pytest.mark.parametrize("path", BODIES)
def test_a_length_that_is_too_large_is_refused_before_the_body(
    server: RunningServer, path: str
) -> None:
    address = server.url.removeprefix("http://")
    with closing(HTTPConnection(address, timeout=10)) as connection:
        connection.putrequest("POST", path)
        connection.putheader("Content-Length", "99999999")
        connection.endheaders()
        with connection.getresponse() as reply:
            assert reply.status == 413


@pytest.mark.timing
def test_a_question_is_answered_beside_large_ones(
    server: RunningServer, http: httpx.Client
) -> None:
    """A prompt is not rendered once its client has left."""
    ask(http)
    waits_s: list[float] = []
    while min(waits_s, default=9) > 1.5:  # this machine may be busy with something else
        assert len(waits_s) < 4, waits_s
        with sent(server, "/api/generate"):
            time.sleep(0.5)
            waits_s.append(ask(http))
    process = psutil.Process(server.process.pid)

    def used_s() -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    def is_idle() -> bool:
        before_s = used_s()
        time.sleep(0.3)
        return used_s() - before_s < 0.05

    wait_until(is_idle, timeout_s=3)


@pytest.mark.parametrize("path", [path for path in PROMPTS if not path.endswith("count_tokens")])
def test_a_prompt_that_cannot_fit_is_refused(http: httpx.Client, path: str) -> None:
    reply = http.post(path, json=PROMPTS[path] | {"stream": False})
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


def test_what_is_long_is_read_to_its_end_where_that_is_asked(http: httpx.Client) -> None:
    """Ollama's `context` has an id for every token; so many are read, and then do not fit."""
    reply = http.post("/v1/messages/count_tokens", json=chat(PROSE[:1_000_000]))
    assert reply.json()["input_tokens"] > 200_000
    body = {"model": "nano", "prompt": "Hi", "context": [1] * 140_000, "stream": False}
    reply = http.post("/api/generate", json=body)
    assert reply.status_code == 400
    assert "tokens > " in reply.text
