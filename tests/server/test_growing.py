"""A prompt that needs more context than is loaded gets it, unless somebody has said its size."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gptoss_local.server.keys import add_key
from tests.conftest import PATIENCE_S, run_server

PLANNED = 32_768  # tokens of context without a GPU
SMALL = {"options": {"num_ctx": 4096}}
KINDS = {"context_growth", "prompt_progress"}


@pytest.fixture(scope="module")
def growing(nano_home: Path) -> Iterator[httpx.Client]:
    with (
        run_server(nano_home) as server,
        httpx.Client(base_url=server.url, headers=server.owner, timeout=PATIENCE_S) as client,
    ):
        yield client


@pytest.fixture
def http(growing: httpx.Client) -> httpx.Client:
    """A client, once the model is loaded with the planned context."""
    if growing.get("/api/ps").json()["models"] and n_ctx(growing) > PLANNED:
        growing.post("/api/generate", json={"model": "nano", "keep_alive": 0})
    growing.post("/api/generate", json={"model": "nano"})
    assert n_ctx(growing) == PLANNED
    return growing


def n_ctx(http: httpx.Client) -> int:
    (model,) = http.get("/api/ps").json()["models"]
    return int(model["context_length"])


def ask(n_words: int, **fields: Any) -> dict[str, Any]:
    message = {"role": "user", "content": "word " * n_words}
    return {"model": "nano", "messages": [message], "return_progress": True} | fields


def begin(http: httpx.Client, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the first frames of an answer, up to how far the prompt is read; then leave it.

    Frames without a word, which keep clients waiting, are left out.
    """
    frames: list[dict[str, Any]] = []
    with http.stream("POST", "/api/chat", json=body) as response:
        for line in response.iter_lines():
            frame = json.loads(line)
            if frame.get("message") != {"role": "assistant", "content": ""} or frame.keys() & KINDS:
                frames.append(frame)
            if frames and "context_growth" not in frames[-1]:
                break
    return frames


@pytest.mark.parametrize(
    ("n_words", "n_grown"),
    [
        (PLANNED - 1000, 2 * PLANNED),  # it fits, with no room for an answer
        (3 * PLANNED, 131_072),
    ],
)
def test_grows(http: httpx.Client, n_words: int, n_grown: int) -> None:
    (short,) = begin(http, ask(PLANNED - 1000, options={"num_predict": 100}))
    assert "error" not in short  # an answer that is to be short needs little room
    assert n_ctx(http) == PLANNED
    growing, first = begin(http, ask(n_words))
    growth = growing["context_growth"]
    assert (growth["from"], growth["to"]) == (PLANNED, n_grown)
    assert n_words < growth["prompt"] < n_words + 200
    assert growth["prompt"] == first["prompt_progress"]["total"]
    assert n_ctx(http) == n_grown
    assert http.post("/api/chat", json=ask(1, stream=False)).json()["done"]
    assert n_ctx(http) == n_grown


@pytest.mark.parametrize(
    ("n_words", "asked", "message", "hint"),
    [
        (PLANNED + 1000, SMALL, f"tokens > {PLANNED} maximum", "num_ctx limits it"),
        (PLANNED + 1000, {"truncate": False}, f"tokens > {PLANNED} maximum", ""),
        (140_000, {}, "longer than the model can read: ", "one part at a time"),
        (140_000, SMALL, "tokens > 131072 maximum", "one part at a time"),
    ],
)
def test_does_not_grow(
    http: httpx.Client, n_words: int, asked: dict[str, Any], message: str, hint: str
) -> None:
    reply = http.post("/api/chat", json=ask(n_words, stream=False) | asked)
    assert reply.status_code == 400
    said = reply.json()
    assert message in said["error"]
    assert hint in said["hint"]
    assert said["error"].count(str(said["prompt_tokens"])) == 1
    assert (said["context_length"], said["max_context_length"]) == (PLANNED, 131_072)
    assert n_ctx(http) == PLANNED


def test_a_users_key_does_not_have_the_model_loaded_again(nano_home: Path, tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    user = {"x-api-key": add_key(file, "ada")}
    with (
        run_server(nano_home, api_keys_file=str(file)) as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE_S, headers=user) as http,
    ):
        for wanted in (4096, 131_072):
            options = {"num_ctx": wanted, "num_predict": 1}
            assert http.post("/api/chat", json=ask(1, stream=False, options=options)).json()["done"]
            assert n_ctx(http) == PLANNED
        engine = server.engines()
        long = ask(PLANNED + 1000, stream=False)
        raw = {"model": "nano", "prompt": "word " * (PLANNED + 1000), "raw": True, "stream": False}
        for path, body in (("chat", long), ("generate", raw)):
            for options in ({}, {"num_ctx": 131_072}):
                reply = http.post(f"/api/{path}", json=body | {"options": options})
                assert reply.status_code == 400
                assert "only the server's owner" in reply.json()["hint"]
        assert http.post("/v1/chat/completions", json=long).status_code == 400
        assert (n_ctx(http), server.engines()) == (PLANNED, engine)
        http.headers = httpx.Headers(server.owner)
        assert begin(http, ask(1, options={"num_ctx": 2 * PLANNED}))
        assert n_ctx(http) == 2 * PLANNED


def test_a_size_that_the_user_has_set_stays(nano_home: Path) -> None:
    with (
        run_server(nano_home, context_length="4096") as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http,
    ):
        reply = http.post("/api/chat", json=ask(4000, stream=False))
        assert reply.status_code == 200  # with the little room that there is
        reply = http.post("/api/chat", json=ask(4200, stream=False))
        assert reply.status_code == 400
        assert "tokens > 4096 maximum" in reply.json()["error"]
        assert "GPTOSS_CONTEXT_LENGTH limits it" in reply.json()["hint"]
