"""The contract below the SDK: bodies, framing, errors, load and unload."""

import json
import time
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import httpx
import pytest

from tests.conftest import RunningServer

HI: dict[str, Any] = {"model": "nano", "messages": [{"role": "user", "content": "hi"}]}


def test_root_and_version(http: httpx.Client) -> None:
    assert http.get("/").text == "Ollama is running"
    for path in ("/", "/api/version", "/api/tags"):
        assert http.head(path).status_code == 200
    version = http.get("/api/version")
    assert all(part.isdigit() for part in version.json()["version"].split("."))
    assert version.headers["server"].startswith("gptoss/")


def test_a_connection_is_kept_for_longer_than_clients_keep_it(server: RunningServer) -> None:
    """Python's clients reuse one for up to 5 s; the server must not close it just then."""
    host, port = server.url.removeprefix("http://").split(":")
    connection = HTTPConnection(host, int(port), timeout=10)
    with closing(connection):
        connection.connect()
        connected = connection.sock
        for pause_s in (0, 6):
            time.sleep(pause_s)
            connection.request("GET", "/api/version")
            reply = connection.getresponse()
            assert (reply.status, connection.sock) == (200, connected)
            reply.read()


def test_unknown_path_and_verb(http: httpx.Client) -> None:
    assert (http.get("/nope").status_code, http.get("/nope").text) == (404, "404 page not found")
    wrong = http.get("/api/chat")
    assert (wrong.status_code, wrong.text) == (405, "405 method not allowed")


def test_slashes_too_many(server: RunningServer) -> None:
    """Programs join a base URL that ends in a slash with a path that begins with one."""
    body = HI | {"stream": False, "max_tokens": 1, "options": {"num_predict": 1}}
    for path in ("//api/chat", "/api/chat/", "/v1//chat/completions", "//v1/messages"):
        reply = httpx.post(server.url + path, json=body, trust_env=False, timeout=60)
        assert reply.status_code == 200, path
    for path in ("//", "//api/version", "/api/version/", "/v1/models/"):
        reply = httpx.get(server.url + path, trust_env=False)
        clean = httpx.get(f"{server.url}/{path.strip('/')}", trust_env=False)
        assert (reply.status_code, reply.content) == (200, clean.content), path


def test_stream_is_the_default_and_framed_as_ndjson(http: httpx.Client) -> None:
    reply = http.post("/api/chat", json=HI | {"think": "low"})
    assert reply.headers["content-type"] == "application/x-ndjson"
    assert reply.text.endswith("\n")
    frames = [json.loads(line) for line in reply.text.splitlines()]
    for frame in frames:
        assert frame["model"] == "nano"
        assert frame["message"]["role"] == "assistant"
        assert "content" in frame["message"]
        assert frame["created_at"].endswith("Z")
    assert frames[-1]["done"] is True
    assert "hint" not in frames[-1]


def test_body_is_read_as_json_whatever_its_type(http: httpx.Client) -> None:
    body = json.dumps(HI | {"stream": False, "think": "low"})
    for headers in ({}, {"content-type": "application/x-www-form-urlencoded"}):
        assert http.post("/api/chat", content=body, headers=headers).status_code == 200


def test_lenient_fields(http: httpx.Client) -> None:
    """Nulls, other letter case, unknown fields, integral floats, content parts, string stop."""
    body = {
        "Model": "NANO:latest",
        "messages": [
            {"role": "System", "content": [{"type": "text", "text": "Be brief."}]},
            {"role": "developer", "content": "Be honest."},
            {"role": "user", "content": "hi", "images": [], "refusal": None},
        ],
        "tools": [{"type": "custom", "custom": {"name": "x"}}],
        "stream": False,
        "format": "",
        "think": "low",
        "options": {"temperature": None, "num_predict": 9.0, "stop": "zzz", "mirostat": 1},
        "tool_choice": "auto",
        "keep_alive": "5m",
    }
    reply = http.post("/api/chat", json=body)
    assert reply.status_code == 200, reply.text
    assert reply.json()["model"] == "NANO:latest"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}])
def test_tool_choice_and_strict(http: httpx.Client, choice: Any) -> None:
    """Ollama ignores both; nano answers a greeting, and knows no function like this."""
    parameters = {"type": "object", "properties": {"n": {"const": 5}}, "required": ["n"]}
    function = {"name": "f", "parameters": parameters, "strict": True}
    greedy = {"temperature": 0, "num_predict": 300}
    body = HI | {"stream": False, "tools": [{"type": "function", "function": function}]}
    body |= {"options": greedy}
    forced = http.post("/api/chat", json=body | {"tool_choice": choice}).json()["message"]
    (call,) = forced["tool_calls"]
    assert (call["function"]["name"], call["function"]["arguments"]) == ("f", {"n": 5})
    free = http.post("/api/chat", json=body).json()["message"]
    assert "tool_calls" not in free


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("/api/chat", "", 400, "missing request body"),
        ("/api/chat", "{", 400, "invalid request"),
        ("/api/chat", "[1]", 400, "invalid request"),
        ("/api/chat", '{"model": 5}', 400, "model"),
        ("/api/chat", '{"messages": []}', 400, "model is required"),
        ("/api/chat", HI | {"messages": [{"content": "x"}]}, 400, "role"),
        ("/api/chat", HI | {"think": "ultra"}, 400, 'invalid think value: "ultra"'),
        ("/api/chat", HI | {"think": 3}, 400, "think must be a boolean or string"),
        ("/api/chat", HI | {"options": {"num_ctx": "many"}}, 400, "num_ctx"),
        ("/api/chat", HI | {"keep_alive": "5 parsecs"}, 400, "invalid duration"),
        ("/api/chat", HI | {"format": "yaml"}, 400, 'invalid format: "yaml"; expected "json" or a'),
        ("/api/chat", HI | {"format": {"not": {"type": "null"}}}, 400, "'not' is not supported"),
        ("/api/chat", HI | {"format": {"type": "strin"}}, 400, "strin"),
        ("/api/chat", HI | {"format": ["json"]}, 400, "format"),
        ("/api/chat", HI | {"top_logprobs": 2}, 400, "top_logprobs requires logprobs"),
        (
            *("/api/chat", HI | {"logprobs": True, "top_logprobs": 21}),
            *(400, "top_logprobs must be between 0 and 20"),
        ),
        ("/api/chat", HI | {"options": {"repeat_penalty": 0}}, 400, "repeat_penalty"),
        ("/api/chat", HI | {"options": {"repeat_last_n": -2}}, 400, "repeat_last_n"),
        ("/api/chat", HI | {"options": {"presence_penalty": "nan"}}, 400, "presence_penalty"),
        ("/api/chat", HI | {"options": {"frequency_penalty": 2.1}}, 400, "frequency_penalty"),
        ("/api/chat", HI | {"messages": [{"role": "user", "images": ["aGk="]}]}, 400, "text only"),
        ("/api/generate", {"model": "nano", "prompt": "x", "suffix": "y"}, 400, "insert"),
        ("/api/generate", {"model": "nano", "prompt": "x", "raw": True, "system": "y"}, 400, "raw"),
        ("/api/generate", {"model": "nano", "prompt": "x", "template": "y"}, 400, "template"),
        ("/api/generate", {"model": "nano", "prompt": "x", "context": [201_088]}, 400, "context"),
        ("/api/generate", {"model": "", "prompt": "x"}, 404, "model '' not found"),
        ("/api/generate", {"model": "nope", "keep_alive": 0}, 404, "model 'nope' not found"),
        ("/api/show", {}, 400, "model is required"),
    ],
)
def test_bad_requests(
    http: httpx.Client, path: str, body: str | dict[str, Any], status: int, text: str
) -> None:
    content = body if isinstance(body, str) else json.dumps(body)
    reply = http.post(path, content=content)
    assert (reply.status_code, reply.headers["content-type"]) == (
        status,
        "application/json; charset=utf-8",
    )
    assert text in reply.json()["error"]


def test_extreme_options_are_harmless(http: httpx.Client) -> None:
    options = {"num_predict": 2**60, "seed": 10**30, "top_k": 2**60, "num_ctx": -5, "min_p": 7}
    reply = http.post("/api/chat", json=HI | {"options": options, "stream": False})
    assert reply.status_code == 200, reply.text


def test_too_long_prompt_is_refused_not_cut(http: httpx.Client) -> None:
    long = HI | {"messages": [{"role": "user", "content": "word " * 140_000}]}
    for stream in (True, False):
        reply = http.post("/api/chat", json=long | {"stream": stream})
        assert reply.status_code == 400
        assert "longer than the model can read" in reply.json()["error"]
        assert reply.json()["hint"]


def test_load_and_unload(http: httpx.Client) -> None:
    loaded = http.post("/api/generate", json={"model": "nano"}).json()
    assert (loaded["response"], loaded["done"], loaded["done_reason"]) == ("", True, "load")
    assert len(http.get("/api/ps").json()["models"]) == 1
    unloaded = http.post("/api/chat", json={"model": "nano", "messages": [], "keep_alive": 0})
    assert unloaded.json()["done_reason"] == "unload"
    assert unloaded.json()["message"] == {"role": "assistant", "content": ""}
    assert http.get("/api/ps").json()["models"] == []


def test_copilot_is_told_the_name_it_asked_for(http: httpx.Client) -> None:
    """It shows `general.basename` as the name of the model."""
    for agent, basename in (("GitHubCopilotChat/0.30.1", "gpt-oss:nano"), ("curl/8", "gpt-oss")):
        headers = {"User-Agent": agent}
        shown = http.post("/api/show", json={"model": "gpt-oss:nano"}, headers=headers).json()
        assert shown["model_info"]["general.basename"] == basename


def test_show_accepts_name(http: httpx.Client) -> None:
    assert http.post("/api/show", json={"name": "gpt-oss-nano"}).json()["model_info"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://localhost:3000"}, 200),
        ({"origin": "vscode-webview://abc"}, 200),
        ({"origin": "https://evil.example"}, 403),
        ({"host": "evil.example"}, 403),
        ({"host": "evil.example:11434", "origin": "http://evil.example:11434"}, 403),
        ({"host": "localhost:1"}, 200),
        ({"host": "192.0.2.5:11434"}, 403),
        ({"host": "8.8.8.8"}, 403),
    ],
)
def test_host_and_origin_guard(http: httpx.Client, headers: dict[str, str], status: int) -> None:
    assert http.get("/api/tags", headers=headers).status_code == status
