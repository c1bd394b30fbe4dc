"""Bodies that hold more than they look like: refused, and no other client waits for it."""

import gzip
import itertools
import json
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptoss_local.errors import RequestTooLargeError
from gptoss_local.server import body_limits
from tests.conftest import RunningServer
from tests.server.second_client import assert_undisturbed
from tests.server.test_limits import BODIES, PATHS, message_of

TEN_MILLION = b'{"model":"nano","x":[' + b"{}," * 10_500_000 + b"{}]}"
KEYS = b'{"model":"nano","x":{' + b",".join(b'"k%d":1' % i for i in range(1_000_000)) + b"}}"
INNER = json.dumps("[" + "{}," * 1_000_000 + "{}]")


def as_arguments(text: str) -> bytes:
    """Values inside a text, where a call's arguments have them."""
    call = f'{{"function":{{"name":"f","arguments":{text}}}}}'
    messages = f'[{{"role":"user"}},{{"role":"assistant","tool_calls":[{call}]}}]'
    return f'{{"model":"nano","messages":{messages}}}'.encode()


@pytest.mark.timing
@pytest.mark.parametrize("path", [*PATHS, "/api/push", "/api/gptoss/inspect"])
def test_a_small_gzip_of_ten_million_values(
    server: RunningServer, http: httpx.Client, path: str
) -> None:
    packed = gzip.compress(TEN_MILLION, 9)
    assert len(packed) < 32_000

    def attack() -> None:
        reply = http.post(path, content=packed, headers={"content-encoding": "gzip"})
        assert reply.status_code == 413
        assert "more than 262,144 values" in reply.text or "65,536 names" in reply.text

    assert_undisturbed(server.url, attack)


@pytest.mark.timing
@pytest.mark.parametrize(
    "content",
    [TEN_MILLION, KEYS, as_arguments(INNER)],
    ids=["values", "keys", "values inside a text"],
)
def test_plain_bodies_of_many_values(
    server: RunningServer, http: httpx.Client, content: bytes
) -> None:
    def attack() -> None:
        reply = http.post("/api/chat", content=content)
        assert reply.status_code == 413
        assert "names, objects and arrays" in message_of(reply, "/api/chat")

    assert_undisturbed(server.url, attack)


@pytest.mark.timing
@pytest.mark.parametrize(
    "x", ["[" + "{}," * 65_000 + "{}]", json.dumps(dict.fromkeys(map(str, range(32_000))))]
)
def test_as_many_values_as_are_allowed(server: RunningServer, http: httpx.Client, x: str) -> None:
    def attack() -> None:
        for _ in range(3):
            reply = http.post("/api/show", content=f'{{"model":"nano","x":{x}}}'.encode())
            assert reply.status_code == 200

    assert_undisturbed(server.url, attack)


def test_arguments_of_one_request_count_together(http: httpx.Client) -> None:
    some = json.dumps('{"a": [' + "1," * 100_000 + "1]}")
    reply = http.post("/api/chat", content=as_arguments(some))
    assert reply.status_code != 413
    call = f'{{"function":{{"name":"f","arguments":{some}}}}}'
    messages = f'[{{"role":"assistant","tool_calls":[{",".join([call] * 3)}]}}]'
    reply = http.post("/api/chat", content=f'{{"model":"nano","messages":{messages}}}'.encode())
    assert reply.status_code == 413


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(['{"a": [' + "1," * 200_000 + "1]}"] * 2, 413), (['{"a": "' + "{" * 70_000 + '"}'], 404)],
    ids=["values", "a text"],
)
def test_cut_arguments_change_nothing_about_the_next_ones(
    http: httpx.Client, arguments: list[str], status: int
) -> None:
    """There is no such model, so that the model does not read what is not too large."""
    given = ['{"a": "cut', *arguments]
    calls = [{"function": {"name": "f", "arguments": text}} for text in given]
    messages = [{"role": "user"}, {"role": "assistant", "tool_calls": calls}]
    reply = http.post("/api/chat", json={"model": "absent", "messages": messages})
    assert reply.status_code == status


@pytest.mark.timing
def test_a_path_of_many_parts_is_no_attack(server: RunningServer, http: httpx.Client) -> None:
    def attack() -> None:
        assert http.get("/a" * 25_000).status_code == 404

    assert_undisturbed(server.url, attack)


def test_a_long_context_is_no_attack(http: httpx.Client) -> None:
    """Ollama's `context` has an id for every token; so many are read, and then do not fit."""
    body = {"model": "nano", "prompt": "Hi", "context": [1] * 140_000, "stream": False}
    reply = http.post("/api/generate", json=body)
    assert reply.status_code == 400
    assert "tokens > " in reply.text


@pytest.mark.parametrize("path", BODIES)
def test_a_length_that_is_too_large_is_refused_before_the_body(
    server: RunningServer, path: str
) -> None:
    address = server.url.removeprefix("http://")
    with closing(HTTPConnection(address, timeout=10)) as connection:
        connection.putrequest("POST", path)
        connection.putheader("Content-Length", "99999999")
        connection.endheaders()
        with connection.getresponse() as reply:
            assert reply.status == 413


VALUES = st.recursive(
    st.none() | st.integers() | st.text(alphabet='ab,:[{\\\\"\\né'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='a,:"\\\\'), inner),
)


def n_signs(value: Any) -> tuple[int, int]:
    """Count the commas of a value as JSON, and its colons and opening brackets."""
    if not isinstance(value, dict | list):
        return 0, 0
    counts = map(n_signs, value.values() if isinstance(value, dict) else value)
    n_names = 1 + (len(value) if isinstance(value, dict) else 0)
    return tuple(map(sum, zip((max(0, len(value) - 1), n_names), *counts, strict=True)))


@settings(deadline=None)
@given(VALUES, st.lists(st.integers(1, 40), min_size=1))
def test_values_are_counted_outside_of_texts(value: Any, sizes: list[int]) -> None:
    data, (n_values, n_names) = json.dumps(value).encode(), n_signs(value)

    def feed() -> None:
        tally, begin = body_limits.ValueCount(), 0
        for size in itertools.cycle(sizes):
            tally.feed(data[begin : begin + size])
            begin += size
            if begin >= len(data):
                break

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(body_limits, "MAX_VALUES", n_values)
        patch.setattr(body_limits, "MAX_NAMES", n_names)
        feed()
        for name, n in (("MAX_VALUES", n_values), ("MAX_NAMES", n_names)):
            patch.setattr(body_limits, name, n - 1)
            with pytest.raises(RequestTooLargeError):
                feed()
            patch.setattr(body_limits, name, n)
