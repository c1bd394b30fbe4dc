"""Requests that each dialect refuses by name, before an answer and in its own shape."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import ollama
import openai
import pytest

from gptoss_local.harmony import Vocabulary
from tests.scripted_engine import Script, answer
from tests.server.asked import Asked, run_asked
from tests.server.dialects import NAMES, speak, user

PNG = "data:image/png;base64,aGk="
WEATHER = {"type": "function", "function": {"name": "look"}}
SCHEMA = {"name": "x", "schema": {"not": {}}}
IMPOSSIBLE = {"type": "json_schema", "json_schema": SCHEMA}
ODD = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
STRICT = {"type": "function", "function": {"name": "f", "parameters": ODD, "strict": True}}
STRICT_OUTSIDE = {"type": "function", "function": {"name": "f", "parameters": ODD}, "strict": True}
CUSTOM = {"type": "custom", "name": "c"}
ONE_CALL = {"type": "auto", "disable_parallel_tool_use": "once"}
LONG = "word " * 140_000


@pytest.fixture(scope="module")
def asked(nano_home: Path, vocabulary: Vocabulary) -> Iterator[Asked]:
    script = Script(vocabulary)
    script.otherwise(answer("Well."))
    with run_asked(nano_home, vocabulary, script) as running:
        yield running


def of_user(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    return [user(list(parts))]


REFUSED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "/v1/chat/completions": [
        ({"model": ""}, "model is required"),
        ({"messages": []}, "[] is too short - 'messages'"),
        ({"messages": "hello"}, "messages"),
        ({"messages": of_user({"type": "image_url", "image_url": {"url": PNG}})}, "text only"),
        ({"n": 2}, "n is not supported here: send the request again"),
        ({"top_logprobs": 2}, "only allowed when 'logprobs' is enabled"),
        ({"logprobs": True, "top_logprobs": 21}, "Expected a value <= 20, but got 21 instead"),
        ({"logprobs": True, "top_logprobs": -1}, "Expected a value >= 0, but got -1 instead"),
        ({"temperature": "nan"}, "temperature"),
        ({"frequency_penalty": 2.1}, "frequency_penalty"),
        ({"presence_penalty": -2.1}, "presence_penalty"),
        ({"logit_bias": {"5": 100.5}}, "logit_bias"),
        ({"logit_bias": {"201088": 1}}, "logit_bias: 201088 is not one of the"),
        ({"logit_bias": {"5": 1, "foo": 1}}, "logit_bias: 'foo' is no token id"),
        ({"logit_bias": {"-1": 0}}, "logit_bias: '-1' is no token id"),
        ({"logit_bias": {str(i): 1 for i in range(301)}}, "logit_bias"),
        ({"reasoning_effort": "huge"}, 'invalid reasoning value: "huge"'),
        ({"chat_template_kwargs": {"reasoning_effort": "huge"}}, "huge"),
        ({"response_format": {"type": "yaml"}}, "yaml"),
        ({"response_format": {"type": "json_schema"}}, "must be an object"),
        ({"response_format": IMPOSSIBLE}, "no finite value satisfies it"),
        ({"tools": [STRICT]}, "'uniqueItems' in properties.a"),
        ({"tools": [STRICT_OUTSIDE]}, "'uniqueItems' in properties.a"),
        ({"tools": [CUSTOM | {"custom": {"name": "c", "format": {"type": "x"}}}]}, "tools[0]"),
        ({"tools": [WEATHER], "tool_choice": {"function": {"name": "f"}}}, "not in tools"),
        ({"tools": [WEATHER], "tool_choice": "sometimes"}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"functions": [{"name": "look"}]}, "functions"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"guided_choice": ["a"]}, "guided_choice"),
        ({"structured_outputs": {"regex": "a"}}, "send a JSON schema as response_format"),
        ({"audio": {"voice": "ash"}}, "audio"),
        ({"response_format": {"type": "json_object", "json_schema": {}}}, "must be an object"),
        ({"response_format": {"type": "json_schema", "schema": ODD}}, "'uniqueItems'"),
        ({"response_format": {"type": "json_object"}, "format": ODD}, "ask for different formats"),
        ({"response_format": IMPOSSIBLE, "format": ["json"]}, "send it as response_format"),
        ({"text": {"verbosity": "low"}}, "text is not supported"),
        ({"system": "x"}, "send it as a message of the role system"),
        ({"instructions": "x"}, "send it as a message of the role system"),
        ({"messages": None, "input": "x"}, "send it as messages"),
        ({"options": {"temperature": 0}}, "options.temperature is not supported here: send it as"),
        ({"max_output_tokens": 9}, "send it as max_completion_tokens"),
        ({"stop_sequences": ["x"]}, "send it as stop"),
        ({"thinking": {"type": "disabled"}}, "send it as reasoning_effort"),
        ({"output_config": {"effort": "low"}}, "send it as reasoning_effort"),
        ({"think": "huge"}, "huge"),
        ({"tfs_z": 0.5}, "tfs_z is not supported here"),
        ({"verbosity": "low"}, "verbosity"),
        ({"previous_response_id": "resp_1"}, "send the whole conversation"),
    ],
    "/v1/completions": [
        ({"best_of": 2}, "best_of"),
        ({"echo": True, "logprobs": 1}, "echo"),
        ({"suffix": "x"}, "fills no gaps"),
        ({"prompt": [5]}, "needs return_token_ids"),
        ({"return_token_ids": True}, "needs return_token_ids"),
        ({"prompt": [5, "x"], "return_token_ids": True}, "needs return_token_ids"),
        ({"prompt": [5], "return_token_ids": True, "stop": "x"}, "without stop"),
        ({"prompt": [5], "return_token_ids": True, "stop_token_ids": [6]}, "stop_token_ids"),
        ({"prompt": [201_088], "return_token_ids": True}, "prompt"),
        ({"logprobs": 21}, "Invalid 'logprobs': integer above maximum"),
        ({"system": "x"}, "system is not supported here"),
        ({"tools": [WEATHER]}, "tools"),
        ({"response_format": IMPOSSIBLE}, "no finite value satisfies it"),
    ],
    "/v1/responses": [
        ({"model": ""}, "model is required"),
        ({"input": ""}, "input is required"),
        ({"input": of_user({"type": "input_image"})}, "text only"),
        ({"input": [{"content": "hi"}]}, "neither a type nor a role"),
        ({"conversation": "conv_1"}, "send previous_response_id"),
        ({"background": True}, "background"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"truncation": "on"}, "truncation cannot be 'on'"),
        ({"reasoning": {"effort": "huge"}}, "invalid reasoning value"),
        ({"tools": [CUSTOM | {"format": {"type": "grammar", "syntax": "gbnf"}}]}, "lark or regex"),
        ({"text": {"format": {"type": "json_schema"}}}, "must be an object"),
        ({"text": {"format": {"type": "json_schema"} | SCHEMA}}, "no finite value satisfies it"),
        ({"tools": [WEATHER, {"type": "function", "name": 5}]}, "tools[1].name must be"),
        ({"system": "x"}, "send it as instructions"),
        ({"messages": [user("x")]}, "send it as input"),
        ({"instructions": "x", "system": "y"}, "send it as instructions"),
        ({"max_tokens": 9}, "send it as max_output_tokens"),
        ({"stop": "x"}, "stop is not supported here"),
        ({"reasoning_effort": "low"}, "send it as reasoning"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"guided_regex": "a"}, "send a JSON schema as text.format"),
        ({"top_logprobs": 3}, "only allowed when 'include' has"),
        (
            {"top_logprobs": 21, "include": ["message.output_text.logprobs"]},
            "Expected a value <= 20",
        ),
    ],
    "/v1/responses/compact": [({}, "compaction is not supported")],
    "/responses/compact": [({}, "compaction is not supported")],
    "/chat/completions": [({"n": 2}, "n is not supported here: send the request again")],
    "/messages": [({"model": ""}, "model is required")],
    "/tokenize": [({"content": [5]}, "content must be text")],
    "/detokenize": [({"tokens": [201088]}, "tokens")],
    "/apply-template": [({"messages": []}, "'messages'")],
    "/completion": [({"prompt": "a"}, "/completion is not served here")],
    "/infill": [({"input_prefix": "a"}, "fills no gaps")],
    "/props": [({}, "/props is not served here")],
    "/v1/messages": [
        ({"model": ""}, "model is required"),
        ({"messages": []}, "messages is required"),
        ({"messages": of_user({"type": "image", "source": {}})}, "text only"),
        ({"messages": of_user({"type": 5})}, "type"),
        ({"max_tokens": None}, "max_tokens is required"),
        ({"thinking": {"type": "deep"}}, "deep"),
        ({"thinking": {"display": "none"}}, "thinking.display cannot be 'none'"),
        ({"output_config": {"effort": "huge"}}, "huge"),
        ({"output_config": {"format": {"type": "json_schema"} | SCHEMA}}, "no finite value"),
        ({"output_format": {"type": "json_schema"} | SCHEMA}, "no finite value satisfies it"),
        ({"n": 2}, "n is not supported"),
        ({"instructions": "x"}, "send it as system"),
        ({"think": False}, "send it as thinking"),
        ({"seed": 7}, "seed is not supported"),
        ({"grammar": "x"}, "send a JSON schema as output_config.format"),
        ({"thread": {"type": "create"}}, "threads"),
        ({"container": "c"}, "container"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": ONE_CALL}, "tool_choice.disable_parallel_tool_use must be true or false"),
    ],
    "/api/chat": [
        ({"model": ""}, "model"),
        ({"model": 5}, "model"),
        ({"model": "../cache/nano.gguf"}, "not found"),
        ({"messages": [user("See") | {"images": ["aGk="]}]}, "text only"),
        ({"messages": [{"content": "x"}]}, "role"),
        ({"think": "ultra"}, 'invalid think value: "ultra"'),
        ({"think": 3}, "think must be a boolean or string"),
        ({"keep_alive": "five minutes"}, "invalid duration"),
        ({"options": {"think_budget": -2}}, "think_budget"),
        ({"options": {"think_budget": "some"}}, "think_budget"),
        ({"options": {"num_ctx": "many"}}, "num_ctx"),
        ({"options": {"repeat_penalty": 0}}, "repeat_penalty"),
        ({"options": {"repeat_last_n": -2}}, "repeat_last_n"),
        ({"options": {"presence_penalty": "nan"}}, "presence_penalty"),
        ({"options": {"frequency_penalty": 2.1}}, "frequency_penalty"),
        ({"format": {"not": {}}}, "no finite value satisfies it"),
        ({"format": "yaml"}, 'invalid format: "yaml"; expected "json" or a'),
        ({"format": {"type": "strin"}}, "strin"),
        ({"format": ["json"]}, "format"),
        ({"top_logprobs": 2}, "top_logprobs requires logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "must be between 0 and 20"),
        ({"system": "x"}, "send it as a message of the role system"),
        ({"seed": 9, "options": {"seed": 8}}, "send it as options.seed"),
        ({"max_tokens": 9, "options": {"num_predict": 8}}, "send it as options.num_predict"),
        ({"reasoning_effort": "low"}, "send it as think"),
        ({"raw": True}, "raw"),
        ({"options": {"mirostat": 2}}, "options.mirostat"),
        ({"response_format": IMPOSSIBLE}, "no finite value satisfies it"),
    ],
    "/api/generate": [
        ({"model": ""}, "model '' not found"),
        ({"model": "nope", "keep_alive": 0}, "model 'nope' not found"),
        ({"format": ODD}, "'uniqueItems' in properties.a"),
        ({"raw": True, "options": {"think_budget": 9}}, "think_budget"),
        ({"raw": True, "think": "high"}, "effort"),
        ({"raw": True, "system": "y"}, "raw"),
        ({"suffix": "y"}, "insert"),
        ({"template": "y"}, "template"),
        ({"instructions": "y"}, "send it as system"),
        ({"context": [201_088]}, "context"),
    ],
    "/api/create": [
        ({"from": None}, "neither 'from' or 'files'"),
        ({"model": ""}, "invalid model name"),
        ({"model": "../x"}, '"../x" is invalid'),
        ({"model": "CON"}, 'name "CON" is invalid'),  # for Windows
        ({"model": "nano"}, "part of gptoss"),
        ({"model": "20b", "system": "x"}, "catalogue"),
        ({"from": "nope"}, "model 'nope' not found"),
        ({"template": "{{"}, "harmony"),
        ({"adapters": {"a": "b"}}, "digest"),
        ({"quantize": "q4"}, "'quantize'"),
        ({"parameters": {"num_ctx": "many"}}, "num_ctx"),
        ({"messages": [{"role": "x"}]}, "unknown role"),
        ({"from": None, "files": {"a": "12"}}, "invalid digest"),
    ],
    "/api/copy": [
        ({"source": "nope"}, 'model "nope" not found'),
        ({"source": "/etc/passwd"}, "not found"),
        ({"destination": "a b"}, 'destination "a b"'),
        ({"destination": "a/aux:7b"}, "is invalid"),
    ],
    "/api/delete": [
        ({"model": "nope"}, "model 'nope' not found"),
        ({}, "cannot be replaced or deleted"),
    ],
    "/api/pull": [
        ({"model": ""}, "invalid model name"),
        ({"model": "llama3"}, "pull model manifest"),
    ],
    "/api/push": [({}, "publishes no models")],
    "/api/show": [
        ({"model": ""}, "model is required"),
        ({"model": "file:///etc/passwd"}, "not found"),
    ],
    "/api/embed": [({"input": "x"}, "not support embeddings")],
    "/api/embeddings": [({"model": "nope", "prompt": "x"}, "not support embeddings")],
    "/v1/embeddings": [({"input": "x"}, "not support embeddings")],
}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "Hi"},
    "/api/generate": {"prompt": "Hi"},
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {"messages": [user("Hi")], "max_tokens": 99},
    "/tokenize": {"content": "Hi"},
    "/detokenize": {"tokens": [1]},
    "/api/create": {"model": "x", "from": "nano"},
    "/api/copy": {"source": "nano", "destination": "x"},
}
STREAMED = [
    *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"),
    *("/api/chat", "/api/generate"),
]


def body_of(path: str) -> dict[str, Any]:
    return BODIES.get(path, {"messages": [user("Hi")]})


@pytest.mark.parametrize(
    ("path", "fields", "text"), [(path, *case) for path in REFUSED for case in REFUSED[path]]
)
def test_refused_by_name(asked: Asked, path: str, fields: dict[str, Any], text: str) -> None:
    for stream in (False, True) if path in STREAMED else (False,):
        body = {"model": "nano", "stream": stream} | body_of(path) | fields
        method = "DELETE" if path == "/api/delete" else "POST"
        reply = httpx.request(method, asked.url + path, json=body, trust_env=False)
        is_missing = path.startswith("/api/") and ("not found" in text or "manifest" in text)
        assert reply.status_code == (404 if is_missing else 400), reply.text
        told = reply.json()
        if path.startswith("/api/"):
            assert reply.headers["content-type"] == "application/json; charset=utf-8"
            assert text in told["error"]
            continue
        error = told["error"]
        assert text in error["message"]
        assert error["type"] == "invalid_request_error"
        if path.endswith("/messages"):
            assert told["type"] == "error"
            assert told["request_id"].startswith("req_")
        else:
            assert error.keys() == {"message", "type", "param", "code"}


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_model_is_the_exception_of_the_sdk(asked: Asked, name: str) -> None:
    unknown = (openai.NotFoundError, anthropic.NotFoundError, ollama.ResponseError)
    with (
        speak(asked.url) as dialects,
        pytest.raises(unknown, match="model 'nope' not found") as told,
    ):
        dialects[name].ask([user("Hi")], more={"model": "nope"})
    assert told.value.status_code == 404
    if name in ("chat", "responses"):
        assert told.value.code == "model_not_found"  # type: ignore[union-attr]


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_is_too_long_is_told_as_agents_read_it(asked: Asked, stream: bool) -> None:
    """Claude Code shortens the conversation on these words, by how much these numbers say."""
    told = {}
    for path in ("/v1/messages", "/v1/chat/completions"):
        body = body_of(path) | {"messages": [user(LONG)], "stream": stream}
        reply = asked.post(path, **body)
        assert reply.status_code == 400
        told[path] = reply.json()["error"]
    text = told["/v1/messages"]["message"]
    numbers = re.search(r"prompt is too long[^0-9]*(\d+)\s*tokens?\s*>\s*(\d+)", text)
    assert numbers is not None, text
    assert int(numbers[1]) > max(40_000, int(numbers[2]))
    assert told["/v1/chat/completions"]["code"] == "context_length_exceeded"
    assert "tokens > 131072 maximum" in told["/v1/chat/completions"]["message"]


def test_what_clients_send_besides_is_harmless(asked: Asked) -> None:
    """Roles, shapes of content, unknown tools and fields, as real programs send them."""
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": ""}}
    custom = {"id": "c2", "type": "custom", "custom": {"name": "patch", "input": "+x"}}
    called = {"content": None, "refusal": None, "reasoning_details": [{"type": "x"}]}
    body: dict[str, Any] = {
        "messages": [
            *of_user({"type": "text", "text": "List the files."}),
            {"role": "assistant", "reasoning": "Two.", "tool_calls": [call, custom]} | called,
            {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "ok"}]},
            {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
        ],
        "tools": [{"type": "custom", "custom": {"name": "patch"}}, {"type": "web_search"}],
        "store": False,
        "max_tokens": None,
        "logit_bias": {"5": 1},
        "metadata": {"a": None},
        "user": "me",
        "response_format": {"type": "text"},
    }
    assert asked.post("/v1/chat/completions", **body).status_code == 200
    assert asked.done()[1:] == [
        ("commentary", "functions.ls", "{}"),
        ("commentary", "functions.patch", '{"input":"+x"}'),
    ]


def test_a_wrong_base_url_is_explained_where_the_sdk_shows_it(asked: Asked) -> None:
    client = openai.OpenAI(base_url=f"{asked.url}/v1/v1", api_key="k", max_retries=0)
    with client, pytest.raises(openai.NotFoundError, match="take /v1 off the base URL"):
        client.chat.completions.create(model="nano", messages=[{"role": "user", "content": "Hi"}])
    claude = anthropic.Anthropic(base_url=f"{asked.url}/v1", api_key="k", max_retries=0)
    with claude, pytest.raises(anthropic.NotFoundError, match="take /v1 off the base URL"):
        claude.messages.create(model="nano", max_tokens=9, messages=[])
    doubled = httpx.post(f"{asked.url}/api/api/chat", json={"model": "nano"})
    assert "take /api off the base URL" in doubled.json()["error"]
    assert httpx.get(f"{asked.url}/nothing").text == "404 page not found"


def test_latin_1_is_read_as_go_reads_it(asked: Asked) -> None:
    """PowerShell 5.1 sends bodies so."""
    body = '{"model": "nano", "stream": false, "messages": [{"role": "user", "content": "Grüße"}]}'
    answered = httpx.post(f"{asked.url}/api/chat", content=body.encode("latin-1"))
    assert answered.status_code == 200
    assert asked.texts() == ["Gr\ufffd\ufffde"]
    assert httpx.post(f"{asked.url}/api/chat", content=b'{"model": "\xfc').status_code == 400


def test_the_document_says_which_fields_are_required(asked: Asked) -> None:
    schemas = httpx.get(f"{asked.url}/openapi.json").json()["components"]["schemas"]
    assert schemas["ChatCompletionBody"]["required"] == ["model", "messages"]
    missing = {"/v1/chat/completions": "messages", "/v1/messages": "model", "/api/chat": "model"}
    for path, name in missing.items():
        body = {"model": "nano"} | body_of(path)
        del body[name]
        assert httpx.post(asked.url + path, json=body).status_code == 400
