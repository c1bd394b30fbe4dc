"""Fields that typed clients require, and fields that are never ignored in silence."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from gptoss_local.harmony import Vocabulary
from tests.scripted_engine import Script, answer, calls, run_scripted_server

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION: Any = {"type": "function", "name": "look", "parameters": PARAMETERS}
N_CTX = 131072
ASK: Any = [{"role": "user", "content": "Look"}]


@pytest.fixture(scope="module")
def url(nano_home: Path, vocabulary: Vocabulary) -> Iterator[str]:
    script = Script(vocabulary)
    script.say("Look", calls("look", {"city": "Oslo"}, "A city."), answer("Snow."))
    script.otherwise(answer("Fine: über.", "Thinking."))
    with run_scripted_server(nano_home, script) as server:
        yield server.url


CHECKED: Any = {"api_key": "k", "_strict_response_validation": True, "max_retries": 0}


@pytest.fixture
def strict(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", **CHECKED) as client:
        yield client


@pytest.fixture
def claude(url: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=url, **CHECKED) as client:
        yield client


def test_responses_echo_tools_and_formats_whole(url: str) -> None:
    form = {"type": "json_schema", "name": "a", "schema": {"type": "object"}}
    asked = {"model": "nano", "input": "Hi", "tools": [FUNCTION], "text": {"format": form}}
    echoed = httpx.post(f"{url}/v1/responses", json=asked).json()
    assert echoed["tools"][0] == FUNCTION | {"strict": None, "description": None}
    whole = form | {"description": None, "strict": None}
    assert echoed["text"]["format"] == whole
    nested = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
    asked = {"model": "nano", "input": "Hi", "response_format": nested}
    assert httpx.post(f"{url}/v1/responses", json=asked).json()["text"]["format"] == whole


def test_models_and_ids_of_requests(strict: openai.OpenAI, claude: anthropic.Anthropic) -> None:
    (model,) = strict.models.list()
    length = model.model_extra or {}
    assert (model.id, length["max_model_len"], length["context_length"]) == ("nano", N_CTX, N_CTX)
    assert [model.display_name for model in claude.models.list()] == ["nano"]
    assert claude.models.retrieve("nano").created_at.year >= 2025
    with pytest.raises(anthropic.NotFoundError, match="not_found_error"):
        claude.models.retrieve("nothing")
    with pytest.raises(openai.NotFoundError) as caught:
        strict.models.retrieve("nothing")
    chat = strict.chat.completions.create(model="nano", messages=ASK)
    said = claude.messages.create(model="nano", max_tokens=99, messages=ASK)
    ids = {chat._request_id, said._request_id, caught.value.request_id}
    assert len(ids) == 3
    assert all(ids)


def test_a_base_url_without_v1_is_the_same_server(url: str) -> None:
    """As it is with llama-server, which some clients are written for."""
    with openai.OpenAI(base_url=url, **CHECKED) as client:
        chat: Any = {"model": "nano", "messages": [{"role": "user", "content": "Hi"}]}
        assert client.chat.completions.create(**chat).choices[0].message.content == "Fine: über."
        chunks = list(client.chat.completions.create(**chat, stream=True))
        assert chunks[-1].choices[0].finish_reason == "stop"
        assert client.completions.create(model="nano", prompt="Hi").choices[0].text
        made = client.responses.create(model="nano", input="Hi")
        assert client.responses.retrieve(made.id).output_text == made.output_text == "Fine: über."
        assert [model.id for model in client.models.list()] == ["nano"]
        with pytest.raises(openai.NotFoundError) as caught:
            client.chat.completions.create(model="x", messages=ASK)
        assert caught.value.code == "model_not_found"
        with pytest.raises(openai.NotFoundError, match="'openai/gpt-oss' not found"):
            client.models.retrieve("openai/gpt-oss")  # the SDK encodes the slash
        with pytest.raises(openai.BadRequestError, match="embeddings"):
            client.embeddings.create(model="nano", input="Hi")
    said = httpx.post(f"{url}/messages", json={"model": "nano", "max_tokens": 9, "messages": ASK})
    assert said.json()["type"] == "message"
    wrong = httpx.put(f"{url}/chat/completions", json={})
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, HEAD, POST")
    assert "405 method not allowed" in wrong.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "said"),
    [
        ("GET", "/v1/chat/completions", "Chat Completions are not stored"),
        ("DELETE", "/v1/models/nano", "models are not deleted here"),
        ("POST", "/v1/responses/compact", "compaction is not supported"),
        ("GET", "/slots", "/slots is not served here"),
    ],
)
def test_what_others_have_is_refused_by_name(url: str, method: str, path: str, said: str) -> None:
    reply = httpx.request(method, url + path)
    assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error")
    assert said in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("/v1/messages/count_tokens", {"messages": ASK, "max": 9}, "max"),
        ("/v1/responses/input_tokens", {"input": "Hi", "max": 9}, "max"),
        ("/apply-template", {"messages": ASK, "template_file": "x"}, "template_file"),
        ("/tokenize", {"content": "Hi", "add_bos": True}, "add_bos"),
        ("/api/show", {"system": "Hi", "options": {"num_ctx": 9}}, "options, system"),
        ("/api/create", {"from": "nano", "parser": "x", "stream": False}, "parser"),
        (
            "/api/create",
            {"parameters": {"num_gpu": 9, "top_k": 5}, "stream": False},
            "parameters.num_gpu",
        ),
        ("/api/copy", {"source": "nano", "destination": "a b", "move": True}, "model, move"),
        ("/api/pull", {"model": "", "insecure": True}, "insecure"),
        ("/api/embed", {"input": "Hi", "keep_alive": 5}, "keep_alive"),
    ],
)
def test_endpoints_without_answers_name_what_they_do_not_read(
    url: str, path: str, body: dict[str, Any], named: str
) -> None:
    """Also where they refuse the request."""
    reply = httpx.post(url + path, json={"model": "nano"} | body)
    assert reply.headers["x-gptoss-warning"] == f"ignored: {named}", reply.text


@pytest.mark.parametrize("stream", [False, True])
def test_fields_that_are_not_read_are_named(
    strict: openai.OpenAI, claude: anthropic.Anthropic, url: str, stream: bool
) -> None:
    """A misspelt one, one of another API, one within another field; none that changes nothing.

    `echo` is read: the prompt comes before the answer.
    """

    def warned(made: Any) -> str:
        made.http_response.read()
        return str(made.headers.get("x-gptoss-warning", ""))

    silent: dict[str, Any] = {"store": False, "user": "me", "n": 1, "mirostat": 0, "tfs_z": 1.0}
    chat = strict.chat.completions.with_raw_response
    named = {"temprature": 0, "max_\ntokens": 9, "temperature": 0.5} | silent
    named |= {"chat_template_kwargs": {"custom": 1, "thinking": True}}
    parts = [{"type": "text", "text": "Hello"}]
    named["messages"] = [{"role": "Assistant", "content": "Hi", "name": "bob"}]
    named["messages"] += [ASK[0] | {"id": "m1", "name": "Ada", "parts": parts}]
    made = chat.create(model="nano", messages=ASK, stream=stream, extra_body=named)
    fields = "chat_template_kwargs.custom, max_?tokens, messages[].name, messages[].parts, "
    fields += "temprature"
    assert warned(made) == f"ignored: {fields}"
    made = chat.create(model="nano", messages=ASK, stream=stream, extra_body=silent)
    assert warned(made) == ""
    misspelt = {"type": "function", "name": "f", "paramters": {"type": "object"}}
    said = strict.responses.with_raw_response.create(
        model="nano",
        input="Hi",
        stream=stream,
        extra_body={
            "reasoning": {"exclude": True, "context": "auto"},
            "tools": [{"type": "web_search"}, misspelt],
        },
    )
    expected = "ignored: reasoning.exclude, tools[].paramters; not offered: web_search"
    assert warned(said) == expected
    asked: Any = {"context_management": {"edits": [{"type": "clear_tool_uses"}]}}
    asked["tools"] = [{"name": "f", "input_schema": {}, "input_examples": [{"a": 1}]}]
    message = claude.messages.with_raw_response.create(
        model="nano", max_tokens=99, messages=ASK, stream=stream, extra_body=asked
    )
    assert warned(message) == "ignored: context_management, tools[].input_examples"
    options = {"mirostat_tau": 5, "num_gpu": 99, "typical_p": 1.0, "temperature": 0}
    body = {"model": "nano", "messages": ASK, "options": options, "stream": stream}
    told = httpx.post(f"{url}/api/chat", json=body | {"shift": True})
    assert told.headers["x-gptoss-warning"] == "ignored: options.mirostat_tau, shift"
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k") as client:
        text: Any = client.completions.create(
            model="nano", prompt="Well? ", echo=True, stream=stream
        )
        parts = text if stream else [text]
        assert "".join(each.choices[0].text for each in parts) == "Well? Fine: über."
