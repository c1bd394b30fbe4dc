"""Events that the nano model does not produce at this endpoint."""

from gptoss_local.chat import ToolCall
from gptoss_local.server.ollama_frames import Timing, chat_event_frame, generate_event_frame


def test_call_at_an_endpoint_without_tools_is_not_lost() -> None:
    call = ToolCall(0, "call_x", "f", {"a": 1})
    frame = generate_event_frame("nano", call, Timing(), with_context=True)
    assert frame.response == 'f({"a":1})'


def test_calls_are_numbered() -> None:
    frame = chat_event_frame("nano", ToolCall(1, "call_x", "f", {"a": 1}), Timing())
    function = {"index": 1, "name": "f", "arguments": {"a": 1}}
    assert frame.message.tool_calls == [{"id": "call_x", "function": function}]
