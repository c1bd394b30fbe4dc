"""What OpenAI's dialect refuses, how it says so, and what it lets pass."""

from typing import Any

import httpx
import openai
import pytest

from tests.server.test_openai_chat import ASK
from tests.server.test_openai_chat import client as client
from tests.server.test_sdk import WEATHER


def test_errors_have_openais_shape(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(**ASK | {"model": "nope"})
    assert missing.value.code == "model_not_found"
    long = [{"role": "user", "content": "word " * 140_000}]
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as overflow:
            client.chat.completions.create(**ASK | {"messages": long}, stream=stream)
        assert overflow.value.code == "context_length_exceeded"
        assert "tokens > 131072 maximum" in overflow.value.message


IMAGE = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"model": ""}, "model is required"),
        ({"messages": []}, "[] is too short - 'messages'"),
        ({"messages": [{"role": "user", "content": IMAGE}]}, "text only"),
        ({"messages": "hello"}, "messages"),
        ({"n": 2}, "n must be 1"),
        ({"top_logprobs": 2}, "only allowed when 'logprobs' is enabled"),
        ({"logprobs": True, "top_logprobs": 21}, "Expected a value <= 20, but got 21 instead"),
        ({"logprobs": True, "top_logprobs": -1}, "Expected a value >= 0, but got -1 instead"),
        ({"temperature": "nan"}, "temperature"),
        ({"temperature": "inf"}, "temperature"),
        ({"frequency_penalty": 2.1}, "frequency_penalty"),
        ({"presence_penalty": -2.1}, "presence_penalty"),
        ({"logit_bias": {"5": 100.5}}, "logit_bias"),
        ({"logit_bias": {"201088": 1}}, "logit_bias"),
        ({"logit_bias": {"word": 1}}, "logit_bias"),
        ({"logit_bias": {str(i): 1 for i in range(301)}}, "logit_bias"),
        ({"reasoning_effort": "huge"}, 'invalid reasoning value: "huge"'),
        ({"response_format": {"type": "yaml"}}, "yaml"),
        ({"response_format": {"type": "json_schema"}}, "must be an object"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": {"not": {}}},
                }
            },
            "no finite value satisfies it",
        ),
        ({"tools": [WEATHER], "tool_choice": {"function": {"name": "f"}}}, "not in tools"),
        ({"tools": [WEATHER], "tool_choice": "sometimes"}, "tool_choice"),
    ],
)
def test_bad_requests(http: httpx.Client, fields: dict[str, Any], text: str) -> None:
    reply = http.post("/v1/chat/completions", json=ASK | fields)
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert text in error["message"]
    assert error["type"] == "invalid_request_error"
    assert error.keys() == {"message", "type", "param", "code"}


def test_what_clients_send_besides_is_harmless(http: httpx.Client) -> None:
    """Roles, shapes of content, unknown tools and fields, as real programs send them."""
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": ""}}
    custom = {"id": "c2", "type": "custom", "custom": {"name": "patch", "input": "+x"}}
    body = ASK | {
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
            {"role": "developer", "content": "Be honest."},
            {"role": "user", "content": [{"type": "text", "text": "List the files."}]},
            {
                "role": "assistant",
                "content": None,
                "refusal": None,
                "reasoning": "I need two tools.",
                "reasoning_details": [{"type": "x"}],
                "tool_calls": [call, custom],
            },
            {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "ok"}]},
            {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
        ],
        "tools": [{"type": "custom", "custom": {"name": "patch"}}, {"type": "web_search"}],
        "store": False,
        "parallel_tool_calls": True,
        "max_completion_tokens": 8,
        "max_tokens": None,
        "logit_bias": {"5": 1},
        "metadata": {"a": None},
        "user": "me",
        "presence_penalty": 0.5,
        "tool_choice": "auto",
        "response_format": {"type": "text"},
    }
    reply = http.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
