"""The limits of every dialect: sizes and depths of bodies, paths and verbs."""

import json
import re
from typing import Any

import httpx
import pytest

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
    """Return the text of an error, which must have the shape of the path's dialect."""
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


def running(http: httpx.Client) -> int:
    """Return how many answers nano computes now."""
    name = r'^gptoss_engine_sequences_running{model="nano"} (\d+)\.0$'
    found = re.search(name, http.get("/metrics").text, re.M)
    return int(found[1]) if found else 0


@pytest.mark.parametrize("path", PATHS)
def test_bodies_have_limits(http: httpx.Client, path: str) -> None:
    deep = '{"model": "nano", "metadata": ' + "[" * 200 + "]" * 200 + "}"
    for text, status, words in (
        (" " * (33 << 20), 413, "larger than 32 MiB"),
        (deep, 400, "deeper"),
        ("", 400, "missing request body"),
        ("{", 400, "invalid request"),
        ("[" * 60_000, 400, ""),
        ("[" * 1_000_000, 413, ""),
    ):
        reply = http.post(path, content=text)
        assert reply.status_code == status, text[:50]
        assert words in message_of(reply, path)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
def test_deep_arguments(http: httpx.Client, path: str) -> None:
    """JSON has a limit; JSON inside a text of the history is taken as text beyond it."""
    deep = '{"a":' + "[" * 500 + "]" * 500 + "}"
    call = {"id": "c", "function": {"name": "f", "arguments": deep}}
    use = [{"type": "tool_use", "name": "f", "input": json.loads(deep)}]
    bodies: dict[str, Any] = {
        "/v1/chat/completions": {"messages": [{"role": "assistant", "tool_calls": [call]}]},
        "/v1/responses": {"input": [{"type": "function_call", "name": "f", "arguments": deep}]},
        "/v1/messages": {"messages": [{"role": "assistant", "content": use}]},
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
    missing, wrong = http.get(path), http.get(dialect)
    assert missing.status_code == 404
    assert "404 page not found" in message_of(missing, path)
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert "405 method not allowed" in message_of(wrong, dialect)
    assert http.get("/nope").text == "404 page not found"  # as Ollama says it
    assert http.get("/api/chat").text == "405 method not allowed"
