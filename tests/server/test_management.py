"""Models come, get names and go: create, copy, delete, blobs, pull, and refusals."""

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import ollama
import psutil
import pytest

from tests.conftest import RunningServer, wait_until
from tests.convert.tiny import write_tiny
from tests.hub.conftest import no_account  # noqa: F401
from tests.hub.server import Fault, HubServer, run_hub
from tests.pulling.test_pull import read_folder

REPO = "openai/gpt-oss-20b"
N_SHARDS = 3
HI: dict[str, Any] = {
    "messages": [{"role": "user", "content": "hi"}],
    "stream": False,
    "think": False,
    "options": {"temperature": 0},
}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with run_hub() as server:
        files = write_tiny(tmp_path / "gpt-oss-20b", n_shards=N_SHARDS)
        server.add(REPO, read_folder(files))
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


@pytest.fixture
def http(home_server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=home_server.url, timeout=60, trust_env=False) as client:
        yield client


def names(http: httpx.Client) -> set[str]:
    return {model["name"] for model in http.get("/api/tags").json()["models"]}


def lines(reply: httpx.Response) -> list[dict[str, Any]]:
    assert reply.headers["content-type"] == "application/x-ndjson", reply.text
    return [json.loads(line) for line in reply.text.splitlines()]


def test_a_file_is_uploaded_named_copied_used_and_deleted(
    home_server: RunningServer, http: httpx.Client, nano_gguf: Path
) -> None:
    """A broken upload leaves nothing."""
    models = home_server.home / "models"
    digest = "sha256:" + hashlib.sha256(b"right").hexdigest()
    wrong = http.post(f"/api/blobs/{digest}", content=b"wrong")
    assert wrong.status_code == 400
    assert wrong.json()["error"].startswith(f'digest mismatch, expected "{digest}", got "sha256:')
    for bad in ("sha256:12", "md5:" + "0" * 64, "..%2F..%2Fetc%2Fpasswd"):
        assert http.post(f"/api/blobs/{bad}", content=b"x").status_code in (400, 404)
    assert [p for p in models.rglob("*") if p.is_file()] == []
    assert http.post(f"/api/blobs/{digest}", content=b"right").status_code == 201
    made = http.post("/api/create", json={"model": "x", "files": {"x.gguf": digest}})
    assert lines(made)[-1]["error"] == "supplied file was not in GGUF format"
    digest = "sha256:" + hashlib.sha256(nano_gguf.read_bytes()).hexdigest()
    assert http.head(f"/api/blobs/{digest}").status_code == 404
    with ollama.Client(home_server.url, trust_env=False) as sdk:
        assert sdk.create_blob(nano_gguf) == digest
        assert http.head(f"/api/blobs/{digest}").status_code == 200
        assert http.post(f"/api/blobs/{digest}", content=b"").status_code == 200
        statuses = [s.status for s in sdk.create("Mine:7B", files={"a.gguf": digest}, stream=True)]
        expected = ["parsing GGUF", "writing manifest", "success"]
        assert [*dict.fromkeys(statuses)] == expected  # a slow machine repeats one
        sdk.create("second", from_="mine:7b")
        sdk.copy("second", "someone/third")
        sdk.copy("second", "con-x")  # only looks like a name that Windows has not
        assert names(http) == {"nano", "mine:7b", "second", "someone/third", "con-x"}
        reply = http.post("/api/chat", json=HI | {"model": "MINE:7b"}).json()
        assert reply["message"]["content"] == "Hello! How can I help you today?"
        sdk.delete("mine:7b")
        assert http.get("/api/ps").json()["models"] == []
        sdk.delete("second")
        sdk.delete("con-x")
        reply = http.post("/api/chat", json=HI | {"model": "someone/third"}).json()
        assert reply["message"]["content"] == "Hello! How can I help you today?"
    assert [p.name for p in models.glob("*.gguf")] == ["someone%2Fthird.gguf"]
    assert not list(models.rglob("*.part"))


def test_a_pull_is_left_continued_done_and_stopped(
    hub: HubServer, http: httpx.Client, home_server: RunningServer
) -> None:
    """Two watch it; when both have left, it ends, and the next one continues with the rest."""
    last = f"model-{N_SHARDS:05d}-of-{N_SHARDS:05d}.safetensors"
    hub.strike(last, Fault(stall_after=100))

    def watch(n_lines: int) -> int:
        with http.stream("POST", "/api/pull", json={"model": "20b"}) as reply:
            found = reply.iter_lines()
            for _ in range(n_lines):
                next(found)
            return len(pullers())

    def pullers() -> list[psutil.Process]:
        return psutil.Process(home_server.process.pid).children()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(watch, (4, 4))) == [1, 1]
    wait_until(lambda: not pullers())
    hub.heal()
    assert names(http) == {"nano"}
    sent = dict(hub.sent)
    found = lines(http.post("/api/pull", json={"model": "gpt-oss"}))
    assert last in {name for name, n in hub.sent.items() if n != sent.get(name, 0)}
    assert found[0] == {"status": "pulling manifest"}
    tail = ["verifying sha256 digest", "writing manifest", "success"]
    assert [line["status"] for line in found[-3:]] == tail
    layer = [line for line in found if line["status"].startswith("pulling ") and "digest" in line]
    assert layer[-1]["completed"] == layer[-1]["total"] > 0
    assert layer[-1]["digest"].removeprefix("sha256:")[:12] == layer[-1]["status"].split()[1]
    assert names(http) == {"nano", "gpt-oss:20b"}
    assert [p.name for p in (home_server.home / "models").iterdir()] == ["gpt-oss-20b.gguf"]
    again = lines(http.post("/api/pull", json={"model": "gpt-oss:20b"}))
    assert [line["status"] for line in again] == ["pulling manifest", *tail]
    whole = http.post("/api/pull", json={"name": "nano", "stream": False})
    assert whole.json() == {"status": "success"}
    assert http.request("DELETE", "/api/delete", json={"model": "gpt-oss:20b"}).is_success
    hub.strike("config.json", Fault(stall_after=1))
    with http.stream("POST", "/api/pull", json={"model": "20b"}) as reply:
        left = reply.iter_lines()
        next(left)
        home_server.process.terminate()
        *_, end = left
    assert json.loads(end)["error"] == "the server is shutting down"
    home_server.process.wait()
    hub.heal()
