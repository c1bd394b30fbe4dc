"""Clients get a long call as it is written, and something to count while nothing is written."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import ollama
import openai
import pytest

from gptoss_local.harmony import Vocabulary
from tests.scripted_engine import Reply, Script, answer, calls, run_scripted_server
from tests.server.sse import events as sse_events

PROGRAM = "".join(f'def f{n}():\n    return "日本語 {n}"  # 🎉\n\n' for n in range(60))
ARGUMENTS = {"path": "a.py", "text": PROGRAM}
SCHEMA = {"type": "object", "properties": {name: {"type": "string"} for name in ARGUMENTS}}
OPENAI_TOOL: Any = {"type": "function", "function": {"name": "write", "parameters": SCHEMA}}
RESPONSES_TOOL: Any = {"type": "function", "name": "write", "parameters": SCHEMA, "strict": False}
ANTHROPIC_TOOL: Any = {"name": "write", "input_schema": SCHEMA}
SILENCE_S = 12.0
BEAT_S = 10.0
ALL = ("openai_chat", "responses", "anthropic", "ollama")


@pytest.fixture(scope="module")
def url(nano_home: Path, vocabulary: Vocabulary) -> Iterator[str]:
    script = Script(vocabulary)
    script.say("Write", calls("write", ARGUMENTS, "A file.", tok_s=2000, n_per_frame=8))
    cut = calls("write", ARGUMENTS, tok_s=2000, n_per_frame=8).text.replace("<|call|>", "")
    script.say("Too long", Reply(text=cut[:900], tok_s=2000))
    script.say("Stray", Reply(text=cut[:900] + "<|channel|>final<|message|>Done.<|return|>"))
    script.say("Late", answer("Here I am.", prefill_s=SILENCE_S))
    script.say("Slow", calls("write", ARGUMENTS, pauses={200: SILENCE_S}, tok_s=2000))
    with run_scripted_server(nano_home, script) as server:
        yield server.url


def body(dialect: str, question: str) -> tuple[str, dict[str, Any]]:
    """Path and body of a streamed request with the tool."""
    messages = [{"role": "user", "content": question}]
    shared = {"model": "nano", "stream": True}
    if dialect == "responses":
        return "/v1/responses", shared | {"input": question, "tools": [RESPONSES_TOOL]}
    if dialect == "anthropic":
        more = {"messages": messages, "tools": [ANTHROPIC_TOOL], "max_tokens": 9000}
        return "/v1/messages", shared | more
    path = "/v1/chat/completions" if dialect == "openai_chat" else "/api/chat"
    return path, shared | {"messages": messages, "tools": [OPENAI_TOOL]}


def stream(url: str, dialect: str, question: str) -> list[Any]:
    """The data of all events."""
    path, sent = body(dialect, question)
    text = httpx.post(url + path, json=sent, timeout=60).text
    if dialect == "ollama":
        return [json.loads(line) for line in text.splitlines()]
    return [data for _, data in sse_events(text) if data != "[DONE]"]


def test_openai_chat(url: str) -> None:
    ask: Any = {"model": "nano", "messages": [{"role": "user", "content": "Write"}]}
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        chunks = list(client.chat.completions.create(**ask, tools=[OPENAI_TOOL], stream=True))
        with client.chat.completions.stream(**ask, tools=[OPENAI_TOOL]) as stream:
            whole = stream.get_final_completion()
    made = [c.choices[0].delta.tool_calls[0] for c in chunks if c.choices[0].delta.tool_calls]
    assert len(made) > 20
    assert made[0].id
    assert made[0].function
    assert made[0].function.name == "write"
    assert {call.index for call in made} == {0}
    assert all(call.id is None for call in made[1:])
    text = "".join(call.function.arguments or "" for call in made if call.function)
    (call,) = whole.choices[0].message.tool_calls or []
    assert text == call.function.arguments
    assert json.loads(text) == ARGUMENTS
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_openai_responses(url: str) -> None:
    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client,
        client.responses.stream(model="nano", input="Write", tools=[RESPONSES_TOOL]) as stream,
    ):
        events = list(stream)
        final = stream.get_final_response()
    deltas = [e for e in events if e.type == "response.function_call_arguments.delta"]
    (done,) = [e for e in events if e.type == "response.function_call_arguments.done"]
    (call,) = [item for item in final.output if item.type == "function_call"]
    assert len(deltas) > 20
    assert "".join(e.delta for e in deltas) == done.arguments == call.arguments
    assert json.loads(call.arguments) == ARGUMENTS
    assert {(e.item_id, e.output_index) for e in [*deltas, done]} == {(call.id, 1)}
    assert [e.sequence_number for e in events] == list(range(len(events)))


def test_anthropic(url: str) -> None:
    ask: Any = {"model": "nano", "messages": [{"role": "user", "content": "Write"}]}
    with (
        anthropic.Anthropic(base_url=url, api_key="none") as client,
        client.messages.stream(**ask, tools=[ANTHROPIC_TOOL], max_tokens=9000) as stream,
    ):
        events = list(stream)
        final = stream.get_final_message()
    pieces = [
        e.delta.partial_json
        for e in events
        if e.type == "content_block_delta" and e.delta.type == "input_json_delta"
    ]
    assert len(pieces) > 20
    assert json.loads("".join(pieces)) == ARGUMENTS
    assert final.content[-1].type == "tool_use"
    assert final.content[-1].input == ARGUMENTS
    assert final.stop_reason == "tool_use"


def test_ollama_gives_whole_calls(url: str) -> None:
    """Its clients read each frame's arguments as an object."""
    frames = [f for f in stream(url, "ollama", "Write") if f["message"].get("tool_calls")]
    assert [f["message"]["tool_calls"][0]["function"]["arguments"] for f in frames] == [ARGUMENTS]


@pytest.mark.parametrize("dialect", ALL)
def test_a_whole_answer_has_the_call_once(url: str, dialect: str) -> None:
    path, sent = body(dialect, "Write")
    text = httpx.post(url + path, json=sent | {"stream": False}, timeout=60).text
    assert text.count('"write"') - text.count('"name":"write","parameters"') <= 1 + (
        dialect == "responses"  # which repeats the tools
    )
    assert text.count("f59()") == 1


def test_tokens_that_run_out_amid_a_call(url: str) -> None:
    """Each dialect has its word for it, and none gives the client a call to run."""
    chat = stream(url, "openai_chat", "Too long")
    assert chat[-1]["choices"][0]["finish_reason"] == "length"
    responses = stream(url, "responses", "Too long")
    assert responses[-1]["type"] == "response.incomplete"
    assert responses[-1]["response"]["output"][0]["status"] == "incomplete"
    assert responses[-2]["type"] == "response.output_item.done"
    messages = stream(url, "anthropic", "Too long")
    assert messages[-2]["delta"]["stop_reason"] == "max_tokens"
    assert messages[-3]["type"] == "content_block_stop"
    for text in (
        "".join(
            c["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] for c in chat[:-1]
        ),
        responses[-1]["response"]["output"][0]["arguments"],
        "".join(e["delta"].get("partial_json", "") for e in messages if "delta" in e),
    ):
        assert text.startswith('{"path":"a.py","text":"def f0')
        with pytest.raises(json.JSONDecodeError):
            json.loads(text)


@pytest.mark.parametrize("dialect", ALL)
def test_a_call_that_a_stray_tag_breaks_off(url: str, dialect: str) -> None:
    """Where a part of it is out, the answer fails, as no client should complete it."""
    last = stream(url, dialect, "Stray")[-1]
    if dialect == "ollama":
        assert last["done_reason"] == "stop"
        return
    told = json.dumps(last)
    assert "the model's call of 'functions.write' broke off" in told
    assert '"completed"' not in told


def test_a_broken_call_is_an_exception_of_the_sdks(url: str) -> None:
    messages: Any = [{"role": "user", "content": "Stray"}]
    ask: Any = {"model": "nano", "messages": messages, "stream": True}
    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
        pytest.raises(openai.APIError, match="broke off"),
    ):
        list(client.chat.completions.create(**ask, tools=[OPENAI_TOOL]))
    with (
        anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client2,
        pytest.raises(anthropic.APIError, match="broke off"),
        client2.messages.stream(
            model="nano", messages=messages, tools=[ANTHROPIC_TOOL], max_tokens=9000
        ) as events,
    ):
        list(events)


async def _gaps(url: str, dialect: str, question: str) -> list[float]:
    """Seconds between the events that a client's parser sees, and the comments of Responses."""
    path, sent = body(dialect, question)
    beats = ("data:", "{", ":") if dialect == "responses" else ("data:", "{")
    last_s, gaps = time.monotonic(), []
    async with (
        httpx.AsyncClient(base_url=url, timeout=60) as client,
        client.stream("POST", path, json=sent) as response,
    ):
        async for line in response.aiter_lines():
            if line.startswith(beats):
                gaps.append(time.monotonic() - last_s)
                last_s = time.monotonic()
    return gaps


@pytest.mark.timing
async def test_events_come_while_nothing_else_does(url: str) -> None:
    """A client that waits for the next event, as most do, waits for ten seconds at most."""
    asked = [(dialect, question) for dialect in ALL for question in ("Late", "Slow")]
    found = await asyncio.gather(*(_gaps(url, *one) for one in asked))
    for one, gaps in zip(asked, found, strict=True):
        assert sum(gaps) > SILENCE_S, one
        assert max(gaps) < SILENCE_S, one
        assert sum(gap > BEAT_S - 1 for gap in gaps) == 1, one  # a beat fills a silence only


async def test_sdks_take_the_events_that_say_nothing(url: str) -> None:
    async with (
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client,
        anthropic.AsyncAnthropic(base_url=url, api_key="none") as claude,
        ollama.AsyncClient(url) as ollama_client,
    ):
        messages: Any = [{"role": "user", "content": "Late"}]

        async def chat() -> str:
            async with client.chat.completions.stream(model="nano", messages=messages) as stream:
                return (await stream.get_final_completion()).choices[0].message.content or ""

        async def responses() -> str:
            async with client.responses.stream(model="nano", input="Late") as stream:
                return (await stream.get_final_response()).output_text

        async def completions() -> str:
            made = await client.completions.create(model="nano", prompt="Late", stream=True)
            return "".join([c.choices[0].text async for c in made])

        async def claude_messages() -> str:
            async with claude.messages.stream(
                model="nano", messages=messages, max_tokens=99
            ) as stream:
                return await stream.get_final_text()

        async def ollama_chat() -> str:
            made = await ollama_client.chat("nano", messages, stream=True)
            return "".join([frame.message.content or "" async for frame in made])

        async def ollama_generate() -> str:
            made = await ollama_client.generate("nano", "Late", stream=True)
            return "".join([frame.response async for frame in made])

        asked = chat, responses, completions, claude_messages, ollama_chat, ollama_generate
        found = await asyncio.gather(*(ask() for ask in asked))
    assert found == ["Here I am."] * len(asked)
