"""The GPU is lost under a request: the engine is replaced, and nobody is left waiting."""

import json
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import faulty_llama
from tests.cli.conftest import run_cli
from tests.conftest import RunningServer, run_server

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no compiler")

LONG = [{"role": "user", "content": "Count from 1 to 900."}]
ABORTED = "CUDA error: an illegal memory access was encountered"


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory, nano_home: Path) -> Path:
    """A folder with a home, and the library that fails."""
    folder = tmp_path_factory.mktemp("faulty")
    shutil.copytree(nano_home / "cache", folder / "home" / "cache")
    return folder


@pytest.fixture(scope="module")
def server(faulty: Path) -> Iterator[RunningServer]:
    with run_server(faulty / "home", variables=faulty_llama.build(faulty)) as server:
        yield server


@pytest.fixture
def fault(faulty: Path) -> Iterator[Path]:
    yield faulty / "fault"
    (faulty / "fault").unlink(missing_ok=True)


@pytest.fixture
def http(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=120, trust_env=False) as http:
        assert http.post("/api/chat", json=chat(2)).status_code == 200  # loaded
        yield http


def chat(n_tokens: int, **fields: Any) -> dict[str, Any]:
    options = {"num_predict": n_tokens, "temperature": 0}
    return {"model": "nano", "messages": LONG, "stream": False, "options": options} | fields


def n_lost(http: httpx.Client) -> int:
    name = "gptoss_engine_crashes_total{"
    lines = [line for line in http.get("/metrics").text.splitlines() if line.startswith(name)]
    return sum(int(float(line.split()[-1])) for line in lines)


@pytest.mark.parametrize("kind", ["abort", "fail", "full"])
@pytest.mark.parametrize("stream", [False, True])
def test_what_has_sent_nothing_is_tried_again(
    http: httpx.Client, fault: Path, kind: str, stream: bool
) -> None:
    expected, n_before = http.post("/api/chat", json=chat(20)).json()["message"], n_lost(http)
    fault.write_text(f"{kind} 1 1")
    start_s = time.monotonic()
    reply = http.post("/api/chat", json=chat(20, stream=stream))
    assert time.monotonic() - start_s < 30
    frames = [json.loads(line) for line in reply.text.splitlines()]
    assert frames[-1]["done"]
    assert "".join(f["message"].get("thinking", "") for f in frames) == expected["thinking"]
    assert n_lost(http) - n_before == 1


def test_a_second_loss_is_an_error(http: httpx.Client, fault: Path) -> None:
    fault.write_text("abort 1 3")
    reply = http.post("/api/chat", json=chat(20))
    assert reply.status_code == 500
    assert f"stopped unexpectedly (signal 6): ggml-cuda.cu:102: {ABORTED}" in reply.json()["error"]
    assert fault.read_text() == "abort 1 1", "it was tried twice"
    fault.unlink()
    assert http.post("/api/chat", json=chat(20)).status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/api/chat", chat(60, stream=True), '{"error":"'),
        ("/api/generate", chat(60, stream=True, prompt="Count from 1 to 900."), '{"error":"'),
        ("/v1/chat/completions", {"max_tokens": 60}, 'data: {"error":{"message":"'),
        (
            "/v1/completions",
            {"max_tokens": 60, "prompt": "1, 2, 3,"},
            'data: {"error":{"message":"',
        ),
        ("/v1/responses", {"input": "Count from 1 to 900."}, "event: response.failed\n"),
        ("/v1/messages", {"max_tokens": 60}, "event: error\n"),
    ],
)
def test_after_the_first_piece_each_dialect_says_so(
    http: httpx.Client, fault: Path, path: str, body: dict[str, Any], words: str
) -> None:
    fault.write_text("abort 8 1")
    reply = http.post(path, json={"model": "nano", "messages": LONG, "stream": True} | body)
    assert reply.status_code == 200
    last = reply.text[reply.text.rindex(words) :]
    assert ABORTED in last
    assert http.post("/api/chat", json=chat(20)).status_code == 200


def test_all_who_wait_are_tried_again(
    server: RunningServer, fault: Path, http: httpx.Client
) -> None:
    """Six of them, of which four run."""
    n_before = n_lost(http)

    def ask(n: int) -> int:
        url = f"{server.url}/api/chat"
        reply = httpx.post(url, json=chat(10 + n), timeout=120, trust_env=False)
        return int(reply.json()["eval_count"])

    with ThreadPoolExecutor(6) as pool:
        with server.engine_suspended():
            fault.write_text("fail 1 1")
            asked = [pool.submit(ask, n) for n in range(6)]
            time.sleep(1)
        assert [each.result() for each in asked] == [10 + n for n in range(6)]
    assert n_lost(http) - n_before == 1


@pytest.mark.timing
def test_a_step_that_hangs_is_ended_after_a_minute(http: httpx.Client, fault: Path) -> None:
    http.post("/api/chat", json=chat(20))
    fault.write_text("hang 5 1")
    start_s = time.monotonic()
    reply = http.post("/api/chat", json=chat(20, stream=True))
    assert 60 < time.monotonic() - start_s < 100
    assert "a step hangs" in json.loads(reply.text.splitlines()[-1])["error"]
    assert http.post("/api/chat", json=chat(20)).status_code == 200


def test_doctor_says_when_and_what_to_do(
    server: RunningServer, http: httpx.Client, fault: Path
) -> None:
    n_before = n_lost(http)
    fault.write_text("full 1 1")
    assert http.post("/api/chat", json=chat(20)).status_code == 200
    done = run_cli(server.environment, "doctor", "--json")
    found = {each["name"]: each for each in json.loads(done.stdout)["findings"]}["model runner"]
    assert found["level"] == "note"
    often = f"{n_before + 1} times" if n_before else "once"
    assert f"ended unasked {often} in the last 7 days, the last time at 20" in found["text"]
    assert "with nano: llama_decode failed with status -2" in found["text"]
    assert "Close programs that hold memory (`nvidia-smi`)" in found["fix"]
