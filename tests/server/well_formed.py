"""Whether an answer has the form that its dialect promises, whatever it says."""

import json
from typing import Any

from tests.server import sse


def check_stream(path: str, text: str) -> None:
    """Check a whole stream; raises AssertionError."""
    if path.startswith("/api/"):
        _check_ndjson(text)
    elif path.startswith("/v1/messages"):
        _check_messages(sse.events(text))
    elif path == "/v1/responses":
        _check_responses(sse.events(text))
    else:
        _check_chunks([data for _, data in sse.events(text)])


def check_whole(path: str, body: dict[str, Any]) -> None:
    """Check an answer that was not streamed."""
    if path.startswith("/api/"):
        assert (body["message"]["role"], body["done"]) == ("assistant", True)
    elif path.startswith("/v1/messages"):
        assert body["stop_reason"] in ("end_turn", "tool_use", "max_tokens")
        assert {block["type"] for block in body["content"]} <= {"thinking", "text", "tool_use"}
    elif path == "/v1/responses":
        assert body["status"] in ("completed", "incomplete")
        assert all(item["id"] for item in body["output"])
    else:
        (choice,) = body["choices"]
        assert choice["finish_reason"] in ("stop", "length", "tool_calls")
        assert choice["message"]["role"] == "assistant"
        assert body["usage"]["total_tokens"] > 0


def _check_ndjson(text: str) -> None:
    frames = [json.loads(line) for line in text.splitlines()]
    assert [frame["done"] for frame in frames] == [False] * (len(frames) - 1) + [True]
    assert all(frame["message"]["role"] == "assistant" for frame in frames)


def _check_chunks(data: list[Any]) -> None:
    assert data.pop() == "[DONE]"
    if data[-1]["choices"] == []:
        assert data.pop()["usage"]["total_tokens"] > 0
    choices = [chunk["choices"][0] for chunk in data]
    assert choices[0]["delta"]["role"] == "assistant"
    assert all("role" not in choice["delta"] for choice in choices[1:])
    reasons = [choice["finish_reason"] for choice in choices]
    assert reasons[:-1] == [None] * (len(reasons) - 1)
    calls = [call for c in choices for call in c["delta"].get("tool_calls", [])]
    assert [call["index"] for call in calls] == list(range(len(calls)))
    assert reasons[-1] in (("tool_calls", "length") if calls else ("stop", "length"))
    for call in calls:
        assert isinstance(json.loads(call["function"]["arguments"]), dict)


def _check_responses(events: list[tuple[str, Any]]) -> None:
    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))
    assert [name for name, _ in events[:2]] == ["response.created", "response.in_progress"]
    name, data = events[-1]
    assert name in ("response.completed", "response.incomplete")
    output, open_item = data["response"]["output"], None
    n_done = 0
    for name, data in events[2:-1]:
        if name == "response.output_item.added":
            assert (open_item, data["output_index"]) == (None, n_done)
            open_item = data["item"]["id"]
        elif name == "response.output_item.done":
            assert data["item"]["id"] == output[n_done]["id"] == open_item
            open_item, n_done = None, n_done + 1
        else:
            assert (data["item_id"], data["output_index"]) == (open_item, n_done)
    assert (open_item, n_done) == (None, len(output))


def _check_messages(events: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in events]
    assert (names[0], names[-2:]) == ("message_start", ["message_delta", "message_stop"])
    n_blocks, is_open = 0, False
    for name, data in events[1:-2]:
        if name == "ping":
            continue
        assert data["index"] == n_blocks
        assert is_open == (name != "content_block_start")
        is_open = name != "content_block_stop"
        n_blocks += name == "content_block_stop"
    assert not is_open
