"""`format`: JSON of a schema, even if the question or the model leads elsewhere."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import ollama
import pytest

from tests.conftest import RunningServer
from tests.json_schema import satisfies
from tests.server.conftest import GREEDY
from tests.server.dialects import PERSON, WEATHER

ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "status": {"enum": ["open", "closed"]},
        "code": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"},
        "items": {
            "type": "array",
            "minItems": 1,
            "maxItems": 3,
            "items": {
                "type": "object",
                "properties": {"id": {"type": "integer", "minimum": 1, "maximum": 99}},
                "required": ["id"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["status", "code", "items"],
    "additionalProperties": False,
}
EXTRACT = 'Extract name and age as JSON: "Bob Smith is 42 years old."'


def ask(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@pytest.mark.parametrize("think", [None, False, "high"])
@pytest.mark.parametrize("schema", [PERSON, ORDER], ids=["person", "order"])
def test_what_it_would_not_do_is_enforced(
    sdk: ollama.Client, think: Any, schema: dict[str, Any]
) -> None:
    """In chat and generate, with reasoning and without."""
    asked: dict[str, Any] = {"options": GREEDY, "format": schema, "think": think}
    chat = sdk.chat("nano", ask("hello"), **asked)
    assert satisfies(json.loads(chat.message.content or ""), schema)
    assert think is not False or not chat.message.thinking
    generate = sdk.generate("nano", "hello", **asked)
    assert satisfies(json.loads(generate.response), schema)


def test_raw_prompts_are_bound_from_their_first_token(sdk: ollama.Client) -> None:
    reply = sdk.generate("nano", "The order:", raw=True, format=ORDER, options={"seed": 1})
    assert satisfies(json.loads(reply.response), ORDER)
    cut = sdk.generate("nano", "The order:", raw=True, format=ORDER, options={"num_predict": 5})
    assert (cut.done_reason, cut.eval_count) == ("length", 5)


def test_tools_may_be_called_instead(sdk: ollama.Client) -> None:
    """The model is told the format and the tools; its final answer has the format."""
    tools = [{"type": "function", "function": WEATHER}]
    asked: dict[str, Any] = {"tools": tools, "options": GREEDY}
    text = ask("What is the weather in Paris?")
    free = sdk.chat("nano", text, **asked)
    assert free.message.tool_calls
    for schema in ({"type": "object", "additionalProperties": True}, {"enum": ["yes", "no"]}):
        bound = sdk.chat("nano", text, format=schema, **asked)
        assert bound.message.tool_calls == free.message.tool_calls
        assert (bound.prompt_eval_count or 0) > (free.prompt_eval_count or 0)
        result = {"role": "tool", "content": '{"temperature": 21, "description": "sunny"}'}
        loop = [*text, bound.message.model_dump(exclude_none=True), result]
        last = sdk.chat("nano", loop, format=schema, **asked)
        assert satisfies(json.loads(last.message.content or ""), schema)


NAMED = {"name": "x", "schema": {"const": "42"}}
FLAT: dict[str, Any] = {"type": "json_schema"} | NAMED
SPELLINGS: list[dict[str, Any]] = [
    {"response_format": {"type": "json_schema", "json_schema": NAMED}},
    {"response_format": {"type": "json_object", "json_schema": NAMED}},
    {"response_format": {"json_schema": NAMED}},
    {"response_format": {"type": "json_object", "schema": {"const": "42"}}},
    {"text": {"format": FLAT}},
    {"text": {"response_format": FLAT}},
    {"format": {"const": "42"}},
    {"format": FLAT},
    {"output_config": {"format": FLAT}},
    {"output_format": FLAT},
    {"json_schema": {"const": "42"}},
    {"guided_json": {"const": "42"}},
    {"structured_outputs": {"json": {"const": "42"}}},
]
TURNS = {"/v1/responses": "input", "/v1/completions": "prompt", "/api/generate": "prompt"}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/api/chat", *TURNS])
def test_a_format_is_enforced_in_every_place_and_spelling(http: httpx.Client, path: str) -> None:
    turns: Any = EXTRACT if path in TURNS else ask(EXTRACT)
    body: dict[str, Any] = {"model": "nano", "stream": False, TURNS.get(path, "messages"): turns}
    body |= {"max_tokens": 999} if path == "/v1/messages" else {}
    for spelling in SPELLINGS:
        made = http.post(path, json=body | spelling)
        assert made.status_code == 200, made.text
        assert '"\\"42\\""' in made.text, spelling
        assert "x-gptoss-warning" not in made.headers


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_json_object_with_a_schema(http: httpx.Client, path: str) -> None:
    """llama.cpp, llama-cpp-python and Together take a schema there, too."""

    def post(schema: Any) -> httpx.Response:
        form = {"type": "json_object", "schema": schema}
        body = {"model": "nano", "temperature": 0, TURNS.get(path, "messages"): ask(EXTRACT)}
        return http.post(path, json=body | {"response_format": form, "text": {"format": form}})

    def text(reply: dict[str, Any]) -> str:
        if path == "/v1/chat/completions":
            return str(reply["choices"][0]["message"]["content"])
        return str(reply["output"][-1]["content"][0]["text"])

    assert json.loads(text(post({"const": "42"}).json())) == "42"
    assert satisfies(json.loads(text(post(PERSON).json())), PERSON)
    assert isinstance(json.loads(text(post(None).json())), dict)
    for bad, words in ((123, "must be an object"), ({"requird": ["a"]}, "'requird'")):
        refused = post(bad)
        assert refused.status_code == 400
        assert words in refused.json()["error"]["message"]


@pytest.mark.timing
def test_slow_schemas_keep_no_other_client_waiting(
    server: RunningServer, sdk: ollama.Client
) -> None:
    """Four of them take all threads that there are for it, until they are refused."""
    options = [{"properties": {"k": {"const": f"{i}"}}, "required": ["k"]} for i in range(300)]
    slow = {"type": "object", "oneOf": [*options, options[-1]]}

    def ask_slowly(_: int) -> None:
        body = {"model": "nano", "messages": ask("hello"), "format": slow, "stream": False}
        reply = httpx.post(f"{server.url}/api/chat", json=body, timeout=300, trust_env=False)
        assert "too complex" in reply.json()["error"]

    sdk.chat("nano", ask("hello"), options=GREEDY)
    with ThreadPoolExecutor(4) as pool:
        leaving = pool.map(ask_slowly, range(4))
        time.sleep(0.5)
        start_s = time.monotonic()
        for _ in range(3):
            sdk.list()
            sdk.chat("nano", ask("hello"), options=GREEDY | {"num_predict": 1})
        assert time.monotonic() - start_s < 6
        list(leaving)
    start_s = time.monotonic()
    bound = sdk.chat("nano", ask(EXTRACT), options=GREEDY, format=PERSON)
    assert satisfies(json.loads(bound.message.content or ""), PERSON)
    assert time.monotonic() - start_s < 6  # the threads are free again


def test_the_model_reads_the_schema(sdk: ollama.Client) -> None:
    """It finds values for keys that only the format names, and so does a next turn."""
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["city", "age"],
    }
    messages = ask("She lives in Oslo. I am 42 years old.")
    for _ in range(2):
        reply = sdk.chat("nano", messages, format=schema, options=GREEDY)
        assert json.loads(reply.message.content or "") == {"city": "Oslo", "age": 42}
        messages = [*messages, reply.message.model_dump(exclude_none=True), messages[0]]
