"""What a conversation brings along in every dialect: results of tools, and earlier reasoning."""

import json
from typing import Any

import httpx
import msgspec
import pytest

from gptoss_local.harmony import ChatRequest
from gptoss_local.server.body import parse_body
from gptoss_local.server.dialects.anthropic.request import MessagesBody
from gptoss_local.server.dialects.ollama.request import ChatBody
from gptoss_local.server.dialects.openai.chat_request import ChatCompletionBody
from gptoss_local.server.dialects.openai.responses_request import ResponsesBody

URL = "data:image/png;base64,aGk="
CALL = {"id": "c", "function": {"name": "look", "arguments": "{}"}}
USE = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
FUNCTION_CALL = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
NOTE = "left out: only text can be read here]"


def result(path: str) -> dict[str, Any]:
    """The body of a conversation in which `look` returned a text and a picture."""
    body: dict[str, Any] = {"model": "nano", "max_tokens": 1, "max_output_tokens": 1}
    body |= {"stream": False, "options": {"num_predict": 1}}
    text = {"type": "text", "text": "Seen: "}
    asked: list[dict[str, Any]] = [{"role": "user", "content": "Look."}]
    called = [*asked, {"role": "assistant", "tool_calls": [CALL]}]
    match path:
        case "/api/chat":
            answer = {"role": "tool", "tool_call_id": "c", "content": "Seen: ", "images": ["aGk="]}
            return body | {"messages": [*called, answer]}
        case "/v1/chat/completions":
            parts = [text, {"type": "image_url", "image_url": {"url": URL}}]
            answer = {"role": "tool", "tool_call_id": "c", "content": parts}
            return body | {"messages": [*called, answer]}
        case "/v1/responses":
            parts = [text | {"type": "input_text"}, {"type": "input_image", "image_url": URL}]
            output = {"type": "function_call_output", "call_id": "c", "output": parts}
            return body | {"input": [*asked, FUNCTION_CALL, output]}
    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    parts = [text, {"type": "image", "source": source}]
    answer = {"type": "tool_result", "tool_use_id": "c", "content": parts}
    turns = [{"role": "assistant", "content": [USE]}, {"role": "user", "content": [answer]}]
    return body | {"messages": asked + turns}


def to_request(path: str, body: dict[str, Any]) -> ChatRequest:
    data = msgspec.json.encode(body)
    match path:
        case "/api/chat":
            return parse_body(data, ChatBody).to_request()
        case "/v1/chat/completions":
            return parse_body(data, ChatCompletionBody).to_request()
        case "/v1/responses":
            responses = parse_body(data, ResponsesBody)
            assert not isinstance(responses.input, str)
            return responses.to_request(responses.input, responses.toolbox(responses.input))
    return parse_body(data, MessagesBody).to_request()


@pytest.mark.parametrize(
    "path", ["/api/chat", "/v1/chat/completions", "/v1/responses", "/v1/messages"]
)
def test_a_picture_is_noted_and_refused_from_a_user(http: httpx.Client, path: str) -> None:
    body = result(path)
    assert http.post(path, json=body).status_code == 200
    found = to_request(path, body).messages[-1]
    assert (found.role, found.tool_call_id) == ("tool", "c")
    assert found.content.startswith("Seen: [")
    assert found.content.endswith(NOTE)
    as_user = json.loads(json.dumps(body).replace('"role": "tool"', '"role": "user"'))
    if path == "/v1/responses":
        as_user["input"][-1] |= {"type": "message", "role": "user"}
        as_user["input"][-1]["content"] = as_user["input"][-1]["output"]
    elif path == "/v1/messages":
        as_user["messages"][-1]["content"] = as_user["messages"][-1]["content"][0]["content"]
    refused = http.post(path, json=as_user)
    assert refused.status_code == 400
    assert "text only" in refused.text


SUMMARY = [{"type": "summary_text", "text": "I must look."}]


@pytest.mark.parametrize(
    ("path", "turn"),
    [
        ("/api/chat", [{"thinking": "I must look."}]),
        ("/api/chat", [{"reasoning": "I must look."}]),
        ("/api/chat", [{"reasoning_content": "I must look."}]),
        ("/v1/chat/completions", [{"reasoning": "I must look.", "content": None}]),
        ("/v1/chat/completions", [{"reasoning": None, "reasoning_content": "I must look."}]),
        ("/v1/responses", [{"type": "reasoning", "summary": SUMMARY}, FUNCTION_CALL]),
        (
            "/v1/responses",
            [
                {"type": "reasoning", "summary": [], "encrypted_content": "gptoss:I must look."},
                FUNCTION_CALL,
            ],
        ),
        (
            "/v1/responses",
            [
                {
                    "type": "reasoning",
                    "content": [{"type": "reasoning_text", "text": "I must look."}],
                },
                FUNCTION_CALL,
            ],
        ),
        (
            "/v1/messages",
            [{"content": [{"type": "thinking", "thinking": "I must look.", "signature": ""}, USE]}],
        ),
    ],
)
def test_reasoning_of_a_tool_loop_is_read_under_every_name(
    path: str, turn: list[dict[str, Any]]
) -> None:
    user = {"role": "user", "content": "Look."}
    if path == "/v1/responses":
        body: dict[str, Any] = {"input": [user, *turn]}
    else:
        apart = {} if path == "/v1/messages" else {"tool_calls": [CALL]}
        body = {"messages": [user, {"role": "assistant", **apart, **turn[0]}]}
    asked, *found = to_request(path, body | {"model": "nano", "max_tokens": 1}).messages
    assert (asked.role, {message.role for message in found}) == ("user", {"assistant"})
    assert "".join(message.reasoning for message in found) == "I must look."
    calls = [(call.name, call.id) for message in found for call in message.tool_calls]
    assert calls == [("look", "c")]
