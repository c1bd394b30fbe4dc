"""Answers of real models through every dialect: clients get each character of them."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import ollama
import openai
import pytest

from gptoss_local.harmony import Vocabulary
from tests.scripted_engine import Script, answer, calls, run_scripted_server
from tests.tui.documents import BLOCKS, at_random

TEXT = "\n\n".join(BLOCKS.values()) + at_random(random.Random(1), 8)
REASONING = "The user wants **everything**, 日本語 too 🎉."
ARGUMENTS = {"path": "a/ü.py", "text": 'def f():\n    return "</div>"  # 日本語 🎉\n'}
TOOL_PARAMETERS = {"type": "object", "properties": {name: {"type": "string"} for name in ARGUMENTS}}
EVERYTHING = [{"role": "user", "content": "Everything"}]


@pytest.fixture(scope="module")
def url(nano_home: Path, vocabulary: Vocabulary) -> Iterator[str]:
    script = Script(vocabulary)
    script.say("Everything", answer(TEXT, REASONING, tok_s=20_000, n_per_frame=4))
    script.say("Write", calls("write", ARGUMENTS, REASONING, tok_s=5000), answer("Written."))
    with run_scripted_server(nano_home, script) as server:
        yield server.url


def test_ollama(url: str) -> None:
    with ollama.Client(url) as client:
        frames = list(client.chat("nano", EVERYTHING, stream=True, think=True))
    assert "".join(frame.message.content or "" for frame in frames) == TEXT
    assert "".join(frame.message.thinking or "" for frame in frames) == REASONING


def test_openai_chat(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        chunks = list(
            client.chat.completions.create(
                model="nano", messages=[{"role": "user", "content": "Everything"}], stream=True
            )
        )
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(pieces) == TEXT


def test_openai_responses(url: str) -> None:
    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client,
        client.responses.stream(model="nano", input="Everything") as stream,
    ):
        events = list(stream)
        whole = stream.get_final_response().output_text
    pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(pieces) == whole == TEXT


def test_anthropic(url: str) -> None:
    with (
        anthropic.Anthropic(base_url=url, api_key="none") as client,
        client.messages.stream(
            model="nano",
            max_tokens=100_000,
            messages=[{"role": "user", "content": "Everything"}],
        ) as stream,
    ):
        assert "".join(stream.text_stream) == TEXT


def test_a_loop_of_tool_calls(url: str) -> None:
    function = {"name": "write", "description": "Writes.", "parameters": TOOL_PARAMETERS}
    tools = [{"type": "function", "function": function}]
    messages: list[Any] = [{"role": "user", "content": "Write"}]
    with ollama.Client(url) as client:
        reply = client.chat("nano", messages, tools=tools)
        [call] = reply.message.tool_calls or []
        assert call.function.name == "write"
        assert call.function.arguments == ARGUMENTS
        messages += [reply.message.model_dump(), {"role": "tool", "content": "done"}]
        assert client.chat("nano", messages, tools=tools).message.content == "Written."
