"""Events that the nano model does not produce at this endpoint."""

from typing import Any

import msgspec
import pytest

from gptoss_local.base.types import Usage
from gptoss_local.harmony import ContentDelta, Done, ToolCall
from gptoss_local.server.dialects.anthropic.frames import MessagesWriter
from gptoss_local.server.dialects.ollama.frames import (
    chat_event_frame,
    generate_event_frame,
)
from gptoss_local.server.dialects.openai.chat import ChatCompletionWriter
from gptoss_local.server.dialects.openai.responses_frames import ResponsesWriter
from gptoss_local.server.dialects.openai.responses_request import ResponsesBody
from gptoss_local.server.dialects.openai.responses_tools import ClientTools


def test_call_at_an_endpoint_without_tools_is_not_lost() -> None:
    call = ToolCall(0, "call_x", "f", {"a": 1})
    frame = generate_event_frame("nano", call, with_context=True)
    assert frame.response == 'f({"a":1})'


def test_calls_are_numbered() -> None:
    frame = chat_event_frame("nano", ToolCall(1, "call_x", "f", {"a": 1}))
    function = {"index": 1, "name": "f", "arguments": {"a": 1}}
    assert frame.message.tool_calls == [{"id": "call_x", "function": function}]


@pytest.mark.parametrize("is_cut_in_text", [False, True])
def test_only_the_item_that_was_cut_is_incomplete(is_cut_in_text: bool) -> None:
    """And it says so when it is done: programs take calls from there, and run them."""
    events: list[Any] = [ToolCall(0, "call_x", "f", {"a": 1})]
    if is_cut_in_text:
        events.append(ContentDelta("The wea"))
    writer = ResponsesWriter(ResponsesBody(model="nano"), ClientTools(), lambda _: None)
    usage = Usage(n_prompt=1, n_cached=0, n_generated=1, prefill_ns=1, decode_ns=1)
    frames = [f for e in [*events, Done("length", usage, [])] for f in writer.feed(e)]
    done = [f.data["item"] for f in frames if f.name == "response.output_item.done"]
    assert [i["status"] for i in done] == ["completed", "incomplete"][: len(events)]
    assert writer.whole()["output"] == done
    assert writer.whole()["status"] == "incomplete"


@pytest.mark.parametrize(
    ("writer", "field", "cut"),
    [
        (ChatCompletionWriter("nano", include_usage=False), "finish_reason", "length"),
        (MessagesWriter("nano"), "stop_reason", "max_tokens"),
    ],
)
def test_an_answer_that_was_cut_after_a_call_says_that_it_was_cut(
    writer: ChatCompletionWriter | MessagesWriter, field: str, cut: str
) -> None:
    """An engine elsewhere may reach the limit there: there may be more calls."""
    usage = Usage(n_prompt=1, n_cached=0, n_generated=1, prefill_ns=1, decode_ns=1)
    events = [ToolCall(0, "call_x", "f", {"a": 1}), Done("length", usage, [])]
    frames = [frame.data for event in events for frame in writer.feed(event)]
    assert f'"{field}":"{cut}"' in msgspec.json.encode(frames).decode()
    assert f'"{field}":"{cut}"' in msgspec.json.encode(writer.whole()).decode()
