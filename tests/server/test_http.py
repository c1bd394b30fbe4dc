"""The contract below the SDK: the socket, framing, errors, load and unload."""

import json
import socket
from typing import Any

import httpx
import pytest

from gptoss_local.base.errors import ServerUnavailableError
from gptoss_local.base.settings import Settings
from gptoss_local.server.app import _bind, make_app
from tests.conftest import RunningServer

HI: dict[str, Any] = {"model": "nano", "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.quick
def test_the_socket() -> None:
    """Nagle is off, as asyncio sees to where the protocol is TCP by name: it costs 40 ms."""
    with _bind(Settings(port=0)) as first:
        assert first.proto == socket.IPPROTO_TCP
        first.listen()
        port = first.getsockname()[1]
        with pytest.raises(ServerUnavailableError, match=rf"127\.0\.0\.1:{port}"):
            _bind(Settings(port=port))


@pytest.mark.quick
async def test_an_unexpected_error_has_an_id() -> None:
    """Nothing has been started, so there is no manager of models."""
    app = httpx.ASGITransport(make_app(Settings(), shut_down=lambda: None), False)
    async with httpx.AsyncClient(transport=app, base_url="http://localhost") as client:
        reply = await client.post("/v1/messages", json={})
    assert reply.status_code == 500
    assert reply.headers["request-id"] == reply.headers["x-request-id"]
    assert reply.headers["request-id"] == reply.json()["request_id"]


def test_root_and_version(http: httpx.Client) -> None:
    assert http.get("/").text == "Ollama is running"
    for path in ("/", "/api/version", "/api/tags"):
        assert http.head(path).status_code == 200
    version = http.get("/api/version")
    assert all(part.isdigit() for part in version.json()["version"].split("."))
    assert version.headers["server"].startswith("gptoss/")


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
    form = {"content-type": "application/x-www-form-urlencoded"}  # it is read as JSON
    reply = http.post("/api/chat", content=json.dumps(body), headers=form)
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


GENERATE = {"model": "nano", "prompt": "x"}


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("/api/chat", [1], "invalid request"),
        ("/api/chat", {"model": 5}, "model"),
        ("/api/chat", {"messages": []}, "model is required"),
        ("/api/chat", HI | {"messages": [{"content": "x"}]}, "role"),
        ("/api/chat", HI | {"messages": [{"role": "user", "images": ["aGk="]}]}, "text only"),
        ("/api/chat", HI | {"think": "ultra"}, 'invalid think value: "ultra"'),
        ("/api/chat", HI | {"think": 3}, "think must be a boolean or string"),
        ("/api/chat", HI | {"keep_alive": "5 parsecs"}, "invalid duration"),
        ("/api/chat", HI | {"format": "yaml"}, 'invalid format: "yaml"; expected "json" or a'),
        ("/api/chat", HI | {"format": {"not": {"type": "null"}}}, "'not' is not supported"),
        ("/api/chat", HI | {"format": {"type": "strin"}}, "strin"),
        ("/api/chat", HI | {"format": ["json"]}, "format"),
        ("/api/chat", HI | {"top_logprobs": 2}, "top_logprobs requires logprobs"),
        ("/api/chat", HI | {"logprobs": True, "top_logprobs": 21}, "must be between 0 and 20"),
        ("/api/chat", HI | {"options": {"num_ctx": "many"}}, "num_ctx"),
        ("/api/chat", HI | {"options": {"repeat_penalty": 0}}, "repeat_penalty"),
        ("/api/chat", HI | {"options": {"repeat_last_n": -2}}, "repeat_last_n"),
        ("/api/chat", HI | {"options": {"presence_penalty": "nan"}}, "presence_penalty"),
        ("/api/chat", HI | {"options": {"frequency_penalty": 2.1}}, "frequency_penalty"),
        ("/api/generate", GENERATE | {"suffix": "y"}, "insert"),
        ("/api/generate", GENERATE | {"raw": True, "system": "y"}, "raw"),
        ("/api/generate", GENERATE | {"template": "y"}, "template"),
        ("/api/generate", GENERATE | {"context": [201_088]}, "context"),
        ("/api/generate", {"model": "", "prompt": "x"}, "model '' not found"),
        ("/api/generate", {"model": "nope", "keep_alive": 0}, "model 'nope' not found"),
        ("/api/show", {}, "model is required"),
    ],
)
def test_bad_requests(http: httpx.Client, path: str, body: object, text: str) -> None:
    reply = http.post(path, json=body)
    assert reply.status_code == (404 if "not found" in text else 400)
    assert reply.headers["content-type"] == "application/json; charset=utf-8"
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
    assert http.post("/api/show", json={"name": "gpt-oss-nano"}).json()["model_info"]
