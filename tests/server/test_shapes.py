"""What typed clients require of every answer, and fields that are never ignored in silence."""

import json
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
ASK: Any = [{"role": "user", "content": "Look"}]


@pytest.fixture(scope="module")
def url(nano_home: Path, vocabulary: Vocabulary) -> Iterator[str]:
    script = Script(vocabulary)
    script.say("Look", calls("look", {"city": "Oslo"}, "A city."), answer("Snow."))
    script.otherwise(answer("Fine: über.", "Thinking."))
    with run_scripted_server(nano_home, script) as server:
        yield server.url


@pytest.fixture
def strict(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{url}/v1", api_key="k", _strict_response_validation=True
    ) as client:
        yield client


@pytest.fixture
def claude(url: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(
        base_url=url, api_key="k", _strict_response_validation=True, max_retries=0
    ) as client:
        yield client


@pytest.mark.parametrize("question", ["Look", "How are you?"])
def test_responses_hold_what_the_sdk_requires(strict: openai.OpenAI, question: str) -> None:
    form: Any = {"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}}}
    for asked in ({"tools": [FUNCTION]}, {"text": form}, {}):
        answered = strict.responses.create(model="nano", input=question, **asked)
        with strict.responses.stream(model="nano", input=question, **asked) as stream:
            final = stream.get_final_response()
        assert [item.type for item in final.output] == [item.type for item in answered.output]
        assert answered.usage is not None
        assert answered.usage.input_tokens_details.cache_write_tokens == 0
        assert strict.responses.retrieve(answered.id).id == answered.id


def test_responses_echo_tools_and_formats_whole(url: str) -> None:
    form = {"type": "json_schema", "name": "a", "schema": {"type": "object"}}
    asked = {"model": "nano", "input": "Hi", "tools": [FUNCTION], "text": {"format": form}}
    echoed = httpx.post(f"{url}/v1/responses", json=asked).json()
    assert echoed["tools"][0] == FUNCTION | {"strict": None, "description": None}
    assert echoed["text"]["format"] == form | {"description": None, "strict": None}


def test_raw_reasoning_is_in_the_finished_item(url: str) -> None:
    """In `content`, for clients of gpt-oss' guide, and as a summary, which the others show."""
    asked = {"model": "nano", "input": "How are you?"}
    thought = httpx.post(f"{url}/v1/responses", json=asked).json()["output"][0]
    assert thought["content"] == [{"type": "reasoning_text", "text": "Thinking."}]
    assert thought["summary"] == [{"type": "summary_text", "text": "Thinking."}]


def test_chat_and_completions_hold_what_the_sdk_requires(strict: openai.OpenAI) -> None:
    tool: Any = {"type": "function", "function": {"name": "look", "parameters": PARAMETERS}}
    for tools in ([tool], openai.omit):
        strict.chat.completions.create(model="nano", messages=ASK, tools=tools)
    strict.completions.create(model="nano", prompt="Hi")
    assert [model.id for model in strict.models.list()] == ["nano"]
    assert strict.models.retrieve("nano").owned_by == "library"


def test_messages_and_models_hold_what_anthropics_sdk_requires(claude: anthropic.Anthropic) -> None:
    tool: Any = {"name": "look", "input_schema": PARAMETERS}
    answered = claude.messages.create(model="nano", max_tokens=99, messages=ASK, tools=[tool])
    assert answered.stop_reason == "tool_use"
    page = claude.models.list()
    assert [(model.id, model.display_name) for model in page] == [("nano", "nano")]
    assert not page.has_more
    assert claude.models.retrieve("nano").created_at.year >= 2025
    with pytest.raises(anthropic.NotFoundError) as caught:
        claude.models.retrieve("nothing")
    assert caught.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]


def test_every_answer_has_a_request_id(strict: openai.OpenAI, claude: anthropic.Anthropic) -> None:
    chat = strict.chat.completions.create(model="nano", messages=ASK)
    said = claude.messages.create(model="nano", max_tokens=99, messages=ASK)
    assert chat._request_id
    assert said._request_id
    assert chat._request_id != said._request_id
    with pytest.raises(openai.NotFoundError) as caught:
        strict.models.retrieve("nothing")
    assert caught.value.request_id


def test_lengths_of_prompts(strict: openai.OpenAI, claude: anthropic.Anthropic) -> None:
    counted = strict.responses.input_tokens.count(model="nano", input="How are you?")
    answered = strict.responses.create(model="nano", input="How are you?")
    assert answered.usage is not None
    assert counted.input_tokens == answered.usage.input_tokens
    said: Any = [{"role": "user", "content": "How are you?"}]
    assert claude.messages.count_tokens(model="nano", messages=said).input_tokens > 10


@pytest.mark.parametrize(
    ("path", "field", "named"),
    [
        ("/v1/chat/completions", {"functions": [{"name": "look"}]}, "functions"),
        ("/v1/chat/completions", {"modalities": ["text", "audio"]}, "modalities"),
        ("/v1/chat/completions", {"web_search_options": {}}, "web_search_options"),
        ("/v1/chat/completions", {"n": 2}, "n must be 1"),
        ("/v1/chat/completions", {"tool_choice": "required"}, "tool_choice"),
        ("/v1/completions", {"best_of": 2}, "best_of"),
        ("/v1/completions", {"echo": True, "logprobs": 1}, "echo"),
        ("/v1/completions", {"suffix": "x"}, "insert"),
        ("/v1/responses", {"prompt": {"id": "pmpt_1"}}, "prompt"),
        ("/v1/responses", {"conversation": "conv_1"}, "conversation"),
        ("/v1/responses", {"background": True}, "background"),
        ("/v1/responses", {"tool_choice": "required"}, "tool_choice"),
        ("/v1/chat/completions", {"guided_json": {"type": "object"}}, "guided_json"),
        ("/v1/chat/completions", {"audio": {"voice": "ash"}}, "audio"),
        ("/v1/messages", {"n": 2}, "n is not supported"),
        ("/v1/messages", {"thread": {"type": "create"}}, "threads"),
        ("/v1/messages", {"container": "c"}, "container"),
        ("/v1/messages", {"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ("/v1/messages", {"tool_choice": {"type": "any"}}, "tool_choice"),
    ],
)
def test_what_must_hold_is_refused_by_name(
    url: str, path: str, field: dict[str, Any], named: str
) -> None:
    body = {"model": "nano", "max_tokens": 9, "messages": ASK, "input": "Hi", "prompt": "Hi"}
    fields = {
        "/v1/chat/completions": ("messages",),
        "/v1/completions": ("prompt",),
        "/v1/responses": ("input",),
        "/v1/messages": ("messages", "max_tokens"),
    }[path]
    asked = {"model": "nano"} | {name: body[name] for name in fields} | field
    refused = httpx.post(url + path, json=asked)
    assert refused.status_code == 400
    assert named in refused.json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_fields_that_are_not_read_are_named(
    strict: openai.OpenAI, claude: anthropic.Anthropic, url: str, stream: bool
) -> None:
    """A misspelt one, one of another API, one within another field; none that changes nothing."""

    def warned(made: Any) -> str:
        made.http_response.read()
        return str(made.headers.get("x-gptoss-warning", ""))

    silent: dict[str, Any] = {"store": False, "user": "me", "n": 1, "mirostat": 0}
    chat = strict.chat.completions.with_raw_response
    named = {"temprature": 0, "think": True, "max_\ntokens": 9, "temperature": 0.5} | silent
    named |= {"chat_template_kwargs": {"enable_thinking": False}, "verbosity": "low"}
    made = chat.create(model="nano", messages=ASK, stream=stream, extra_body=named)
    inner = "chat_template_kwargs.enable_thinking"
    assert warned(made) == f"ignored: {inner}, max_?tokens, temprature, think, verbosity"
    made = chat.create(model="nano", messages=ASK, stream=stream, extra_body=silent)
    assert warned(made) == ""
    said = strict.responses.with_raw_response.create(
        model="nano",
        input="Hi",
        text={"verbosity": "low"},
        stream=stream,
        extra_body={"reasoning": {"enabled": False}, "tools": [{"type": "web_search"}]},
    )
    expected = "ignored: reasoning.enabled, text.verbosity; not offered: web_search"
    assert warned(said) == expected
    asked: Any = {"context_management": {"edits": [{"type": "clear_tool_uses"}]}, "seed": 7}
    message = claude.messages.with_raw_response.create(
        model="nano", max_tokens=99, messages=ASK, stream=stream, extra_body=asked
    )
    assert warned(message) == "ignored: context_management, seed"
    options = {"mirostat": 2, "num_gpu": 99, "typical_p": 1.0, "temperature": 0}
    body = {"model": "nano", "messages": ASK, "options": options, "stream": stream}
    told = httpx.post(f"{url}/api/chat", json=body | {"raw": True})
    assert told.headers["x-gptoss-warning"] == "ignored: options.mirostat, raw"


def test_effort_may_come_as_an_argument_of_the_template(url: str) -> None:
    asked = {"model": "nano", "messages": ASK}
    wrong = {"chat_template_kwargs": {"reasoning_effort": "huge"}}
    assert httpx.post(f"{url}/v1/chat/completions", json=asked | wrong).status_code == 400
    right = {"chat_template_kwargs": {"reasoning_effort": "low"}}
    assert httpx.post(f"{url}/v1/chat/completions", json=asked | right).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_echo_puts_the_prompt_before_the_answer(url: str, stream: bool) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k") as client:
        made: Any = client.completions.create(
            model="nano", prompt="Well? ", echo=True, stream=stream
        )
        text = "".join(c.choices[0].text for c in made) if stream else made.choices[0].text
    assert text == "Well? Fine: über."


def test_latin_1_is_read_as_go_reads_it(url: str) -> None:
    """PowerShell 5.1 sends bodies so."""
    body = json.dumps({"model": "nano", "stream": False, "messages": [
        {"role": "user", "content": "Grüße"}]}, ensure_ascii=False)  # fmt: skip
    answered = httpx.post(f"{url}/api/chat", content=body.encode("latin-1"))
    assert answered.status_code == 200
    assert httpx.post(f"{url}/api/chat", content=b'{"model": "\xfc').status_code == 400


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        (f"/api/blobs/sha256:{'0' * 64}", "HEAD, POST"),
        ("/v1/responses/resp_1", "DELETE, GET, HEAD"),
        ("/v1/chat/completions", "POST"),
    ],
)
def test_allow_names_every_method(url: str, path: str, methods: str) -> None:
    refused = httpx.patch(url + path)
    assert refused.status_code == 405
    assert refused.headers["allow"] == methods


@pytest.mark.parametrize(
    ("base", "said"),
    [("", "add /v1 to the base URL"), ("/v1/v1", "take /v1 off the base URL")],
)
def test_a_wrong_base_url_is_explained_where_the_sdk_shows_it(
    url: str, base: str, said: str
) -> None:
    client = openai.OpenAI(base_url=url + base, api_key="k", max_retries=0)
    with client, pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="nano", messages=ASK)
    assert said in str(caught.value)


def test_wrong_base_urls_of_other_programs(url: str) -> None:
    client = anthropic.Anthropic(base_url=f"{url}/v1", api_key="k", max_retries=0)
    with client, pytest.raises(anthropic.NotFoundError) as caught:
        client.messages.create(model="nano", max_tokens=9, messages=ASK)
    assert "take /v1 off the base URL" in str(caught.value)
    doubled = httpx.post(f"{url}/api/api/chat", json={"model": "nano"})
    assert "take /api off the base URL" in doubled.json()["error"]
    assert httpx.get(f"{url}/nothing").text == "404 page not found"


def test_the_document_says_which_fields_are_required(url: str) -> None:
    schemas = httpx.get(f"{url}/openapi.json").json()["components"]["schemas"]
    required = {
        name: schema["required"] for name, schema in schemas.items() if "required" in schema
    }
    assert required["ChatCompletionBody"] == ["model", "messages"]
    for path, body in (
        ("/v1/chat/completions", {"model": "nano"}),
        ("/v1/messages", {"messages": ASK, "max_tokens": 9}),
        ("/v1/responses", {"input": "Hi"}),
        ("/api/chat", {"messages": ASK}),
    ):
        assert httpx.post(url + path, json=body).status_code == 400
