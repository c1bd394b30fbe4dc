"""The form that each dialect promises for any answer."""

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
        _check_events(sse.events(text))
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
        _check_response(body)
    else:
        _check_completion(body)


def _check_ndjson(text: str) -> None:
    frames = [json.loads(line) for line in text.splitlines()]
    assert [frame["done"] for frame in frames] == [False] * (len(frames) - 1) + [True]
    assert all(frame["message"]["role"] == "assistant" for frame in frames)


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


def _check_completion(answer: dict[str, Any]) -> dict[str, Any]:
    """Check an answer of /v1/chat/completions; return its message with `finish_reason`."""
    assert answer["object"] == "chat.completion", f"the object is {answer['object']!r}"
    assert all(answer[name] for name in ("id", "created", "model")), answer
    (choice,) = answer["choices"]
    assert choice["index"] == 0, "the choice is not number 0"
    assert choice["message"]["role"] == "assistant", "the role is not assistant"
    finish = choice["finish_reason"]
    assert finish in ("stop", "length", "tool_calls"), f"finish_reason is {finish!r}"
    usage = answer["usage"]
    n_tokens = usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["total_tokens"] == n_tokens > 0, f"usage does not add up: {usage}"
    return {**choice["message"], "finish_reason": finish}


def _check_chunks(data: list[Any]) -> dict[str, Any]:
    """Check the data of all events of a stream; return the message with `finish_reason`."""
    assert data[-1] == "[DONE]"
    chunks = data[:-1]
    if chunks[-1]["choices"] == []:
        assert chunks.pop()["usage"]["total_tokens"] > 0, "usage is empty"
    assert len({chunk["id"] for chunk in chunks}) == 1, "the chunks have several ids"
    assert {c["object"] for c in chunks} == {"chat.completion.chunk"}, "an object has another type"
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert choices[0]["delta"]["role"] == "assistant", "the first delta has no role"
    reasons = [choice.get("finish_reason") for choice in choices]
    assert [bool(reason) for reason in reasons] == [False] * (len(reasons) - 1) + [True]
    message: dict[str, Any] = {"role": "assistant", "content": "", "finish_reason": reasons[-1]}
    calls: list[dict[str, Any]] = []
    for delta in (choice["delta"] for choice in choices):
        for name in ("content", "reasoning"):
            if text := delta.get(name):
                message[name] = message.get(name, "") + text
        for part in delta.get("tool_calls") or ():
            if part["index"] == len(calls):
                function = {"name": part["function"]["name"], "arguments": ""}
                calls.append({"id": part["id"], "type": "function", "function": function})
            assert part["index"] == len(calls) - 1, "the calls are not in order"
            calls[-1]["function"]["arguments"] += part["function"].get("arguments") or ""
    for call in calls:
        assert isinstance(json.loads(call["function"]["arguments"]), dict), "arguments: no object"
    wanted = ("tool_calls", "length") if calls else ("stop", "length")
    assert reasons[-1] in wanted, f"finish_reason is {reasons[-1]!r} with {len(calls)} calls"
    return message | ({"tool_calls": calls} if calls else {})


def _check_response(response: dict[str, Any]) -> dict[str, Any]:
    """Check an answer of /v1/responses, and return it."""
    assert response["object"] == "response", f"the object is {response['object']!r}"
    assert all(response[name] for name in ("id", "created_at")), response
    status = response["status"]
    assert status in ("completed", "incomplete"), f"the status is {status!r}"
    assert all(item["id"] and item["type"] for item in response["output"]), "an item has no id"
    for item in response["output"]:
        _check_nulls(item)
    usage = response["usage"]
    n_tokens = usage["input_tokens"] + usage["output_tokens"]
    assert usage["total_tokens"] == n_tokens > 0, f"usage does not add up: {usage}"
    return response


_OF_OPENAI = {"outputs", "annotations", "action", "approval_request_id", "output", "error"}


def _check_nulls(data: Any) -> None:
    """Check that nothing is null in Open Responses' own items; there it is absent."""
    if isinstance(data, dict):
        nulls = {key for key, value in data.items() if value is None} - _OF_OPENAI
        assert not nulls, f"null: {nulls}"
    for value in (
        data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    ):
        _check_nulls(value)


def _check_events(events: list[tuple[str, Any]]) -> dict[str, Any]:
    """Check all events of a stream of /v1/responses; return the whole response."""
    *events, end = events
    assert end == ("", "[DONE]"), f"the stream ends with {end}"
    assert all(name == data["type"] for name, data in events), "an event is not named as its type"
    numbers = [data["sequence_number"] for _, data in events]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "numbers are missing"
    first = [name for name, _ in events[:2]]
    assert first == ["response.created", "response.in_progress"], f"it begins with {first}"
    name, data = events[-1]
    assert name in ("response.completed", "response.incomplete"), f"it ends with {name}"
    response = _check_response(data["response"])
    output, is_open, n_done, text = response["output"], False, 0, ""
    for name, data in events[2:-1]:
        _check_nulls(data)
        assert data["output_index"] == n_done, f"{name} is of another item than the open one"
        assert is_open != (name == "response.output_item.added"), f"{name} is out of order"
        if name == "response.output_item.added":
            is_open, text = True, ""
        elif name == "response.output_item.done":
            assert data["item"]["id"] == output[n_done]["id"], "the output has another item"
            is_open, n_done = False, n_done + 1
        else:
            assert data["item_id"] == output[n_done]["id"], f"{name} has another item_id"
            text += data["delta"] if name.endswith(".delta") else ""
            if name.endswith((".output_text.done", ".arguments.done")):
                whole = data.get("text", data.get("arguments"))
                assert text == whole, f"the deltas of {name} make {text!r}, not {whole!r}"
            text = "" if name.endswith(".done") else text
    assert (is_open, n_done) == (False, len(output))
    return response
