"""A prompt that needs more context than is loaded gets it, unless somebody has said its size."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import run_server

PLANNED = 32_768  # tokens of context without a GPU


@pytest.fixture
def http(nano_home: Path) -> Iterator[httpx.Client]:
    with fresh_server(nano_home) as client:
        yield client


@pytest.fixture(scope="module")
def kept(nano_home: Path) -> Iterator[httpx.Client]:
    """For tests that leave its context as it is."""
    with fresh_server(nano_home) as client:
        yield client


@contextmanager
def fresh_server(home: Path) -> Iterator[httpx.Client]:
    with run_server(home) as server, httpx.Client(base_url=server.url, timeout=120) as client:
        client.post("/api/generate", json={"model": "nano"})
        assert n_ctx(client) == PLANNED
        yield client


def n_ctx(http: httpx.Client) -> int:
    (model,) = http.get("/api/ps").json()["models"]
    return int(model["context_length"])


def ask(n_words: int, **fields: Any) -> dict[str, Any]:
    message = {"role": "user", "content": "word " * n_words}
    return {"model": "nano", "messages": [message], "return_progress": True} | fields


def begin(http: httpx.Client, body: dict[str, Any]) -> dict[str, Any]:
    """The first frame of an answer, which nobody waits for."""
    with http.stream("POST", "/api/chat", json=body) as response:
        frame: dict[str, Any] = json.loads(next(response.iter_lines()))
        return frame


@pytest.mark.parametrize(
    ("n_words", "n_grown"),
    [
        (PLANNED + 1000, 2 * PLANNED),
        (PLANNED - 1000, 2 * PLANNED),  # it fits, with no room for an answer
        (3 * PLANNED, 131_072),
    ],
)
def test_grows(http: httpx.Client, n_words: int, n_grown: int) -> None:
    assert "error" not in begin(http, ask(n_words))
    assert n_ctx(http) == n_grown
    assert http.post("/api/chat", json=ask(1, stream=False)).json()["done"]
    assert n_ctx(http) == n_grown


@pytest.mark.parametrize(
    ("n_words", "options"),
    [
        (PLANNED + 1000, {"num_ctx": 4096}),  # as the client wants it
        (140_000, {}),  # more than the model can read
    ],
)
def test_does_not_grow(kept: httpx.Client, n_words: int, options: dict[str, int]) -> None:
    reply = kept.post("/api/chat", json=ask(n_words, options=options, stream=False))
    assert reply.status_code == 400
    assert n_ctx(kept) == PLANNED


def test_does_not_grow_where_the_client_wants_an_error(kept: httpx.Client) -> None:
    """As the chat in the terminal does, which asks what to do."""
    reply = kept.post("/api/chat", json=ask(PLANNED + 1000, truncate=False))
    assert reply.status_code == 400
    assert n_ctx(kept) == PLANNED


def test_an_answer_that_is_to_be_short_needs_little_room(kept: httpx.Client) -> None:
    assert "error" not in begin(kept, ask(PLANNED - 1000, options={"num_predict": 100}))
    assert n_ctx(kept) == PLANNED


def test_a_size_that_the_user_has_set_stays(nano_home: Path) -> None:
    with run_server(nano_home, context_length="4096") as server:
        reply = httpx.post(f"{server.url}/api/chat", json=ask(4000, stream=False), timeout=60)
        assert reply.status_code == 200  # with the little room that there is
        reply = httpx.post(f"{server.url}/api/chat", json=ask(4200, stream=False), timeout=60)
        assert reply.status_code == 400
        assert "tokens > 4096 maximum" in reply.json()["error"]
