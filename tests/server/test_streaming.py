"""Waits, faults and events that the real model does not produce on demand, as they are sent."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gptoss_local.base.errors import EngineError
from gptoss_local.base.types import Usage
from gptoss_local.harmony import ChatEvent, ContentDelta, Done, Started, TokenLogprob, ToolCall
from gptoss_local.server import streaming
from gptoss_local.server.dialects.anthropic.routes import MessagesWriter
from gptoss_local.server.dialects.ollama.frames import (
    ChatWriter,
    GenerateWriter,
)
from gptoss_local.server.dialects.openai.chat import ChatCompletionWriter
from gptoss_local.server.dialects.openai.responses_frames import ResponsesWriter
from gptoss_local.server.dialects.openai.responses_request import ResponsesBody
from gptoss_local.server.dialects.openai.responses_tools import ClientTools
from gptoss_local.server.streaming import (
    NDJSON,
    SSE,
    AnswerResponse,
    AnswerWriter,
    Framing,
    SseEvent,
)

pytestmark = pytest.mark.quick

ANSWER: list[ChatEvent] = [
    Started(3),
    ContentDelta("hi"),
    Done("stop", Usage(3, 1, 0, 0), []),
]


async def answer(
    wait: Awaitable[None], events: list[ChatEvent], error: Exception | None = None
) -> AsyncGenerator[ChatEvent, None]:
    await wait
    for event in events:
        yield event
    if error is not None:
        raise error


async def filled(sent: list[dict[str, Any]], n_messages: int) -> None:
    async with asyncio.timeout(30):
        while len(sent) < n_messages:
            await asyncio.sleep(0.01)


async def respond(
    events: AsyncGenerator[ChatEvent, None],
    writer: AnswerWriter,
    *,
    stream: bool = True,
    sent: list[dict[str, Any]] | None = None,
) -> tuple[int, list[bytes]]:
    """Return the status and the pieces of the body as they were sent."""
    sent = [] if sent is None else sent

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        await asyncio.Event().wait()

    app = SimpleNamespace(state=SimpleNamespace(ending=asyncio.Event()))
    scope = {"type": "http", "app": app}
    await AnswerResponse(events, writer, stream=stream)(scope, receive, send)
    assert sent[0]["type"] == "http.response.start"
    assert all(message["type"] == "http.response.body" for message in sent[1:])
    assert not sent[-1].get("more_body")
    return sent[0]["status"], [message["body"] for message in sent[1:] if message["body"]]


@pytest.fixture
def fast_heartbeat(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    assert streaming._HEARTBEAT_S <= 10  # some clients give up when there is nothing for 30 s
    monkeypatch.setattr(streaming, "_HEARTBEAT_S", getattr(request, "param", 0.05))


WRITERS = [
    lambda: ChatCompletionWriter("m", include_usage=False),
    lambda: MessagesWriter("m"),
    lambda: ChatWriter("m"),
]


@pytest.mark.usefixtures("fast_heartbeat")
@pytest.mark.parametrize("make", WRITERS)
async def test_a_long_wait_gives_signs_of_life(make: Any) -> None:
    sent: list[dict[str, Any]] = []  # the status, then signs of life
    status, pieces = await respond(answer(filled(sent, 1 + 3), ANSWER), make(), sent=sent)
    _, prompt = await respond(answer(asyncio.sleep(0), ANSWER), make())
    assert status == 200
    assert len(pieces) - len(prompt) >= 3


# Longer than a busy machine pauses.
@pytest.mark.parametrize("fast_heartbeat", [1.0], indirect=True)
@pytest.mark.usefixtures("fast_heartbeat")
async def test_nothing_is_added_to_what_flows() -> None:
    async def flowing() -> AsyncGenerator[ChatEvent, None]:
        for _ in range(20):
            await asyncio.sleep(0.07)
            yield ContentDelta("x")

    _, pieces = await respond(flowing(), ChatWriter("m"))
    assert len(pieces) == 20


@pytest.mark.usefixtures("fast_heartbeat")
async def test_after_a_sign_of_life_an_error_is_a_frame() -> None:
    """Before the first byte, and without streaming, it is left to its handler."""
    broken = EngineError("no memory")
    sent: list[dict[str, Any]] = []
    status, pieces = await respond(answer(filled(sent, 2), [], broken), WRITERS[0](), sent=sent)
    assert status == 200
    assert b"no memory" in pieces[-1]
    assert pieces[-1].endswith(b"data: [DONE]\n\n")
    for wait_s, stream in ((0, True), (0.12, False)):
        with pytest.raises(EngineError):
            await respond(answer(asyncio.sleep(wait_s), [], broken), WRITERS[0](), stream=stream)


@pytest.mark.parametrize("make", WRITERS)
async def test_a_bug_amid_a_stream_ends_it_with_an_error(make: Any) -> None:
    status, pieces = await respond(
        answer(asyncio.sleep(0), ANSWER[:2], ValueError("a bug")), make()
    )
    assert status == 200
    assert b"internal error, see the server log" in pieces[-1]
    assert b"a bug" not in b"".join(pieces)


@pytest.mark.parametrize("framing", [NDJSON, SSE])
def test_no_character_of_an_answer_ends_a_line(framing: Framing) -> None:
    """The SDKs read lines with httpx, which splits them like `str.splitlines`."""
    text = "".join(map(chr, range(0x20, 0x300))) + "\u2028\u2029 \\u2028"
    value: Any = {"text": text}
    line = framing.encode(SseEvent(value) if framing is SSE else value).decode()
    assert len(line.strip("\n").splitlines()) == 1
    assert json.loads(line.removeprefix("data: ")) == value


CALL = ToolCall(1, "call_x", "f", {"a": 1})
CUT = Done("length", Usage(1, 1, 1, 1), [])


def test_calls_of_ollama_are_numbered_and_none_is_lost() -> None:
    """Not even at an endpoint without tools."""
    (said,) = GenerateWriter("nano", with_context=True).feed(CALL)
    assert said.response == 'f({"a":1})'
    function = {"index": 1, "name": "f", "arguments": {"a": 1}}
    (frame,) = ChatWriter("nano").feed(CALL)
    assert msgspec.to_builtins(frame.message.tool_calls) == [{"id": "call_x", "function": function}]


def test_a_part_begins_empty() -> None:
    """Though its first token is known by then."""
    writer = ResponsesWriter(ResponsesBody(model="nano"), ClientTools(), lambda _: None)
    frames = list(writer.feed(ContentDelta("x", (TokenLogprob(b"x", -0.5, (), 0),))))
    (part,) = (f.data["part"] for f in frames if f.name == "response.content_part.added")
    assert (part["text"], part["logprobs"]) == ("", [])


@pytest.mark.parametrize("is_cut_in_text", [False, True])
def test_only_the_item_that_was_cut_is_incomplete(is_cut_in_text: bool) -> None:
    """And it says so when it is done: programs take calls from there, and run them."""
    events: list[Any] = [CALL, *([ContentDelta("The wea")] if is_cut_in_text else [])]
    writer = ResponsesWriter(ResponsesBody(model="nano"), ClientTools(), lambda _: None)
    frames = [f for e in [*events, CUT] for f in writer.feed(e)]
    done = [f.data["item"] for f in frames if f.name == "response.output_item.done"]
    assert [i["status"] for i in done] == ["completed", "incomplete"][: len(events)]
    assert writer.whole()["output"] == done
    assert writer.whole()["status"] == "incomplete"


@pytest.mark.parametrize(
    ("make", "cut"),
    [(WRITERS[0], '"finish_reason":"length"'), (WRITERS[1], '"stop_reason":"max_tokens"')],
)
def test_an_answer_that_was_cut_after_a_call_says_that_it_was_cut(make: Any, cut: str) -> None:
    """An engine elsewhere may reach the limit there: there may be more calls."""
    writer = make()
    frames = [frame.data for event in (CALL, CUT) for frame in writer.feed(event)]
    assert cut in msgspec.json.encode(frames).decode()
    assert cut in msgspec.json.encode(writer.whole()).decode()
