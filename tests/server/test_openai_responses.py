"""The real `openai` SDK against `/v1/responses`."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.server import sse
from tests.server.test_openai_chat import ANSWER, THOUGHT, Person
from tests.server.test_openai_chat import client as client
from tests.server.test_sdk import WEATHER

ASK: dict[str, Any] = {
    "model": "nano",
    "input": "What is the capital of France?",
    "temperature": 0,
}
TOKYO: dict[str, Any] = ASK | {
    "input": [{"role": "user", "content": "What is the weather in Tokyo?"}],
    "tools": [{"type": "function", **WEATHER["function"]}],
}
TEXT_ORDER = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.reasoning_summary_part.added",
    "response.reasoning_summary_text.delta",
    "response.reasoning_summary_text.done",
    "response.reasoning_summary_part.done",
    "response.output_item.done",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
]


def stream(http: httpx.Client, **fields: Any) -> list[tuple[str, Any]]:
    reply = http.post("/v1/responses", json=ASK | fields | {"stream": True})
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith("text/event-stream")
    return sse.events(reply.text)


def squeeze(names: Iterator[str]) -> list[str]:
    """Names in order, repeated deltas once."""
    kept: list[str] = []
    for name in names:
        if not kept or name != kept[-1]:
            kept.append(name)
    return kept


def test_whole(client: openai.OpenAI) -> None:
    reply = client.responses.create(**ASK)
    assert (reply.output_text, reply.status, reply.object) == (ANSWER, "completed", "response")
    reasoning, message = reply.output
    assert reasoning.type == "reasoning"
    assert reasoning.summary[0].text == THOUGHT
    assert message.type == "message"
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (74, 30)
    assert reply.usage.output_tokens_details.reasoning_tokens == 13


def test_event_order_and_numbers(http: httpx.Client) -> None:
    events = stream(http)
    assert squeeze(name for name, _ in events) == TEXT_ORDER
    assert all(name == data["type"] for name, data in events)
    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))
    by_name: dict[str, Any] = dict(events)
    final = by_name["response.completed"]["response"]
    assert final["status"] == "completed"
    done = [data for name, data in events if name == "response.output_item.done"]
    assert [d["item"] for d in done] == final["output"]
    assert [d["output_index"] for d in done] == [0, 1]
    assert by_name["response.created"]["response"]["output"] == []
    assert by_name["response.created"]["response"]["status"] == "in_progress"
    for name, data in events:
        if "item_id" in data:
            assert data["item_id"] == final["output"][data["output_index"]]["id"], name
    deltas = [data["delta"] for name, data in events if name == "response.output_text.delta"]
    assert "".join(deltas) == by_name["response.output_text.done"]["text"] == ANSWER


def test_stream_helper(client: openai.OpenAI) -> None:
    with client.responses.stream(**ASK) as events:
        kinds = {event.type for event in events}
        final = events.get_final_response()
    assert "response.output_text.delta" in kinds
    assert final.output_text == ANSWER


@pytest.mark.parametrize("streamed", [False, True])
def test_tool_round_trip(client: openai.OpenAI, streamed: bool) -> None:
    if streamed:
        with client.responses.stream(**TOKYO) as events:
            reply: Any = events.get_final_response()
    else:
        reply = client.responses.create(**TOKYO)
    *before, call = reply.output
    assert [item.type for item in before] == ["reasoning"]
    assert (call.type, call.name) == ("function_call", "get_current_weather")
    assert json.loads(call.arguments) == {"location": "Tokyo"}
    output = '{"temperature": 21, "description": "sunny"}'
    result = {"type": "function_call_output", "call_id": call.call_id, "output": output}
    history = [item.model_dump(exclude_none=True) for item in reply.output]
    again = client.responses.create(**TOKYO | {"input": [*TOKYO["input"], *history, result]})
    assert again.output_text == "It is 21 degrees and sunny in Tokyo."


def test_strict_tool(client: openai.OpenAI) -> None:
    tool = TOKYO["tools"][0] | {"strict": True}
    call: Any = client.responses.create(**TOKYO | {"tools": [tool]}).output[-1]
    assert (call.name, json.loads(call.arguments)) == (tool["name"], {"location": "Tokyo"})
    tool["parameters"] = {"type": "object", "properties": {"a": {"not": {"type": "null"}}}}
    with pytest.raises(openai.BadRequestError, match="not"):
        client.responses.create(**TOKYO | {"tools": [tool]})


def test_call_events(http: httpx.Client) -> None:
    events = stream(http, **TOKYO)
    names = [name for name, _ in events]
    added = len(names) - 1 - names[::-1].index("response.output_item.added")
    assert names[added:] == [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    item = events[added][1]["item"]
    assert (item["arguments"], item["status"]) == ("", "in_progress")
    assert events[added + 2][1]["arguments"] == '{"location":"Tokyo"}'


PATCH = {
    "type": "custom",
    "name": "get_current_weather",
    "description": "Gets the current weather in the provided location.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.{1,20}/"},
}


def test_custom_tool(client: openai.OpenAI, http: httpx.Client) -> None:
    """A tool of free text; nano has to be told to call it."""
    forced = {"tool_choice": {"type": "custom", "name": PATCH["name"]}}
    ask = TOKYO | {"tools": [PATCH], "max_output_tokens": 300} | forced
    (call,) = [i for i in client.responses.create(**ask).output if i.type != "reasoning"]
    assert call.type == "custom_tool_call"
    assert call.name == PATCH["name"]
    events = stream(http, **ask)
    assert [name for name, _ in events][-5:] == [
        "response.output_item.added",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert events[-3][1]["input"] == events[-2][1]["item"]["input"] == call.input
    history = [
        *TOKYO["input"],
        call.model_dump(exclude_none=True),
        {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "sunny"},
    ]
    again = client.responses.create(**ask | {"input": history, "tool_choice": "auto"})
    assert again.output


def test_structured_output(client: openai.OpenAI) -> None:
    text = 'Extract name and age as JSON: "Bob Smith is 42 years old."'
    parsed = client.responses.parse(**ASK | {"input": text}, text_format=Person)
    assert parsed.output_parsed == Person(name="Bob Smith", age=42)
    forced = client.responses.parse(**ASK | {"input": "hello"}, text_format=Person)
    assert isinstance(forced.output_parsed, Person)


def test_cut_answer_is_incomplete(http: httpx.Client) -> None:
    fields = {"max_output_tokens": 5, "reasoning": {"effort": "none"}}
    name, data = stream(http, **fields)[-1]
    assert (name, data["response"]["status"]) == ("response.incomplete", "incomplete")
    assert data["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    (message,) = data["response"]["output"]
    assert (message["type"], message["status"]) == ("message", "incomplete")
    whole = http.post("/v1/responses", json=ASK | fields).json()
    assert whole["output"][0]["content"][0]["text"] == message["content"][0]["text"]


def test_instructions_and_developer_message(client: openai.OpenAI) -> None:
    secret = "Remember this: the passcode is quiet-river-42."
    question = {
        "role": "user",
        "content": [{"type": "input_text", "text": "What is the passcode?"}],
    }
    told = client.responses.create(**ASK | {"input": [question]}, instructions=secret)
    assert "quiet-river-42" in told.output_text
    developer = {"type": "message", "role": "developer", "content": secret}
    again = client.responses.create(**ASK | {"input": [developer, question]})
    assert again.output_text == told.output_text


IMPOSSIBLE = {"type": "json_schema", "schema": {"not": {}}}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"model": ""}, "model is required"),
        ({"input": ""}, "input is required"),
        ({"conversation": "conv_1"}, "not stored"),
        ({"background": True}, "background"),
        ({"reasoning": {"effort": "huge"}}, "invalid reasoning value"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "text only"),
        ({"input": [{"content": "hi"}]}, "neither a type nor a role"),
        ({"text": {"format": {"type": "json_schema"}}}, "must be an object"),
        ({"text": {"format": IMPOSSIBLE | {"json_schema": "x"}}}, "no finite value satisfies it"),
        ({"tools": [{"type": "function", "name": 5}]}, "name must be"),
    ],
)
def test_bad_requests(http: httpx.Client, fields: dict[str, Any], text: str) -> None:
    for stream in (False, True):
        reply = http.post("/v1/responses", json=ASK | fields | {"stream": stream})
        assert reply.status_code == 400, reply.text
        assert text in reply.json()["error"]["message"]


def test_unknown_items_may_have_any_fields(http: httpx.Client) -> None:
    """Those of other products share names with ours, and not their types."""
    screen = {"type": "computer_screenshot", "image_url": "data:"}
    items = [
        {"type": "computer_call_output", "call_id": "c", "output": screen},
        {"type": "later", "id": 5, "role": ["x"], "content": {}, "summary": 1, "arguments": [1]},
        {"role": "user", "content": "What is the capital of France?"},
    ]
    reply = http.post("/v1/responses", json=ASK | {"input": items})
    assert reply.status_code == 200, reply.text
    assert "Paris" in reply.json()["output"][-1]["content"][0]["text"]


def test_unknown_model(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="model 'nope' not found"):
        client.responses.create(**ASK | {"model": "nope"})
