"""The contract below the SDK: the socket, framing, leniency, load and unload."""

import json
import socket
from typing import Any

import httpx
import pytest

from gptoss_local.base.errors import ServerUnavailableError, UsageError
from gptoss_local.base.quantities import parse_keep_alive
from gptoss_local.base.settings import Settings
from gptoss_local.server.app import _listen, make_app
from gptoss_local.server.dialects.ollama.request import parse_think
from tests.conftest import RunningServer

HI: dict[str, Any] = {"model": "nano", "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.quick
def test_the_socket() -> None:
    """Nagle is off, as asyncio sees to where the protocol is TCP by name: it costs 40 ms.

    Of two servers that start at once one has the port, before any secret is written.
    """
    with _listen(Settings(port=0)) as first:
        assert first.proto == socket.IPPROTO_TCP
        port = first.getsockname()[1]
        with pytest.raises(ServerUnavailableError, match=rf"127\.0\.0\.1:{port}"):
            _listen(Settings(port=port))


@pytest.mark.quick
async def test_an_unexpected_error_has_an_id() -> None:
    """Nothing has been started, so there is no manager of models."""
    app = httpx.ASGITransport(make_app(Settings(), shut_down=lambda: None), False)
    async with httpx.AsyncClient(transport=app, base_url="http://localhost") as client:
        reply = await client.post("/v1/messages", json={})
    assert reply.status_code == 500
    assert reply.headers["request-id"] == reply.headers["x-request-id"]
    assert reply.headers["request-id"] == reply.json()["request_id"]


@pytest.mark.quick
def test_spellings_of_keep_alive_and_think() -> None:
    seconds: list[tuple[Any, float]] = [
        *((0, 0), (300, 300), (-1, -1), ("300", 300), ("-1", -1), ("0s", 0), ("250ms", 0.25)),
        *(("5m", 300), ("1h30m", 5400), ("1.5s", 1.5), ("-5m", -300), ("1000000h", -1)),
    ]
    for value, expected in seconds:
        assert parse_keep_alive(value) == pytest.approx(expected), value
    for bad in (True, "", "m", "5 m", "5x", "five minutes", "--1s", "nan", "inf"):
        with pytest.raises(UsageError, match=r"keep_alive|duration"):
            parse_keep_alive(bad)
    efforts = {None: "medium", True: "medium", False: "low", "low": "low", "max": "high"}
    for think, effort in efforts.items():
        assert parse_think(think) == (effort, think is not False)
    for unknown in ("ultra", "", 1.5, 3, [], {}):
        with pytest.raises(UsageError, match="think"):
            parse_think(unknown)


def test_slashes_too_many(server: RunningServer) -> None:
    """Programs join a base URL that ends in a slash with a path that begins with one."""
    for path in ("//api/chat", "/api/chat/", "/v1//chat/completions", "//v1/messages"):
        limit = {"options": {"num_predict": 1}} if "api" in path else {"max_tokens": 1}
        body = HI | {"stream": False} | limit
        reply = httpx.post(server.url + path, json=body, trust_env=False, timeout=60)
        assert reply.status_code == 200, path
    for path in ("//", "//api/version", "/api/version/", "/v1/models/"):
        reply = httpx.get(server.url + path, trust_env=False)
        clean = httpx.get(f"{server.url}/{path.strip('/')}", trust_env=False)
        assert (reply.status_code, reply.content) == (200, clean.content), path
        assert reply.headers["server"].startswith("gptoss/")
        if path != "/v1/models/":
            assert httpx.head(server.url + path, trust_env=False).status_code == 200


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("stream", [False, True])
def test_http_1_0_gets_no_chunks(server: RunningServer, version: str, stream: bool) -> None:
    """RFC 9112, section 6.1. Proxies may not hold frames back."""
    body = json.dumps(HI | {"stream": stream, "options": {"num_predict": 3}}).encode()
    head = f"POST /api/chat HTTP/{version}\r\nHost: localhost\r\nConnection: close\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(head.encode() + body)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    headers, _, content = answer.partition(b"\r\n\r\n")
    assert (b"x-accel-buffering: no" in headers) == stream
    is_chunked = stream and version == "1.1"
    assert (b"transfer-encoding: chunked" in headers) == is_chunked
    if not is_chunked:
        assert json.loads(content.splitlines()[-1])["done"]


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
        "options": {"temperature": None, "num_predict": 9.0, "stop": "zzz", "mirostat_eta": 1},
        "tool_choice": "auto",
        "keep_alive": "5m",
    }
    form = {"content-type": "application/x-www-form-urlencoded"}  # it is read as JSON
    reply = http.post("/api/chat", content=json.dumps(body), headers=form)
    assert reply.status_code == 200, reply.text
    assert reply.json()["model"] == "NANO:latest"
    for name in ("num_predict", "max_tokens"):  # beside the options
        assert (
            http.post("/api/chat", json=HI | {name: 3, "stream": False}).json()["eval_count"] == 3
        )
    options = {"num_predict": 2**60, "seed": 10**30, "top_k": 2**60, "num_ctx": -5, "min_p": 7}
    extreme = http.post("/api/chat", json=HI | {"options": options, "stream": False})
    assert extreme.status_code == 200, extreme.text
    assert http.post("/api/chat", json=[1]).status_code == 400


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}])
def test_tool_choice_and_strict(http: httpx.Client, choice: Any) -> None:
    """Ollama ignores both; nano answers a greeting, and knows no function like this."""
    parameters = {"type": "object", "properties": {"n": {"const": 5}}, "required": ["n"]}
    function = {"name": "f", "parameters": parameters, "strict": True}
    body = HI | {"stream": False, "tools": [{"type": "function", "function": function}]}
    body |= {"options": {"temperature": 0, "num_predict": 300}}
    forced = http.post("/api/chat", json=body | {"tool_choice": choice}).json()["message"]
    (call,) = forced["tool_calls"]
    assert (call["function"]["name"], call["function"]["arguments"]) == ("f", {"n": 5})
    assert "tool_calls" not in http.post("/api/chat", json=body).json()["message"]


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
