"""Bodies that arrive slowly, or not at all, and JSON that is not quite right."""

import asyncio
from typing import Any

import pytest
from starlette.requests import Request

from gptoss_local.base.errors import RequestTimeoutError, UsageError
from gptoss_local.server import body
from gptoss_local.server.dialects.ollama.request import ModelBody
from gptoss_local.server.dialects.openai.chat_request import ChatCompletionBody

pytestmark = pytest.mark.quick


def request(*messages: dict[str, Any]) -> Request:
    """A request whose messages arrive at once; then nothing does."""
    waiting = list(messages)

    async def receive() -> Any:
        if not waiting:
            await asyncio.Event().wait()
        return waiting.pop(0)

    return Request({"type": "http", "headers": []}, receive)


PIECE = {"type": "http.request", "body": b'{"model": ', "more_body": True}


async def test_pieces_are_joined() -> None:
    rest = {"type": "http.request", "body": b'"nano"}', "more_body": False}
    assert (await body.read_body(request(PIECE, rest), ModelBody)).model == "nano"


async def test_a_body_that_stops_arriving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "_TIMEOUT_S", 0.05)
    with pytest.raises(RequestTimeoutError) as caught:
        await body.read_body(request(PIECE), ModelBody)
    assert caught.value.http_status == 408


async def test_a_client_that_leaves_amid_its_body() -> None:
    with pytest.raises(UsageError, match="client left"):
        await body.read_body(request(PIECE, {"type": "http.disconnect"}), ModelBody)


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (r"cut \ud83d", "cut \ufffd"),
        (r"\ude00 \uD83Dx \ud83d\n", "\ufffd \ufffdx \ufffd\n"),
        (r"\ud83d\ud83d\ude00", "\ufffd😀"),
        (r"whole \ud83d\ude00, a path C:\\ud83d, \ud83d", "whole 😀, a path C:\\ud83d, \ufffd"),
    ],
)
def test_half_a_character_does_not_end_a_conversation(sent: str, read: str) -> None:
    """As JSON.stringify writes a text that was cut between the halves."""
    data = f'{{"messages": [{{"role": "user", "content": "{sent}"}}]}}'
    assert body.parse_body(data.encode(), ChatCompletionBody).messages[0].content == read
    assert body.parse_object(f'{{"a": "{sent}"}}', "arguments") == {"a": read}


@pytest.mark.parametrize("text", [r"\ud83", r"\udzzz", "\\"])
def test_broken_escapes_stay_an_error(text: str) -> None:
    with pytest.raises(UsageError, match="invalid request"):
        body.parse_body(f'{{"model": "{text}"}}'.encode(), ModelBody)


def test_a_byte_order_mark_is_skipped() -> None:
    assert body.parse_body(b'\xef\xbb\xbf{"model": "nano"}', ModelBody).model == "nano"
