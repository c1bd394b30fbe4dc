"""The limits of every dialect: sizes, depths and encodings of bodies, paths and verbs."""

import gzip
import json
import sys
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.server.conftest import metric

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SHARED: dict[str, Any] = {"model": "nano", "stream": True, "temperature": 0}
COUNT = SHARED | {"messages": [{"role": "user", "content": "Count from 1 to 900."}]}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": COUNT | {"reasoning_effort": "none"},
    "/v1/completions": SHARED | {"prompt": "Count from 1 to 900."},
    "/v1/responses": SHARED | {"input": COUNT["messages"], "reasoning": {"effort": "none"}},
    "/v1/messages": COUNT | {"max_tokens": 3000, "thinking": {"type": "disabled"}},
}
PATHS = [*BODIES, "/api/chat"]
PACK: dict[str, Callable[[bytes], bytes]] = {"zstd": zstd.compress, "gzip": gzip.compress}
MIB = 1 << 20
NANO = json.dumps({"model": "nano"}).encode()
TEN_MILLION = b'{"model":"nano","x":[' + b"{}," * 10_500_000 + b"{}]}"


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
    return int(metric(http, 'gptoss_engine_sequences_running{model="nano"}'))


# An encoding, the content, and the status and words of the refusal.
Refused = tuple[str, bytes, int, str]
DEEP = b'{"model": "nano", "metadata": ' + b"[" * 200 + b"]" * 200 + b"}"
PLAIN: list[Refused] = [
    ("", b" " * (33 * MIB), 413, "larger than 32 MiB"),
    ("", DEEP, 400, "deeper"),
    ("", b"", 400, "missing request body"),
    ("", b"{", 400, "invalid request"),
    ("", b"[" * 60_000, 400, ""),
    ("", b"[" * 1_000_000, 413, ""),
    ("br", NANO, 415, "'br' are not supported"),
    ("gzip, zstd", NANO, 415, "'gzip, zstd' are not supported"),
]


def compressed(encoding: str) -> list[Refused]:
    pack, broken = PACK[encoding], f"failed to decompress {encoding} body"
    packed = pack(NANO * 100)
    bomb = pack(b" " * (40 * MIB))
    damaged = [packed[:-1], NANO, packed + b"x", packed[1:], packed * 2]
    if encoding == "gzip":
        damaged.append(packed[:-3] + bytes([packed[-3] ^ 1]) + packed[-2:])
    assert len(bomb) < MIB
    return [
        (encoding, bomb, 413, "larger than 32 MiB"),
        (encoding, pack(TEN_MILLION), 413, "names, objects and arrays"),
        *((encoding, data, 400, broken) for data in damaged),
        (encoding, pack(b"") * 100_000, 400, broken),
        (encoding, pack(b""), 400, "missing request body"),
    ]


@pytest.fixture(scope="module")
def refused() -> list[Refused]:
    return [*PLAIN, *compressed("zstd"), *compressed("gzip")]


@pytest.mark.parametrize("path", [*PATHS, "/api/push", "/api/gptoss/inspect"])
def test_bodies_have_limits(http: httpx.Client, refused: list[Refused], path: str) -> None:
    for encoding, content, status, words in refused:
        reply = http.post(path, content=content, headers={"content-encoding": encoding})
        assert reply.status_code == status, (encoding, content[:50], reply.text)
        assert words in (message_of(reply, path) if path in PATHS else reply.text)
        if status == 415 and path.startswith("/v1/"):
            assert reply.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("encoding", PACK)
def test_compressed_bodies_are_read_as_if_plain(http: httpx.Client, encoding: str) -> None:
    """Also one byte after the other."""
    packed = PACK[encoding](NANO)
    sent: list[tuple[str, Any]] = [
        *((encoding, packed), (encoding.upper(), packed), ("identity", NANO)),
        (encoding, (bytes([byte]) for byte in packed)),
    ]
    plain = http.post("/api/show", content=NANO)
    for named, content in sent:
        reply = http.post("/api/show", content=content, headers={"content-encoding": named})
        assert reply.json() == plain.json(), named


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
    reply = http.post(path, json={"model": "nano"} | one_token | bodies[path])
    is_text = path != "/v1/messages"
    assert reply.status_code == (200 if is_text else 400)
    assert is_text or "deeper" in message_of(reply, path)


def test_a_verb_that_is_refused_is_told_the_others(http: httpx.Client) -> None:
    for path, methods in (
        (f"/api/blobs/sha256:{'0' * 64}", "HEAD, POST"),
        ("/v1/responses/resp_1", "DELETE, GET, HEAD"),
        ("/v1/chat/completions", "GET, HEAD, POST"),
        *((path, "POST") for path in PATHS if path != "/v1/chat/completions"),
    ):
        refused = http.patch(path)
        assert (refused.status_code, refused.headers["allow"]) == (405, methods)
