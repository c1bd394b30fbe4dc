"""Many requests, several models, keep-alive, and the end of the server."""

import datetime
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from gptoss_local.errors import ModelLoadError
from gptoss_local.models.store import read_tokens
from gptoss_local.runner import loading
from tests.conftest import RunningServer, run_server, wait_until

HI: dict[str, Any] = {
    "model": "nano",
    "messages": [{"role": "user", "content": "hi"}],
    "stream": False,
    "think": False,
    "options": {"temperature": 0},
}
COUNT = HI | {"messages": [{"role": "user", "content": "Count from 1 to 900."}], "stream": True}


def client(server: RunningServer) -> httpx.Client:
    return httpx.Client(base_url=server.url, timeout=60, trust_env=False)


def running(http: httpx.Client) -> list[str]:
    return [model["name"] for model in http.get("/api/ps").json()["models"]]


@pytest.fixture
def two_models(empty_home: Path, nano_gguf: Path) -> Path:
    """A home with another model, a file of its own."""
    (empty_home / "models").mkdir()
    (empty_home / "models" / "other.gguf").hardlink_to(nano_gguf)
    return empty_home


@pytest.mark.parametrize(
    ("keep_alive", "left_s"),
    [
        ("absent", 300),
        (-1, None),
        ("5m", 300),
        ("-1", None),
        ("1h30m", 5400),
        (600, 600),
        ("600", 600),
        ("-1m", None),
        ("", "error"),
        (True, "error"),
        ("5 parsecs", "error"),
        ("0s", 0),
        (0, 0),
    ],
)
def test_keep_alive(own_server_of_module: RunningServer, keep_alive: object, left_s: Any) -> None:
    body = HI if keep_alive == "absent" else HI | {"keep_alive": keep_alive}
    with client(own_server_of_module) as http:
        reply = http.post("/api/chat", json=body)
        if left_s == "error":
            assert reply.status_code == 400
        elif left_s == 0:
            wait_until(lambda: running(http) == [], timeout_s=5)
        else:
            assert reply.status_code == 200
            (model,) = http.get("/api/ps").json()["models"]
            year = int(model["expires_at"][:4])
            assert (year == 2318) == (left_s is None)
            if left_s is not None:
                expires = datetime.datetime.fromisoformat(model["expires_at"])
                got_s = (expires - datetime.datetime.now().astimezone()).total_seconds()
                assert got_s == pytest.approx(left_s, abs=5)


@pytest.fixture(scope="module")
def own_server_of_module(nano_home: Path) -> Iterator[RunningServer]:
    with run_server(nano_home) as server:
        yield server


def test_several_models(two_models: Path) -> None:
    """One answers while another loads, and a third takes the place of the one not used for long."""
    (two_models / "models" / "third.gguf").hardlink_to(two_models / "models" / "other.gguf")
    with run_server(two_models, max_loaded_models="2") as server, client(server) as http:
        assert http.post("/api/chat", json=HI).status_code == 200
        nano = server.engine()
        with ThreadPoolExecutor(4) as pool:
            loads = [pool.submit(http.post, "/api/chat", json=HI | {"model": "other"})]
            wait_until(lambda: len(server.engines()) == 2)
            (loading,) = [engine for engine in server.engines() if engine != nano]
            loading.suspend()
            try:
                loads.append(pool.submit(http.post, "/api/chat", json=HI | {"model": "other"}))
                time.sleep(0.1)
                assert http.post("/api/chat", json=HI, timeout=10).status_code == 200
                assert not any(load.done() for load in loads)
            finally:
                loading.resume()
            assert [load.result().status_code for load in loads] == [200, 200]
        assert running(http) == ["other", "nano"]
        metrics = http.get("/metrics").text
        for name in ("nano", "other"):
            assert f'gptoss_engine_sequences_running{{model="{name}"}} 0' in metrics
        http.post("/api/chat", json=HI)
        assert http.post("/api/chat", json=HI | {"model": "third"}).status_code == 200
        assert running(http) == ["third", "nano"]
        assert nano in server.engines()
        for more in ({"keep_alive": -1}, {"model": "third"}):
            assert http.post("/api/chat", json=HI | more).status_code == 200
        assert running(http) == ["nano", "third"]  # what stays longest is first


def test_a_model_that_is_wanted_by_clients_who_left_still_loads(nano_home: Path) -> None:
    with run_server(nano_home) as server, client(server) as http:
        with pytest.raises(httpx.ReadTimeout):
            http.post("/api/chat", json=HI, timeout=0.15)
        wait_until(lambda: running(http) == ["nano"])
        first = server.engine()
        assert http.post("/api/chat", json=HI).status_code == 200
        assert server.engine() == first


@pytest.mark.timing
def test_a_load_tells_how_far_it_is_and_can_be_stopped(nano_home: Path) -> None:
    with run_server(nano_home) as server, client(server) as http, ThreadPoolExecutor(2) as pool:
        http.headers.update(server.owner)
        waiting = pool.submit(http.post, "/api/chat", json=HI)
        wait_until(lambda: len(server.engines()) == 1)
        (engine,) = server.engines()
        engine.suspend()
        (load,) = http.get("/api/gptoss/status").json()["loading"]
        assert load["model"] == "nano"
        assert load["status"] in ("waiting", "loading", "starting")
        assert 0 <= load["completed"] <= load["total"]
        assert running(http) == []
        start_s = time.monotonic()
        assert http.post("/api/generate", json={"model": "nano", "keep_alive": 0}).is_success
        reply = waiting.result()
        assert (reply.status_code, reply.json()["code"]) == (500, "ModelLoadError")
        assert "the load of nano was stopped" in reply.json()["error"]
        assert time.monotonic() - start_s < 4  # it is not waited for
        assert http.get("/api/gptoss/status").json()["loading"] == []
        assert server.engines() == []
        frames = http.post("/api/gptoss/load", json={"model": "nano"}).text.splitlines()
        statuses = [json.loads(frame) for frame in frames]
        assert statuses[-1]["status"] == "success"
        done = [status["completed"] for status in statuses[:-1]]
        assert done == sorted(done)
        assert running(http) == ["nano"]
        again = http.post("/api/gptoss/load", json={"model": "nano"}).text.splitlines()
        assert [json.loads(frame)["status"] for frame in again] == ["success"]
        assert http.post("/api/gptoss/load", json={"model": "nope"}).status_code == 404


def test_full_queue_is_a_503_in_every_dialect(nano_home: Path) -> None:
    with run_server(nano_home, num_parallel="1", max_queue="1") as server, client(server) as http:
        http.post("/api/generate", json={"model": "nano"})
        engine = server.engine()
        assert engine is not None
        engine.suspend()
        text = "server busy, please try again.  maximum pending requests exceeded"
        try:
            with ThreadPoolExecutor(2) as pool:
                waiting = [pool.submit(http.post, "/api/chat", json=HI) for _ in range(2)]
                wait_until(lambda: "gptoss_answers_active 2" in http.get("/metrics").text)
                for path in ("/api/chat", "/v1/chat/completions", "/v1/messages"):
                    reply = http.post(path, json=HI | {"max_tokens": 9})
                    assert reply.status_code == 503
                    assert text in json.dumps(reply.json())
                engine.resume()
                assert [reply.result().status_code for reply in waiting] == [200, 200]
        finally:
            engine.resume()
        assert http.post("/api/chat", json=HI).status_code == 200


def test_a_preset_decides_how_many_answers_run(nano_home: Path) -> None:
    states = ('sequences_running{model="nano"} 2', 'sequences_waiting{model="nano"} 1')
    body = COUNT | {"options": {"num_predict": 200}}
    with run_server(nano_home, preset="latency") as server, client(server) as http:
        http.post("/api/generate", json={"model": "nano"})
        with ThreadPoolExecutor(3) as pool:
            answers = [pool.submit(http.post, "/api/chat", json=body) for _ in range(3)]
            wait_until(lambda: all(state in http.get("/metrics").text for state in states))
            assert [answer.result().status_code for answer in answers] == [200] * 3


def test_shutdown_lets_answers_finish_and_refuses_new_ones(nano_home: Path) -> None:
    with run_server(nano_home) as server, client(server) as http:
        http.post("/api/generate", json={"model": "nano"})
        body = COUNT | {"options": {"temperature": 0, "num_predict": 60}}
        with http.stream("POST", "/api/chat", json=body) as response:
            frames = response.iter_lines()
            next(frames)
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: is_refused(server))
            *_, last = frames
        assert json.loads(last)["done_reason"] == "length"
        assert server.process.wait(10) == 0


@pytest.mark.timing
def test_shutdown_cuts_what_is_too_long_with_an_error(nano_home: Path) -> None:
    """A stream, a whole answer and one that waits for its turn."""
    with run_server(nano_home, num_parallel="1") as server, client(server) as http:
        http.post("/api/generate", json={"model": "nano"})
        (engine,) = server.engines()
        with http.stream("POST", "/api/chat", json=COUNT) as response:
            frames = response.iter_lines()
            next(frames)
            with ThreadPoolExecutor(2) as pool:
                others = [
                    pool.submit(http.post, "/v1/chat/completions", json=HI),
                    pool.submit(http.post, "/api/chat", json=HI | {"stream": True}),
                ]
                wait_until(lambda: "gptoss_answers_active 3" in http.get("/metrics").text)
                engine.suspend()
                server.process.send_signal(signal.SIGTERM)
                start_s = time.monotonic()
                time.sleep(0.5)
                threading.Timer(5.5, engine.resume).start()
                *_, last = frames
                replies = [other.result() for other in others]
        assert json.loads(last)["error"] == "the server is shutting down"
        assert [reply.status_code for reply in replies] == [503, 200]  # a stream has its headers
        assert replies[1].json()["error"] == "the server is shutting down"
        assert "shutting down" in replies[0].json()["error"]["message"]
        server.process.wait(10)
        assert time.monotonic() - start_s < 12
        assert not engine.is_running()


def is_refused(server: RunningServer) -> bool:
    try:
        httpx.get(server.url, trust_env=False)
    except httpx.TransportError:
        return True
    return False


def test_a_vocabulary_is_read_once_a_file(
    nano_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, n_read = tmp_path / "copy.gguf", 0

    def count(path: Path) -> list[str]:
        nonlocal n_read
        n_read += 1
        return read_tokens(path)

    monkeypatch.setattr(loading, "read_tokens", count)
    shutil.copyfile(nano_gguf, path)
    first = loading.read_vocabulary(path)
    assert loading.read_vocabulary(path) is first
    assert n_read == 1
    os.utime(path, ns=(0, 0))  # as if it were another one
    loading.read_vocabulary(path)
    assert n_read == 2
    path.unlink()
    with pytest.raises(ModelLoadError, match="copy"):
        loading.read_vocabulary(path)
