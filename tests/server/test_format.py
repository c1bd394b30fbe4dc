"""`format`: JSON of a schema, whatever is asked and however the model would rather answer."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import ollama
import pytest

from tests.conftest import RunningServer
from tests.json_schema import satisfies
from tests.server.conftest import GREEDY
from tests.server.test_sdk import WEATHER

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
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


def test_what_the_model_does_anyway_stays_as_it_is(sdk: ollama.Client) -> None:
    free = sdk.chat("nano", ask(EXTRACT), options=GREEDY)
    bound = sdk.chat("nano", ask(EXTRACT), options=GREEDY, format=PERSON)
    assert json.loads(bound.message.content or "") == {"name": "Bob Smith", "age": 42}
    assert bound.message == free.message
    assert (bound.eval_count, bound.done_reason) == (free.eval_count, "stop")


@pytest.mark.parametrize("think", [None, False, True, "low", "high"])
@pytest.mark.parametrize("schema", [PERSON, ORDER], ids=["person", "order"])
def test_what_it_would_not_do_is_enforced(
    sdk: ollama.Client, think: Any, schema: dict[str, Any]
) -> None:
    """Streamed and not, in chat and generate, with reasoning and without."""
    asked: dict[str, Any] = {"options": GREEDY, "format": schema, "think": think}
    chat = sdk.chat("nano", ask("hello"), **asked)
    assert satisfies(json.loads(chat.message.content or ""), schema)
    assert think is not False or not chat.message.thinking
    frames = list(sdk.chat("nano", ask("hello"), stream=True, **asked))
    assert satisfies(json.loads("".join(f.message.content or "" for f in frames)), schema)
    generate = sdk.generate("nano", "hello", **asked)
    assert satisfies(json.loads(generate.response), schema)


def test_any_json(sdk: ollama.Client) -> None:
    for text in ("hello", EXTRACT, "What is 17 + 25?"):
        for seed in range(4):
            options = {"seed": seed, "temperature": 1, "num_predict": 300}
            reply = sdk.chat("nano", ask(text), format="json", options=options)
            if reply.done_reason == "stop":
                json.loads(reply.message.content or "")


def test_raw_prompts_are_bound_from_their_first_token(sdk: ollama.Client) -> None:
    reply = sdk.generate("nano", "The order:", raw=True, format=ORDER, options={"seed": 1})
    assert satisfies(json.loads(reply.response), ORDER)


def test_a_limit_leaves_it_incomplete(sdk: ollama.Client) -> None:
    reply = sdk.chat(
        "nano", ask("hello"), format=ORDER, think=False, options=GREEDY | {"num_predict": 5}
    )
    assert (reply.done_reason, reply.eval_count) == ("length", 5)


def test_tools_may_be_called_instead(sdk: ollama.Client) -> None:
    text = "What is the weather in Paris?"
    free = sdk.chat("nano", ask(text), tools=[WEATHER], options=GREEDY)
    assert free.message.tool_calls
    bound = sdk.chat("nano", ask(text), tools=[WEATHER], options=GREEDY, format=PERSON)
    assert bound.message.tool_calls == free.message.tool_calls
    answer = sdk.chat("nano", ask("hello"), tools=[WEATHER], options=GREEDY, format=PERSON)
    assert satisfies(json.loads(answer.message.content or ""), PERSON)


def test_eight_at_once(server: RunningServer) -> None:
    """Most of them bound, each to its own format; the free ones get what they get alone."""
    forms: list[dict[str, Any] | str] = ["", PERSON, "json", ORDER]

    def request(i: int) -> str:
        body = {
            "model": "nano",
            "prompt": ("hello", EXTRACT)[i // 4],
            "format": forms[i % 4],
            "stream": False,
            "options": GREEDY | {"num_predict": 120},
        }
        reply = httpx.post(f"{server.url}/api/generate", json=body, timeout=120, trust_env=False)
        return str(reply.json()["response"])

    alone = [request(i) for i in range(8)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(request, range(8)))
    assert together[::4] == alone[::4]
    for i, text in enumerate(together):
        form = forms[i % 4]
        assert form == "" or satisfies(json.loads(text), {} if form == "json" else dict(form))


ODD = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
NULLABLE = {"type": "object", "properties": {"a": {"type": "string", "nullable": True}}}


@pytest.mark.parametrize(
    ("schema", "problem"),
    [(ODD, "#/properties/a: 'uniqueItems'"), (NULLABLE, "#/properties/a: 'nullable'")],
    ids=["uniqueItems", "nullable"],
)
def test_what_cannot_be_enforced_is_refused_in_every_dialect(
    server: RunningServer, schema: dict[str, Any], problem: str
) -> None:
    named = {"type": "json_schema", "name": "x", "schema": schema}
    function = {"name": "f", "parameters": schema, "strict": True}
    hello: dict[str, Any] = {"model": "nano", "messages": ask("hello")}
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("/api/chat", hello | {"format": schema}),
        ("/api/generate", {"model": "nano", "prompt": "hello", "format": schema}),
        ("/v1/chat/completions",
         hello | {"response_format": {"type": "json_schema", "json_schema": named}}),
        ("/v1/chat/completions", hello | {"tools": [{"type": "function", "function": function}]}),
        ("/v1/responses", {"model": "nano", "input": "hello", "text": {"format": named}}),
        ("/v1/messages",
         hello | {"max_tokens": 9, "output_config": {"format": named}}),
    ]  # fmt: skip
    for path, body in bodies:
        for stream in (False, True):
            reply = httpx.post(
                f"{server.url}{path}", json=body | {"stream": stream}, trust_env=False
            )
            assert reply.status_code == 400, (path, reply.text)
            assert problem in reply.text, path


def test_annotations_are_no_constraints(sdk: ollama.Client) -> None:
    notes = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "P", "x-order": 1}
    properties = {
        key: value | {"description": key, "examples": [1], "deprecated": False}
        for key, value in PERSON["properties"].items()
    }
    schema = PERSON | notes | {"properties": properties}
    reply = sdk.chat("nano", ask(EXTRACT), options=GREEDY, format=schema)
    assert json.loads(reply.message.content or "") == {"name": "Bob Smith", "age": 42}


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
