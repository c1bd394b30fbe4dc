"""What holds for every dialect: sizes, depths, unknown paths, faults amid a stream, metrics."""

import json
import re
import signal
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.conftest import RunningServer, wait_until
from tests.server import sse

COUNT: dict[str, Any] = {
    "model": "nano",
    "messages": [{"role": "user", "content": "Count from 1 to 900."}],
    "stream": True,
    "temperature": 0,
}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": COUNT | {"reasoning_effort": "none"},
    "/v1/completions": {**COUNT, "prompt": "Count from 1 to 900."},
    "/v1/responses": {**COUNT, "input": COUNT["messages"], "reasoning": {"effort": "none"}},
    "/v1/messages": COUNT | {"max_tokens": 3000, "thinking": {"type": "disabled"}},
}
PATHS = [*BODIES, "/api/chat"]


def message_of(reply: httpx.Response, path: str) -> str:
    """The text of an error, which must have the shape of the path's dialect."""
    body = reply.json()
    if path == "/api/chat":
        assert body.keys() <= {"error", "hint", "code"}
        return str(body["error"])
    if path.startswith("/v1/messages"):
        assert body["type"] == "error"
        assert body["error"].keys() == {"type", "message"}
    else:
        assert body["error"].keys() == {"message", "type", "param", "code"}
    return str(body["error"]["message"])


@pytest.mark.parametrize("path", PATHS)
def test_bodies_have_limits(http: httpx.Client, path: str) -> None:
    huge = http.post(path, content=b" " * (33 << 20))
    assert huge.status_code == 413
    assert "larger than 32 MiB" in message_of(huge, path)
    deep = '{"model": "nano", "metadata": ' + "[" * 200 + "]" * 200 + "}"
    for text, words in ((deep, "deeper"), ("", "missing request body"), ("{", "invalid request")):
        reply = http.post(path, content=text)
        assert reply.status_code == 400, text[:50]
        assert words in message_of(reply, path)
    for n_levels, status in ((60_000, 400), (1_000_000, 413)):
        assert http.post(path, content="[" * n_levels).status_code == status


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
def test_deep_arguments(http: httpx.Client, path: str) -> None:
    """JSON has a limit; JSON inside a text of the history is taken as text beyond it."""
    deep = '{"a":' + "[" * 500 + "]" * 500 + "}"
    call = {"id": "c", "function": {"name": "f", "arguments": deep}}
    bodies: dict[str, Any] = {
        "/v1/chat/completions": {"messages": [{"role": "assistant", "tool_calls": [call]}]},
        "/v1/responses": {"input": [{"type": "function_call", "name": "f", "arguments": deep}]},
        "/v1/messages": {
            "messages": [
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "name": "f", "input": json.loads(deep)}],
                }
            ]
        },
    }
    one_token = {"stream": False, "max_tokens": 1, "max_output_tokens": 1}
    reply = http.post(path, json=BODIES[path] | one_token | bodies[path])
    is_text = path != "/v1/messages"
    assert reply.status_code == (200 if is_text else 400)
    assert is_text or "deeper" in message_of(reply, path)


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v1/nope", "/v1/chat/completions"),
        ("/v1/responses/resp_1/output_items", "/v1/responses"),
        ("/v1/messages/batches", "/v1/messages"),
    ],
)
def test_unknown_paths_and_verbs(http: httpx.Client, path: str, dialect: str) -> None:
    missing = http.get(path)
    assert missing.status_code == 404
    assert "404 page not found" in message_of(missing, path)
    wrong = http.get(dialect)
    assert wrong.status_code == 405
    assert wrong.headers["allow"] == "POST"
    assert "405 method not allowed" in message_of(wrong, dialect)


@pytest.fixture
def own_http(own_server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=own_server.url, timeout=60, trust_env=False) as client:
        client.post("/api/generate", json={"model": "nano"})
        yield client


def running(http: httpx.Client) -> int:
    found = re.search(
        r"^gptoss_engine_sequences_running{.*} (\d+)\.0$", http.get("/metrics").text, re.M
    )
    assert found
    return int(found[1])


def test_leaving_frees_the_engine(own_http: httpx.Client) -> None:
    for path, body in BODIES.items():
        with own_http.stream("POST", path, json=body) as response:
            lines = response.iter_lines()
            assert next(lines)
            assert running(own_http) == 1, path
        wait_until(lambda: running(own_http) == 0, timeout_s=30)
    metrics = own_http.get("/metrics").text
    assert f'gptoss_answers_total{{end="left"}} {len(BODIES)}' in metrics
    assert "gptoss_answers_active 0" in metrics


ENDS = {
    "/v1/chat/completions": ("", lambda data: data == "[DONE]"),
    "/v1/completions": ("", lambda data: data == "[DONE]"),
    "/v1/responses": ("response.failed", lambda data: data["response"]["status"] == "failed"),
    "/v1/messages": ("error", lambda data: data["error"]["type"] == "api_error"),
}


def test_killed_engine_ends_every_stream_with_an_error(
    own_http: httpx.Client, own_server: RunningServer
) -> None:
    for path, body in BODIES.items():
        own_http.post("/api/generate", json={"model": "nano"})
        engine = own_server.engine()
        assert engine is not None
        with own_http.stream("POST", path, json=body) as response:
            pieces = response.iter_text()
            text = next(pieces)
            engine.send_signal(signal.SIGKILL)
            text += "".join(pieces)
        assert "stopped unexpectedly (signal 9)" in text, path
        name, data = sse.events(text)[-1]
        wanted_name, is_end = ENDS[path]
        assert name == wanted_name
        assert is_end(data)


def test_health_and_metrics(own_http: httpx.Client) -> None:
    assert own_http.get("/health").json() == {"status": "ok"}
    body = BODIES["/v1/chat/completions"] | {"stream": False, "max_tokens": 5}
    usage = own_http.post("/v1/chat/completions", json=body).json()["usage"]
    reply = own_http.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    for line in (
        'gptoss_answers_total{end="length"} 1',
        'gptoss_tokens_total{kind="generated"} 5',
        f'gptoss_tokens_total{{kind="prompt"}} {usage["prompt_tokens"]}',
        'gptoss_model_loaded{model="nano"} 1',
        'gptoss_engine_sequences_running{model="nano"} 0',
    ):
        assert f"\n{line}.0\n" in f"\n{reply.text}", line
    names = set(re.findall(r"^([a-z_]+)[ {]", reply.text, re.M))
    described = set(re.findall(r"^# TYPE (\w+) (?:gauge|counter)$", reply.text, re.M))
    for name in re.findall(r"^# TYPE (\w+) histogram$", reply.text, re.M):
        described |= {f"{name}_{part}" for part in ("bucket", "count", "sum")}
    assert names == described
