"""Engines that fail or die, clients that leave, files that break: the server's answer to each."""

import asyncio
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from gptoss_local.base.settings import Settings
from gptoss_local.engine.protocol import Finished
from gptoss_local.harmony import Vocabulary
from gptoss_local.models.store import ModelEntry, find_model
from gptoss_local.runner.manager import ModelManager
from tests import faulty_llama
from tests.cli.conftest import run_cli
from tests.conftest import PATIENCE_S, RunningServer, give_nano, run_server, wait_until
from tests.engine.run import asked
from tests.scripted_engine import Script, answer, run_scripted_server
from tests.server.conftest import metric
from tests.server.test_limits import BODIES, COUNT, running
from tests.server.test_serving import client

LEFT = 'gptoss_answers_total{end="left"}'
ABORTED = "CUDA error: an illegal memory access was encountered"
needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no compiler")


def chat(n_tokens: int, **fields: Any) -> dict[str, Any]:
    """In each dialect, with other turns among the fields."""
    turns = {} if fields.keys() & {"prompt", "input"} else {"messages": COUNT["messages"]}
    limit = {"max_output_tokens" if "input" in fields else "max_tokens": n_tokens}
    return {"model": "nano", "stream": False, "temperature": 0} | limit | fields | turns


@pytest.fixture(scope="module")
def faulty(
    tmp_path_factory: pytest.TempPathFactory, nano_home: Path
) -> Iterator[tuple[RunningServer, Path]]:
    """A server with a llama.cpp that fails as the file says."""
    folder = tmp_path_factory.mktemp("faulty")
    give_nano(nano_home, folder / "home" / "cache")
    with run_server(folder / "home", variables=faulty_llama.build(folder)) as server:
        yield server, folder / "fault"


@pytest.fixture
def failing(faulty: tuple[RunningServer, Path]) -> Iterator[tuple[httpx.Client, Path]]:
    """A client, once the model is loaded."""
    server, fault = faulty
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S, trust_env=False) as http:
        assert http.post("/api/chat", json=chat(2)).status_code == 200
        yield http, fault
    fault.unlink(missing_ok=True)


def n_lost(http: httpx.Client) -> int:
    name = "gptoss_engine_crashes_total{"
    lines = [line for line in http.get("/metrics").text.splitlines() if line.startswith(name)]
    return sum(int(float(line.split()[-1])) for line in lines)


@needs_compiler
@pytest.mark.parametrize(
    ("fault", "stream"), [("abort 1 1", False), ("fail 1 1", True), ("full 1 1", False)]
)
def test_an_answer_that_has_sent_nothing_is_tried_again(
    failing: tuple[httpx.Client, Path], fault: str, stream: bool
) -> None:
    http, file = failing
    expected, n_before = http.post("/api/chat", json=chat(20)).json()["message"], n_lost(http)
    file.write_text(fault)
    reply = http.post("/api/chat", json=chat(20, stream=stream))
    frames = [json.loads(line) for line in reply.text.splitlines()]
    assert frames[-1]["done"]
    assert "".join(f["message"].get("thinking", "") for f in frames) == expected["thinking"]
    assert n_lost(http) - n_before == 1


@needs_compiler
def test_all_waiting_answers_are_tried_again_and_doctor_says_it(
    faulty: tuple[RunningServer, Path], failing: tuple[httpx.Client, Path]
) -> None:
    """Six of them, of which four run."""
    (server, fault), (http, _) = faulty, failing
    n_before = n_lost(http)
    with ThreadPoolExecutor(6) as pool:
        with server.engine_suspended():
            fault.write_text("full 1 1")
            bodies = [chat(10 + n) for n in range(6)]
            asked = [pool.submit(http.post, "/api/chat", json=body) for body in bodies]
            wait_until(lambda: "\ngptoss_answers_active 6.0" in http.get("/metrics").text)
        assert [each.result().json()["eval_count"] for each in asked] == [10 + n for n in range(6)]
    assert n_lost(http) - n_before == 1
    done = run_cli(server.environment, "doctor", "--json")
    found = {each["name"]: each for each in json.loads(done.stdout)["findings"]}["model runner"]
    assert found["level"] == "note"
    often = f"{n_before + 1} times" if n_before else "once"
    assert f"ended unasked {often} in the last 7 days, the last time at 20" in found["text"]
    assert "with nano: llama_decode failed with status -2" in found["text"]
    assert "Close programs that hold memory (`nvidia-smi`)" in found["fix"]


@needs_compiler
@pytest.mark.parametrize(
    ("path", "fault", "body", "sentence"),
    [
        ("/api/chat", "abort 1 3", {"stream": False}, '{"error":"the model runner stopped'),
        ("/api/chat", "abort 8 1", {}, '\n{"error":"'),
        ("/api/generate", "abort 8 1", {"prompt": "Count from 1 to 900."}, '\n{"error":"'),
        ("/v1/chat/completions", "abort 8 1", {}, 'data: {"error":{"message":"'),
        ("/v1/completions", "abort 8 1", {"prompt": "1, 2, 3,"}, 'data: {"error":{"message":"'),
        ("/v1/responses", "abort 8 1", {"input": COUNT["messages"]}, "event: response.failed\n"),
        ("/v1/messages", "abort 8 1", {}, "event: error\n"),
        pytest.param(*("/api/chat", "hang 5 1", {}, "a step hangs"), marks=pytest.mark.nightly),
    ],
)
def test_an_answer_that_cannot_be_tried_again_ends_with_an_error(
    failing: tuple[httpx.Client, Path], path: str, fault: str, body: dict[str, Any], sentence: str
) -> None:
    """A second loss, and one after the first piece."""
    http, file = failing
    file.write_text(fault)
    reply = http.post(path, json=chat(60, **{"stream": True} | body))
    assert reply.status_code == (200 if fault != "abort 1 3" else 500)
    last = reply.text[reply.text.rindex(sentence) :]
    assert fault.startswith("hang") or f"(signal 6): ggml-cuda.cu:102: {ABORTED}" in last
    assert '"done":true' not in last
    file.unlink(missing_ok=True)
    assert http.post("/api/chat", json=chat(20)).status_code == 200


Managed = tuple[ModelManager, ModelEntry]


@pytest.fixture
async def managed(nano_home: Path) -> AsyncIterator[Managed]:
    settings = Settings(home=nano_home)
    manager = ModelManager(settings)
    yield manager, find_model("nano", settings)
    await manager.close()


async def test_nobody_waits_for_a_client_that_holds_a_dead_engine(managed: Managed) -> None:
    """Whether it is dead already or dies while they wait, the next one has another."""
    manager, nano = managed
    async with manager.use(nano) as first:
        waiting = asyncio.create_task(manager.unload(nano))
        await asyncio.sleep(0.05)
        os.kill(first.engine.pid, signal.SIGKILL)
        await waiting
        async with manager.use(nano) as second:
            os.kill(second.engine.pid, signal.SIGKILL)
            while second.engine.is_alive:
                await asyncio.sleep(0.01)
            async with manager.use(nano) as third:
                assert third.engine.is_alive
        assert manager.loaded == [third]


async def test_nobody_waits_for_a_client_that_does_not_read_a_complete_answer(
    managed: Managed,
) -> None:
    """The model goes, and its client may still read to the end."""
    manager, nano = managed
    async with manager.use(nano) as model:
        answer = model.engine.generate(asked([1, 2, 3], stop_tokens=[], max_tokens=20))
        await anext(answer)
        while not model.engine.unread:
            await asyncio.sleep(0.01)
        await manager.unload(nano)
        assert manager.loaded == []
        *_, last = [event async for event in answer]
        assert isinstance(last, Finished)
        assert last.usage.n_generated == 20


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", BODIES)
def test_leaving_frees_the_engine(
    server: RunningServer, http: httpx.Client, path: str, stream: bool
) -> None:
    """Without streaming nothing is sent for seconds, so only the connection tells it."""
    host, port = server.url.removeprefix("http://").split(":")
    body = json.dumps(BODIES[path] | {"stream": stream}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    left = metric(http, LEFT)
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + body)
        if stream:
            assert connection.recv(1)
        wait_until(lambda: running(http) == 1)
    wait_until(lambda: running(http) == 0)
    wait_until(lambda: metric(http, LEFT) == left + 1)


def test_engine_dies_with_the_server(own_server: RunningServer) -> None:
    httpx.post(f"{own_server.url}/api/generate", json={"model": "nano"}, timeout=PATIENCE_S)
    engine = own_server.engine()
    assert engine is not None
    own_server.process.kill()
    wait_until(lambda: not engine.is_running())


def test_a_broken_model_file_is_an_error_with_its_name(empty_home: Path, nano_gguf: Path) -> None:
    models = empty_home / "models"
    models.mkdir()
    data = nano_gguf.read_bytes()
    (models / "cut.gguf").write_bytes(data[: len(data) // 2])
    (models / "cuthead.gguf").write_bytes(data[:5000])
    (models / "text.gguf").write_text("not a model")
    with run_server(empty_home) as server, client(server) as http:
        for name in ("cut", "cuthead", "text"):
            reply = http.post("/api/chat", json=chat(9, model=name))
            assert (reply.status_code, reply.json()["code"]) == (500, "ModelLoadError")
            assert name in reply.json()["error"]
        assert http.get("/api/tags").status_code == 200


@pytest.fixture
def script(vocabulary: Vocabulary) -> Script:
    script = Script(vocabulary)
    script.otherwise(answer("As you say."))
    return script


def test_model_file_deleted_while_loaded(empty_home: Path, nano_gguf: Path, script: Script) -> None:
    path = empty_home / "models" / "mine.gguf"
    path.parent.mkdir()
    shutil.copy(nano_gguf, path)
    with run_scripted_server(empty_home, script) as server, client(server) as http:
        http.post("/api/chat", json=chat(9, model="mine"))
        path.unlink()
        (shown,) = http.get("/api/ps").json()["models"]
        assert (shown["name"], shown["details"]["family"]) == ("mine", "gptoss")
        assert http.post("/api/chat", json=chat(9, model="mine")).status_code == 404


@pytest.fixture
def full_home(empty_home: Path) -> Iterator[Path]:
    """A home with its models on a disk of 1 MiB."""
    models = empty_home / "models"
    models.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(models)]
    if subprocess.run(mount, check=False).returncode:
        pytest.skip("needs the right to mount")
    yield empty_home
    subprocess.run(["umount", "-l", str(models)], check=True)


def test_a_full_disk_is_507(full_home: Path, script: Script) -> None:
    data = b"x" * 2 * 2**20
    blob = f"/api/blobs/sha256:{hashlib.sha256(data).hexdigest()}"
    with run_scripted_server(full_home, script) as server, client(server) as http:
        copied = http.post("/api/copy", json={"source": "nano", "destination": "other"})
        for reply in (copied, http.post(blob, content=data)):
            assert (reply.status_code, reply.json()["code"]) == (507, "DiskFullError")
            assert "No space left" in reply.json()["error"]
            assert "gptoss gc" in reply.json()["hint"]
        created = http.post("/api/create", json={"model": "ada", "from": "nano", "system": "Hi"})
        assert "No space left" in created.text
        assert http.post("/api/show", json={"model": "nano"}).is_success
    assert not list((full_home / "models").rglob("*.gguf"))


def test_a_folder_that_cannot_be_written_is_500(empty_home: Path, script: Script) -> None:
    (empty_home / "models").write_bytes(b"a file where the folder belongs")
    with run_scripted_server(empty_home, script) as server, client(server) as http:
        reply = http.post("/api/copy", json={"source": "nano", "destination": "other"})
        assert (reply.status_code, reply.json()["code"]) == (500, "DiskError")
