"""Many requests, several models, keep-alive, and the end of the server."""

import datetime
import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from gptoss_local.base.errors import ModelLoadError
from gptoss_local.harmony import Vocabulary
from gptoss_local.models.store import read_tokens
from gptoss_local.runner import loading
from tests.conftest import PATIENCE_S, RunningServer, run_server, wait_until
from tests.scripted_engine import Script, answer, run_scripted_server
from tests.server.conftest import metric

HI: dict[str, Any] = {
    "model": "nano",
    "messages": [{"role": "user", "content": "hi"}],
    "stream": False,
    "think": False,
    "options": {"temperature": 0},
}
COUNT = HI | {"messages": [{"role": "user", "content": "Count from 1 to 900."}], "stream": True}


def client(server: RunningServer) -> httpx.Client:
    return httpx.Client(base_url=server.url, timeout=PATIENCE_S, trust_env=False)


def running(http: httpx.Client) -> list[str]:
    return [model["name"] for model in http.get("/api/ps").json()["models"]]


@pytest.fixture(scope="module")
def scripted(nano_home: Path, vocabulary: Vocabulary) -> Iterator[RunningServer]:
    script = Script(vocabulary)
    script.otherwise(answer("As you say."))
    with run_scripted_server(nano_home, script) as server:
        yield server


@pytest.mark.quick
@pytest.mark.parametrize(
    ("keep_alive", "left_s"),
    [
        *((None, 300), ("1h30m", 5400), (600, 600), ("-1m", None)),
        *((True, "error"), ("0s", 0)),
    ],
)
def test_keep_alive(scripted: RunningServer, keep_alive: object, left_s: Any) -> None:
    body = HI if keep_alive is None else HI | {"keep_alive": keep_alive}
    with client(scripted) as http:
        reply = http.post("/api/chat", json=body)
        assert reply.status_code == (400 if left_s == "error" else 200)
        if left_s == 0:
            wait_until(lambda: running(http) == [])
        elif left_s != "error":
            (model,) = http.get("/api/ps").json()["models"]
            assert (int(model["expires_at"][:4]) == 2318) == (left_s is None)
            if left_s is not None:
                expires = datetime.datetime.fromisoformat(model["expires_at"])
                got_s = (expires - datetime.datetime.now().astimezone()).total_seconds()
                assert left_s - PATIENCE_S < got_s <= left_s


def test_a_connection_is_kept_for_longer_than_clients_keep_it(scripted: RunningServer) -> None:
    """Python's clients reuse one for up to 5 s; the server must not close it just then."""
    thread: Any = scripted.process
    assert thread.server.config.timeout_keep_alive > 5


def test_several_models(empty_home: Path, nano_gguf: Path) -> None:
    """One answers while another loads, and a third takes the place of the one not used for long."""
    (empty_home / "models").mkdir()
    for name in ("other", "third"):
        shutil.copy(nano_gguf, empty_home / "models" / f"{name}.gguf")  # links are one model
    with run_server(empty_home, max_loaded_models="2") as server, client(server) as http:

        def ask(model: str, **more: Any) -> int:
            return http.post("/api/chat", json=HI | {"model": model} | more).status_code

        assert ask("nano") == 200
        nano = server.engine()
        with ThreadPoolExecutor(2) as pool:
            loads = [pool.submit(ask, "other")]
            wait_until(lambda: len(server.engines()) == 2)
            (loading,) = [engine for engine in server.engines() if engine != nano]
            loading.suspend()
            try:
                loads.append(pool.submit(ask, "other"))
                assert ask("nano") == 200
                assert not any(load.done() for load in loads)
            finally:
                loading.resume()
            assert [load.result() for load in loads] == [200, 200]
        assert running(http) == ["other", "nano"]
        ask("nano")
        assert ask("third") == 200
        assert running(http) == ["third", "nano"]
        assert nano in server.engines()
        assert (ask("nano", keep_alive=-1), ask("third")) == (200, 200)
        assert running(http) == ["nano", "third"]  # the model that stays longest is first


def test_a_load_goes_on_without_its_client_tells_how_far_it_is_and_can_be_stopped(
    own_server: RunningServer,
) -> None:
    server = own_server
    with client(server) as http, ThreadPoolExecutor(2) as pool:
        http.headers.update(server.owner)
        waiting = pool.submit(http.post, "/api/chat", json=HI)
        wait_until(lambda: len(server.engines()) == 1)
        (engine,) = server.engines()
        engine.suspend()  # nobody waits for it
        (load,) = http.get("/api/gptoss/status").json()["loading"]
        assert load["model"] == "nano"
        assert load["status"] in ("waiting", "loading", "starting")
        assert 0 <= load["completed"] <= load["total"]
        assert running(http) == []
        assert http.post("/api/generate", json={"model": "nano", "keep_alive": 0}).is_success
        reply = waiting.result()
        assert (reply.status_code, reply.json()["code"]) == (500, "ModelLoadError")
        assert "the load of nano was stopped" in reply.json()["error"]
        assert http.get("/api/gptoss/status").json()["loading"] == []
        assert server.engines() == []
        with pytest.raises(httpx.ReadTimeout):
            http.post("/api/chat", json=HI, timeout=0.15)
        wait_until(lambda: running(http) == ["nano"])
        http.post("/api/generate", json={"model": "nano", "keep_alive": 0})
        frames = http.post("/api/gptoss/load", json={"model": "nano"}).text.splitlines()
        statuses = [json.loads(frame) for frame in frames]
        assert statuses[-1]["status"] == "success"
        done = [status["completed"] for status in statuses[:-1]]
        assert done == sorted(done)
        assert running(http) == ["nano"]
        again = http.post("/api/gptoss/load", json={"model": "nano"}).text.splitlines()
        assert [json.loads(frame)["status"] for frame in again] == ["success"]
        assert http.post("/api/gptoss/load", json={"model": "nope"}).status_code == 404


def test_the_end_lets_answers_finish_and_refuses_new_ones(nano_home: Path) -> None:
    with run_server(nano_home, grace_s=str(PATIENCE_S)) as server, client(server) as http:
        body = COUNT | {"options": {"temperature": 0, "num_predict": 60}}
        with http.stream("POST", "/api/chat", json=body) as response:
            frames = response.iter_lines()
            next(frames)
            with server.engine_suspended():
                server.process.send_signal(signal.SIGTERM)
                wait_until(lambda: is_refused(server))
            *_, last = frames
        assert json.loads(last)["done_reason"] == "length"
        assert server.process.wait() == 0


def test_the_end_cuts_long_answers_with_an_error(nano_home: Path) -> None:
    """A stream, a whole answer and one that waits for its turn."""
    plain = {name: HI[name] for name in ("model", "messages")}
    with (
        run_server(nano_home, num_parallel="1", grace_s="1") as server,
        client(server) as http,
        ThreadPoolExecutor(2) as pool,
    ):
        with http.stream("POST", "/api/chat", json=COUNT) as response:
            frames = response.iter_lines()
            next(frames)
            engine = server.engine()
            assert engine is not None
            engine.suspend()
            others = [
                pool.submit(http.post, "/v1/chat/completions", json=plain),
                pool.submit(http.post, "/api/chat", json=HI | {"stream": True}),
            ]
            wait_until(lambda: metric(http, "gptoss_answers_active") == 3)
            server.process.send_signal(signal.SIGTERM)
            threading.Timer(1.5, engine.resume).start()
            *_, last = frames
            replies = [other.result() for other in others]
        assert json.loads(last)["error"] == "the server is shutting down"
        assert replies[0].status_code == 503  # a stream may have its headers
        assert replies[1].json()["error"] == "the server is shutting down"
        assert "shutting down" in replies[0].json()["error"]["message"]
        server.process.wait()
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
    path, read = tmp_path / "copy.gguf", list[Path]()
    monkeypatch.setattr(loading, "read_tokens", lambda p: [read.append(p), *read_tokens(p)][1:])
    shutil.copyfile(nano_gguf, path)
    first = loading.read_vocabulary(path)
    assert loading.read_vocabulary(path) is first
    assert len(read) == 1
    os.utime(path, ns=(0, 0))  # as if it were another one
    loading.read_vocabulary(path)
    assert len(read) == 2
    path.unlink()
    with pytest.raises(ModelLoadError, match="copy"):
        loading.read_vocabulary(path)
