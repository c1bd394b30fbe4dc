"""Clients that leave, engines that die, models that expire: what the server does about it."""

import itertools
import json
import random
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import RunningServer, run_server, wait_until

COUNT: dict[str, Any] = {
    "model": "nano",
    "messages": [{"role": "user", "content": "Count from 1 to 900."}],
    "think": False,
    "options": {"temperature": 0},
}
HI: dict[str, Any] = {
    "model": "nano",
    "messages": [{"role": "user", "content": "hi"}],
    "stream": False,
    "think": False,
    "options": {"temperature": 0},
}


@pytest.fixture
def http(own_server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=own_server.url, timeout=60, trust_env=False) as client:
        client.post("/api/generate", json={"model": "nano"})
        yield client


@contextmanager
def streaming(http: httpx.Client, body: dict[str, Any]) -> Iterator[Iterator[dict[str, Any]]]:
    """An answer of which the first frame has arrived."""
    with http.stream("POST", "/api/chat", json=body) as response:
        frames = (json.loads(line) for line in response.iter_lines())
        assert next(frames)["message"]["content"]
        yield frames


def says_hello(http: httpx.Client) -> bool:
    reply = http.post("/api/chat", json=HI)
    return bool(reply.json()["message"]["content"] == "Hello! How can I help you today?")


def is_idle(server: RunningServer) -> bool:
    """Whether the engine has used no processor time lately."""
    engine = server.engine()
    assert engine is not None
    before = sum(engine.cpu_times()[:2])
    time.sleep(0.15)
    return sum(engine.cpu_times()[:2]) - before < 0.02


@pytest.mark.timing
def test_leaving_mid_stream_frees_the_engine(http: httpx.Client, own_server: RunningServer) -> None:
    with streaming(http, COUNT):
        assert not is_idle(own_server)
    wait_until(lambda: is_idle(own_server), timeout_s=3)
    assert says_hello(http)


@pytest.mark.timing
def test_leaving_before_the_answer_frees_the_engine(
    http: httpx.Client, own_server: RunningServer
) -> None:
    """Without streaming nothing is sent for seconds, so only watching the connection helps."""
    host, port = own_server.url.removeprefix("http://").split(":")
    body = json.dumps(COUNT | {"stream": False}).encode()
    head = f"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + body)
        wait_until(lambda: not is_idle(own_server))
    wait_until(lambda: is_idle(own_server), timeout_s=3)
    assert says_hello(http)


def test_killed_engine_ends_the_stream_with_an_error_and_restarts(
    http: httpx.Client, own_server: RunningServer
) -> None:
    engine = own_server.engine()
    assert engine is not None
    with streaming(http, COUNT) as frames:
        engine.send_signal(signal.SIGKILL)
        *_, last = frames
    assert "model runner stopped unexpectedly (signal 9)" in last["error"]
    assert "done" not in last
    assert says_hello(http)
    restarted = own_server.engine()
    assert restarted is not None
    assert restarted.pid != engine.pid


def test_an_engine_killed_before_the_first_byte_is_replaced(
    http: httpx.Client, own_server: RunningServer
) -> None:
    engine = own_server.engine()
    assert engine is not None
    engine.suspend()  # so that the request certainly waits for its first token
    with httpx.Client(base_url=own_server.url, timeout=60, trust_env=False) as other:
        request = other.build_request("POST", "/api/chat", json=COUNT)
        with ThreadPoolExecutor() as pool:
            reply = pool.submit(other.send, request)
            time.sleep(0.3)
            engine.kill()
            assert reply.result().status_code == 200
    assert says_hello(http)


def test_two_requests_queue(http: httpx.Client) -> None:
    with streaming(http, COUNT | {"options": {"temperature": 0, "num_predict": 60}}) as frames:
        assert says_hello(http)
        assert list(frames)[-1]["done_reason"] == "length"


def test_eight_clients_at_once_get_what_each_would_alone(
    http: httpx.Client, own_server: RunningServer
) -> None:
    """Twice as many as run at once."""
    questions = [f"Count from {n} to {n + 12}." for n in range(1, 9)]

    def ask(question: str) -> str:
        body = HI | {"messages": [{"role": "user", "content": question}]}
        reply = httpx.post(f"{own_server.url}/api/chat", json=body, timeout=60, trust_env=False)
        return str(reply.json()["message"]["content"])

    alone = [ask(question) for question in questions]
    assert alone[0].startswith("1, 2, 3, 4, 5")
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, questions)) == alone


@pytest.mark.timing
def test_long_prefill_does_not_stall_a_stream(
    http: httpx.Client, own_server: RunningServer
) -> None:
    """Prefill takes seconds; the stream beside it gets a token all the while."""
    filler = "The old river is near the quiet house. " * 500
    long = HI | {"messages": [{"role": "user", "content": f"{filler}hi"}]}
    with ThreadPoolExecutor() as pool, streaming(http, COUNT) as frames:
        prefill = pool.submit(
            httpx.post, f"{own_server.url}/api/chat", json=long, timeout=120, trust_env=False
        )
        times_s = [time.monotonic()]
        while not prefill.done():
            if next(frames)["done"]:
                break
            times_s.append(time.monotonic())
    gaps_s = [b - a for a, b in itertools.pairwise(times_s)]
    reply = prefill.result().json()
    assert reply["prompt_eval_count"] > 4000
    # The target is 0.075; unpaced, all of the prefill is gaps of 0.2 to 0.6 s.
    stalled_s = sum(gap for gap in gaps_s if gap > 0.2)
    assert stalled_s < 0.4 * reply["prompt_eval_duration"] * 1e-9


@pytest.mark.timing
def test_many_clients_come_and_go(http: httpx.Client, own_server: RunningServer) -> None:
    """Forty requests from ten threads, some left half-way, some cut by a limit or a stop string."""
    r = random.Random(3)
    plans = [
        (r.choice(("leave", "read")), r.randrange(1, 30), r.choice((None, "7", "12, 13")))
        for _ in range(40)
    ]

    def visit(plan: tuple[str, int, str | None]) -> str:
        how, n_tokens, stop = plan
        options = {"temperature": 0, "num_predict": n_tokens, "stop": stop}
        with (
            httpx.Client(base_url=own_server.url, timeout=60, trust_env=False) as client,
            client.stream("POST", "/api/chat", json=COUNT | {"options": options}) as response,
        ):
            lines = response.iter_lines()
            if how == "leave":
                return next(lines)
            *_, last = lines
            return last

    with ThreadPoolExecutor(10) as pool:
        lasts = [json.loads(line) for line in pool.map(visit, plans)]
    for (how, n_tokens, stop), last in zip(plans, lasts, strict=True):
        if how == "read":
            assert last["done"]
            assert last["eval_count"] <= n_tokens
            assert last["done_reason"] == "length" or stop
    wait_until(lambda: is_idle(own_server), timeout_s=5)
    assert says_hello(http)


def test_more_context_reloads_less_does_not(http: httpx.Client, own_server: RunningServer) -> None:
    first = own_server.engine()
    http.post("/api/chat", json=HI | {"options": {"num_ctx": 2048}})
    assert own_server.engine() == first
    http.post("/api/chat", json=HI | {"options": {"num_ctx": 50_000}})
    assert own_server.engine() != first
    assert http.get("/api/ps").json()["models"][0]["context_length"] >= 50_000


def test_keep_alive_unloads(http: httpx.Client, own_server: RunningServer) -> None:
    http.post("/api/chat", json=HI | {"keep_alive": 0.2})
    wait_until(lambda: own_server.engine() is None)
    assert http.get("/api/ps").json()["models"] == []
    http.post("/api/chat", json=HI | {"keep_alive": -1})
    assert http.get("/api/ps").json()["models"][0]["expires_at"].startswith("2318")


def test_broken_model_file_is_a_clear_error(empty_home: Path, nano_gguf: Path) -> None:
    models = empty_home / "models"
    models.mkdir()
    data = nano_gguf.read_bytes()
    (models / "cut.gguf").write_bytes(data[: len(data) // 2])
    (models / "cuthead.gguf").write_bytes(data[:5000])
    (models / "text.gguf").write_text("not a model")
    with run_server(empty_home) as server:
        for name in ("cut", "cuthead", "text"):
            reply = httpx.post(
                f"{server.url}/api/chat", json=HI | {"model": name}, timeout=60, trust_env=False
            )
            assert reply.status_code == 500
            assert name in reply.json()["error"]
            assert reply.json()["code"] == "ModelLoadError"
        reply = httpx.post(f"{server.url}/api/chat", json=HI, timeout=60, trust_env=False)
        assert reply.json()["message"]["content"].startswith("Hello")
        tags = httpx.get(f"{server.url}/api/tags", trust_env=False)
        assert tags.status_code == 200


def test_model_file_deleted_while_loaded(empty_home: Path, nano_gguf: Path) -> None:
    path = empty_home / "models" / "mine.gguf"
    path.parent.mkdir()
    shutil.copy(nano_gguf, path)
    with (
        run_server(empty_home) as server,
        httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http,
    ):
        http.post("/api/chat", json=HI | {"model": "mine"})
        path.unlink()
        (running,) = http.get("/api/ps").json()["models"]
        assert (running["name"], running["details"]["family"]) == ("mine", "gptoss")
        assert http.post("/api/chat", json=HI | {"model": "mine"}).status_code == 404


def test_engine_dies_with_the_server(nano_home: Path) -> None:
    with run_server(nano_home) as server:
        httpx.post(f"{server.url}/api/chat", json=HI, timeout=60, trust_env=False)
        engine = server.engine()
        assert engine is not None
        server.process.kill()
        wait_until(lambda: not engine.is_running())
