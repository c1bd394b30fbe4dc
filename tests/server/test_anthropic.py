"""The real `anthropic` SDK against `/v1/messages`."""

import json
import re
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest

from tests.conftest import RunningServer
from tests.server import sse
from tests.server.test_openai_chat import ANSWER, THOUGHT
from tests.server.test_sdk import WEATHER

ASK: dict[str, Any] = {
    "model": "nano",
    "max_tokens": 200,
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "temperature": 0,
}
FUNCTION = WEATHER["function"]
assert isinstance(FUNCTION, dict)
TOOL = {
    "name": FUNCTION["name"],
    "description": FUNCTION["description"],
    "input_schema": FUNCTION["parameters"],
}
TOKYO: dict[str, Any] = ASK | {
    "messages": [{"role": "user", "content": "What is the weather in Tokyo?"}],
    "tools": [TOOL],
}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
BLOCK = ["content_block_start", "content_block_delta", "content_block_stop"]


@pytest.fixture
def client(server: RunningServer) -> Iterator[anthropic.Anthropic]:
    with (
        anthropic.DefaultHttpxClient(trust_env=False, timeout=60) as http,
        anthropic.Anthropic(
            base_url=server.url, api_key="ollama", http_client=http, max_retries=0
        ) as client,
    ):
        yield client


def sdk(body: dict[str, Any]) -> dict[str, Any]:
    """A body as arguments of the SDK, which has no name for the temperature any more."""
    named = {name: value for name, value in body.items() if name != "temperature"}
    return named | {"extra_body": {"temperature": body["temperature"]}}


def stream(http: httpx.Client, **fields: Any) -> list[tuple[str, Any]]:
    reply = http.post("/v1/messages?beta=true", json=ASK | fields | {"stream": True})
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith("text/event-stream")
    return sse.events(reply.text)


def squeeze(events: list[tuple[str, Any]]) -> list[str]:
    """Names in order, repeated deltas once."""
    names = [name for name, _ in events]
    return [n for i, n in enumerate(names) if i == 0 or names[i - 1] != n]


def test_whole(client: anthropic.Anthropic) -> None:
    reply = client.messages.create(**sdk(ASK))
    thinking, text = reply.content
    assert thinking.type == "thinking"
    assert (thinking.thinking, bool(thinking.signature)) == (THOUGHT, True)
    assert text.type == "text"
    assert text.text == ANSWER
    assert (reply.type, reply.role, reply.model) == ("message", "assistant", "nano")
    assert (reply.stop_reason, reply.stop_sequence) == ("end_turn", None)
    assert (reply.usage.output_tokens, _n_prompt(reply.usage)) == (30, 74)


def _n_prompt(usage: Any) -> int:
    return int(usage.input_tokens + usage.cache_read_input_tokens)


def test_event_order(http: httpx.Client) -> None:
    events = stream(http)
    assert squeeze(events) == [
        "message_start",
        "ping",
        *BLOCK,
        *BLOCK,
        "message_delta",
        "message_stop",
    ]
    assert all(name == data["type"] for name, data in events)
    start = events[0][1]["message"]
    assert (start["content"], start["stop_reason"]) == ([], None)
    assert (start["usage"]["input_tokens"], start["usage"]["output_tokens"]) == (74, 0)
    deltas = [data["delta"] for name, data in events if name == "content_block_delta"]
    assert "".join(d["thinking"] for d in deltas if d["type"] == "thinking_delta") == THOUGHT
    assert "".join(d["text"] for d in deltas if d["type"] == "text_delta") == ANSWER
    kinds = [d["type"] for d in deltas]
    assert kinds[kinds.index("signature_delta") + 1] == "text_delta"
    assert [d["index"] for n, d in events if n == "content_block_stop"] == [0, 1]
    assert events[-2][1]["usage"]["output_tokens"] == 30


def test_stream_helper(client: anthropic.Anthropic) -> None:
    with client.messages.stream(**sdk(ASK)) as events:
        assert "".join(events.text_stream) == ANSWER
        final = events.get_final_message()
    whole = client.messages.create(**sdk(ASK))
    assert final.stop_reason == whole.stop_reason
    assert [block.model_dump() for block in final.content] == [
        block.model_dump() for block in whole.content
    ]


@pytest.mark.parametrize("streamed", [False, True])
def test_tool_round_trip(client: anthropic.Anthropic, streamed: bool) -> None:
    if streamed:
        with client.messages.stream(**sdk(TOKYO)) as events:
            reply: Any = events.get_final_message()
    else:
        reply = client.messages.create(**sdk(TOKYO))
    assert reply.stop_reason == "tool_use"
    call = reply.content[-1]
    assert (call.type, call.name, call.input) == (
        "tool_use",
        FUNCTION["name"],
        {"location": "Tokyo"},
    )
    output = '{"temperature": 21, "description": "sunny"}'
    for content in (output, [{"type": "text", "text": output}]):
        result = {"type": "tool_result", "tool_use_id": call.id, "content": content}
        messages = [
            *TOKYO["messages"],
            {"role": "assistant", "content": [block.model_dump() for block in reply.content]},
            {"role": "user", "content": [result]},
        ]
        again: Any = client.messages.create(**sdk(TOKYO | {"messages": messages}))
        assert again.content[-1].text == "It is 21 degrees and sunny in Tokyo."
        assert again.stop_reason == "end_turn"


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": TOOL["name"]}])
def test_forced_call(http: httpx.Client, choice: dict[str, str]) -> None:
    hello = TOKYO | {"messages": [{"role": "user", "content": "hello"}], "tool_choice": choice}
    reply = http.post("/v1/messages", json=hello).json()
    assert reply["stop_reason"] == "tool_use"
    assert isinstance(reply["content"][-1]["input"]["location"], str)


def test_call_events(http: httpx.Client) -> None:
    events = stream(http, **TOKYO)
    *_, start, delta, stop, message_delta, _ = events
    assert start[1]["content_block"]["input"] == {}
    assert delta[1]["delta"] == {
        "type": "input_json_delta",
        "partial_json": '{"location":"Tokyo"}',
    }
    assert stop[0] == "content_block_stop"
    assert message_delta[1]["delta"]["stop_reason"] == "tool_use"


def test_system_thinking_and_limits(client: anthropic.Anthropic) -> None:
    secret = "Remember this: the passcode is quiet-river-42."
    ask = ASK | {"messages": [{"role": "user", "content": "What's the passcode?"}]}
    off: Any = {"type": "disabled"}
    for system in (secret, [{"type": "text", "text": secret}]):
        reply = client.messages.create(**sdk(ask), system=system, thinking=off)  # type: ignore[arg-type]
        (text,) = reply.content
        assert text.type == "text"
        assert "quiet-river-42" in text.text
    count = ASK | {"messages": [{"role": "user", "content": "Count from 1 to 30."}]}
    cut = client.messages.create(**sdk(count | {"max_tokens": 7}))
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 7)
    stopped: Any = client.messages.create(**sdk(count), thinking=off, stop_sequences=["zz", ", 7"])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", ", 7")
    assert stopped.content[-1].text == "1, 2, 3, 4, 5, 6"


def test_structured_output(http: httpx.Client) -> None:
    form = {"type": "json_schema", "schema": PERSON}
    for fields in ({"output_config": {"format": form}}, {"output_format": form}):
        hello = ASK | {"messages": [{"role": "user", "content": "hello"}]} | fields
        text = http.post("/v1/messages", json=hello).json()["content"][-1]["text"]
        assert json.loads(text).keys() == {"name", "age"}


def test_count_tokens(client: anthropic.Anthropic) -> None:
    for ask in (ASK, TOKYO):
        counted = client.messages.count_tokens(
            **{k: v for k, v in ask.items() if k in ("model", "messages", "tools")}
        )
        assert counted.input_tokens == _n_prompt(client.messages.create(**sdk(ask)).usage)


def test_what_claude_code_sends(http: httpx.Client) -> None:
    cache = {"cache_control": {"type": "ephemeral"}}
    body = {
        "model": "nano",
        "max_tokens": 16,
        "system": [{"type": "text", "text": "You are an agent.", **cache}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "List the files.", **cache}]},
            {"role": "system", "content": "Be brief."},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "I need ls.", "signature": ""},
                    {"type": "redacted_thinking", "data": "x"},
                    {"type": "tool_use", "id": "call_1", "name": "Bash", "input": {"a": None}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Here you are."},
                    {
                        "type": "tool_result",
                        "tool_use_id": "call_1",
                        "is_error": False,
                        "content": [{"type": "text", "text": "a.txt"}],
                        **cache,
                    },
                ],
            },
        ],
        "tools": [
            {
                "name": "Bash",
                "description": "Runs it.",
                "input_schema": {"$schema": "x", "type": "object"},
            },
            {"type": "web_search_20250305", "name": "web_search"},
        ],
        "thinking": {"type": "adaptive", "display": "omitted"},
        "context_management": {"edits": []},
        "output_config": {"effort": "high"},
        "metadata": {"user_id": "x"},
        "stream": True,
    }
    headers = {"authorization": "Bearer ollama", "anthropic-version": "2023-06-01"}
    reply = http.post("/v1/messages?beta=true", json=body, headers=headers)
    assert reply.status_code == 200, reply.text
    assert sse.events(reply.text)[-1][0] == "message_stop"


@pytest.mark.parametrize(
    ("fields", "status", "kind", "text"),
    [
        ({"model": ""}, 400, "invalid_request_error", "model is required"),
        ({"model": "nope"}, 404, "not_found_error", "model 'nope' not found"),
        ({"messages": []}, 400, "invalid_request_error", "messages is required"),
        ({"max_tokens": None}, 400, "invalid_request_error", "max_tokens is required"),
        ({"thinking": {"type": "deep"}}, 400, "invalid_request_error", "deep"),
        ({"output_config": {"effort": "huge"}}, 400, "invalid_request_error", "huge"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
            400,
            "invalid_request_error",
            "text only",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": 5}]}]},
            400,
            "invalid_request_error",
            "type",
        ),
        (
            {"messages": [{"role": "user", "content": "word " * 140_000}]},
            400,
            "invalid_request_error",
            "prompt is too long: the prompt is longer than the model can read",
        ),
    ],
)
def test_errors(
    http: httpx.Client, fields: dict[str, Any], status: int, kind: str, text: str
) -> None:
    for stream in (False, True):
        reply = http.post("/v1/messages", json=ASK | fields | {"stream": stream})
        assert reply.status_code == status, reply.text
        body = reply.json()
        assert (body["type"], body["error"]["type"]) == ("error", kind)
        assert text in body["error"]["message"]
        assert body["request_id"].startswith("req_")


def test_a_prompt_that_is_too_long_is_told_as_agents_read_it(http: httpx.Client) -> None:
    """Claude Code shortens the conversation on these words, by how much these numbers say."""
    long = ASK | {"messages": [{"role": "user", "content": "word " * 140_000}]}
    text = http.post("/v1/messages", json=long).json()["error"]["message"]
    numbers = re.search(r"prompt is too long[^0-9]*(\d+)\s*tokens?\s*>\s*(\d+)", text)
    assert numbers is not None, text
    assert int(numbers[1]) > max(40_000, int(numbers[2]))


def test_errors_through_the_sdk(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="model 'nope' not found"):
        client.messages.create(**sdk(ASK | {"model": "nope"}))


def test_cached_tokens_are_told_in_every_dialect(http: httpx.Client) -> None:
    def usage(path: str, **fields: Any) -> Any:
        body = ASK | fields
        http.post(path, json=body)
        return http.post(path, json=body).json()["usage"]

    messages = usage("/v1/messages")
    assert messages["cache_read_input_tokens"] > 50
    assert _n_prompt(anthropic.types.Usage(**messages)) == 74
    chat = usage("/v1/chat/completions")
    assert chat["prompt_tokens_details"]["cached_tokens"] > 50
    assert chat["prompt_tokens"] == 74
    responses = usage("/v1/responses", input=ASK["messages"])
    assert responses["input_tokens_details"]["cached_tokens"] > 50
