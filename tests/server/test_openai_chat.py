"""The real `openai` SDK against `/v1/chat/completions`, `/v1/completions` and `/v1/models`."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from pydantic import BaseModel

from tests.conftest import RunningServer
from tests.server import sse
from tests.server.test_sdk import WEATHER

ASK: dict[str, Any] = {
    "model": "nano",
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "temperature": 0,
}
ANSWER = "The capital of France is Paris."
THOUGHT = "The user asks for the capital of France. It is Paris."
TOKYO: dict[str, Any] = ASK | {
    "messages": [{"role": "user", "content": "What is the weather in Tokyo?"}],
    "tools": [WEATHER],
}


class Person(BaseModel):
    name: str
    age: int


@pytest.fixture
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    with (
        openai.DefaultHttpxClient(trust_env=False, timeout=60) as http,
        openai.OpenAI(
            base_url=f"{server.url}/v1", api_key="ollama", http_client=http, max_retries=0
        ) as client,
    ):
        yield client


def test_chat(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(**ASK)
    (choice,) = reply.choices
    assert (choice.message.content, choice.finish_reason) == (ANSWER, "stop")
    extra = choice.message.model_extra or {}
    assert extra["reasoning"] == extra["reasoning_content"] == THOUGHT
    assert (reply.object, reply.model) == ("chat.completion", "nano")
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (74, 30)
    assert reply.usage.total_tokens == 104
    details = reply.usage.completion_tokens_details
    assert details is not None
    assert details.reasoning_tokens == 13


def test_stream_equals_whole(client: openai.OpenAI) -> None:
    options: Any = {"include_usage": True}
    chunks = list(client.chat.completions.create(**ASK, stream=True, stream_options=options))
    *body, finish, last = chunks
    assert body[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in body] == [None] * len(body)
    assert finish.choices[0].finish_reason == "stop"
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.total_tokens == 104
    assert len({(c.id, c.created, c.model) for c in chunks}) == 1
    deltas = [c.choices[0].delta for c in body]
    assert "".join(d.content or "" for d in deltas) == ANSWER
    for name in ("reasoning", "reasoning_content"):
        assert "".join((d.model_extra or {}).get(name, "") for d in deltas) == THOUGHT
    assert len(body) > 15


def test_stream_is_framed_as_sse(http: httpx.Client) -> None:
    reply = http.post("/v1/chat/completions", json=ASK | {"stream": True})
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.headers["cache-control"] == "no-cache"
    frames = sse.events(reply.text)
    assert {name for name, _ in frames} == {""}
    assert frames[-1] == ("", "[DONE]")
    assert all("usage" not in data for _, data in frames[:-1])


@pytest.mark.parametrize("stream", [False, True])
def test_tool_round_trip(client: openai.OpenAI, stream: bool) -> None:
    if stream:
        with client.chat.completions.stream(**TOKYO) as events:
            message: Any = events.get_final_completion().choices[0].message
    else:
        choice = client.chat.completions.create(**TOKYO).choices[0]
        assert choice.finish_reason == "tool_calls"
        message = choice.message
    (call,) = message.tool_calls
    assert call.type == "function"
    assert call.function.name == "get_current_weather"
    assert json.loads(call.function.arguments) == {"location": "Tokyo"}
    result = {
        "role": "tool",
        "tool_call_id": call.id,
        "content": '{"temperature": 21, "description": "sunny"}',
    }
    assistant = message.model_dump(exclude_none=True)
    messages = [*TOKYO["messages"], assistant, result]
    again = client.chat.completions.create(**TOKYO | {"messages": messages})
    assert again.choices[0].message.content == "It is 21 degrees and sunny in Tokyo."


@pytest.mark.parametrize("choice", ["required", "get_current_weather"])
@pytest.mark.parametrize("effort", ["none", "medium"])
def test_forced_call(client: openai.OpenAI, choice: str, effort: str) -> None:
    other = {"type": "function", "function": {"name": "other", "parameters": None}}
    wanted = choice if choice == "required" else {"type": "function", "function": {"name": choice}}
    hello = TOKYO | {
        "messages": [{"role": "user", "content": "hello"}],
        "tools": [WEATHER] if choice == "required" else [other, WEATHER],
        "tool_choice": wanted,
        "reasoning_effort": effort,
        "max_tokens": 200,
    }
    reply = client.chat.completions.create(**hello).choices[0]
    assert reply.finish_reason == "tool_calls"
    (call,) = reply.message.tool_calls or ()
    assert call.type == "function"
    assert call.function.name == "get_current_weather"
    assert isinstance(json.loads(call.function.arguments)["location"], str)
    free = client.chat.completions.create(**hello | {"tool_choice": "auto"}).choices[0]
    assert not free.message.tool_calls


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_allowed_tools(http: httpx.Client, path: str) -> None:
    """A list of tools, of which one must be called, or only these may be."""
    function = WEATHER["function"]
    flat = [{"type": "function", **function}, {"type": "function", "name": "other"}]
    nested = [WEATHER, {"type": "function", "function": {"name": "other"}}]
    is_chat = path.endswith("completions")
    body = TOKYO | {"input": TOKYO["messages"], "tools": nested if is_chat else flat}

    def ask(mode: str, *names: str) -> httpx.Response:
        listed: list[dict[str, Any]] = [{"type": "function", "name": name} for name in names]
        if is_chat:
            listed = [{"type": "function", "function": {"name": name}} for name in names]
        spec = {"mode": mode, "tools": listed}
        choice = {"type": "allowed_tools"} | ({"allowed_tools": spec} if is_chat else spec)
        return http.post(path, json=body | {"tool_choice": choice})

    assert '"name":"get_current_weather"' in ask("auto", function["name"]).text
    forced = ask("required", "other").json()
    if is_chat:
        (call,) = forced["choices"][0]["message"]["tool_calls"]
        assert call["function"]["name"] == "other"
    else:
        assert forced["output"][-1]["name"] == "other"
    for refused in (ask("auto", "nope"), ask("sometimes", "other"), ask("required")):
        assert refused.status_code == 400
        assert "tool_choice" in refused.json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_custom_tool(client: openai.OpenAI, stream: bool) -> None:
    """A tool of free text; nano has to be told to call it."""
    custom = {"name": "get_current_weather", "description": "Gets the current weather."}
    ask = TOKYO | {
        "tools": [{"type": "custom", "custom": custom}],
        "tool_choice": {"type": "custom", "custom": {"name": custom["name"]}},
        "max_tokens": 300,
    }
    if stream:
        chunks = client.chat.completions.create(**ask, stream=True)
        (call,) = [c for chunk in chunks for c in chunk.choices[0].delta.tool_calls or ()]
        (found,) = [(call.model_extra or {})["custom"]]
    else:
        (whole,) = client.chat.completions.create(**ask).choices[0].message.tool_calls or ()
        assert whole.type == "custom"
        found = whole.custom.model_dump()
    assert found["name"] == custom["name"]
    assert isinstance(found["input"], str)


def test_tool_choice_none(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(**TOKYO, tool_choice="none", max_tokens=60)
    assert not reply.choices[0].message.tool_calls


def test_structured_output(client: openai.OpenAI) -> None:
    text = 'Extract name and age as JSON: "Bob Smith is 42 years old."'
    ask = ASK | {"messages": [{"role": "user", "content": text}]}
    parsed = client.chat.completions.parse(**ask, response_format=Person)
    assert parsed.choices[0].message.parsed == Person(name="Bob Smith", age=42)
    hello = ASK | {"messages": [{"role": "user", "content": "hello"}]}
    parsed = client.chat.completions.parse(**hello, response_format=Person, seed=1)
    assert isinstance(parsed.choices[0].message.parsed, Person)
    reply = client.chat.completions.create(**ask, response_format={"type": "json_object"})
    assert isinstance(json.loads(reply.choices[0].message.content or ""), dict)


def test_effort(client: openai.OpenAI) -> None:
    def reasoning(**fields: Any) -> str:
        message = client.chat.completions.create(**ASK | fields).choices[0].message
        assert "Paris" in (message.content or "")
        return str((message.model_extra or {}).get("reasoning", ""))

    assert reasoning(reasoning_effort="none") == ""
    assert len(reasoning(reasoning_effort="low")) < len(reasoning(reasoning_effort="high"))
    nested = reasoning(extra_body={"reasoning": {"effort": "none"}}, reasoning_effort="high")
    assert nested == ""


def test_limits_and_stop(client: openai.OpenAI) -> None:
    count = ASK | {
        "messages": [{"role": "user", "content": "Count from 1 to 30."}],
        "reasoning_effort": "none",
    }
    for name in ("max_tokens", "max_completion_tokens"):
        cut = client.chat.completions.create(**count | {name: 7})
        assert cut.usage is not None
        assert (cut.choices[0].finish_reason, cut.usage.completion_tokens) == ("length", 7)
    stopped = client.chat.completions.create(**count, stop=[", 7"]).choices[0]
    assert (stopped.message.content, stopped.finish_reason) == ("1, 2, 3, 4, 5, 6", "stop")
    hot = count | {"temperature": 1.5, "seed": 5, "max_tokens": 12}
    texts = [client.chat.completions.create(**hot).choices[0].message.content for _ in range(2)]
    assert texts[0] == texts[1]


def test_completions(client: openai.OpenAI) -> None:
    ask: dict[str, Any] = {"model": "nano", "prompt": "What is 17 + 25?", "temperature": 0}
    whole = client.completions.create(**ask)
    assert (whole.choices[0].text, whole.choices[0].finish_reason) == ("17 + 25 = 42", "stop")
    assert whole.object == "text_completion"
    options: Any = {"include_usage": True}
    *chunks, last = client.completions.create(**ask, stream=True, stream_options=options)
    assert "".join(c.choices[0].text for c in chunks) == whole.choices[0].text
    assert last.usage is not None
    assert whole.usage is not None
    assert last.usage.total_tokens == whole.usage.total_tokens


def test_models(client: openai.OpenAI) -> None:
    (listed,) = [m for m in client.models.list() if m.id == "nano"]
    assert (listed.object, listed.owned_by) == ("model", "library")
    assert client.models.retrieve("gpt-oss-nano") == listed
    with pytest.raises(openai.NotFoundError, match="model 'no/such:one' not found"):
        client.models.retrieve("no/such:one")
