"""Log-probabilities, penalties and logit_bias through the real SDKs, streamed and whole."""

import math
from collections.abc import Iterable
from typing import Any

import httpx
import ollama
import openai
import pytest

from gptoss_local.harmony import Vocabulary
from tests.server import sse
from tests.server.conftest import GREEDY
from tests.server.dialects import PERSON

TEXT = "東京 🦜 鱻 ça"  # of characters that are one token, three tokens, and a part of one
MESSAGES: Any = [{"role": "user", "content": f"Reply with exactly: {TEXT}"}]
NATIVE: dict[str, Any] = {"model": "nano", "messages": MESSAGES, "options": GREEDY}
ASK: dict[str, Any] = {"model": "nano", "messages": MESSAGES, "temperature": 0}
ASK_RESPONSES: dict[str, Any] = ASK | {"input": MESSAGES}
del ASK_RESPONSES["messages"]
INCLUDE: Any = ["message.output_text.logprobs"]
COUNT: Any = [{"role": "user", "content": "Count from 1 to 12."}]
COUNTED = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12"
Told = list[tuple[str, float]]


def check(entries: Iterable[dict[str, Any]], n_top: int) -> Told:
    """What holds of the list in every dialect but the oldest; returns tokens and values."""
    told, data = [], b""
    for entry in entries:
        data += bytes(entry["bytes"])
        top = entry.get("top_logprobs") or []
        assert len(top) == n_top
        for one in (entry, *top):
            assert one["logprob"] <= 0
            assert bytes(one["bytes"]).decode("utf-8", "backslashreplace") == one["token"]
        if top:
            values = [one["logprob"] for one in top]
            assert values == sorted(values, reverse=True)
            assert sum(map(math.exp, values)) <= 1 + 1e-6
            assert {key: entry[key] for key in top[0]} == top[0]  # greedy
        told.append((entry["token"], entry["logprob"]))
    assert data.decode() == TEXT
    assert "\\xa6" in dict(told)
    return told


def equal(one: Told, other: Told) -> bool:
    """The same tokens, and values up to the order of rows in a step."""
    values = pytest.approx([value for _, value in other], abs=0.01)
    return [t for t, _ in one] == [t for t, _ in other] and [v for _, v in one] == values


@pytest.mark.parametrize("n_top", [0, 20])
def test_native(http: httpx.Client, sdk: ollama.Client, n_top: int) -> None:
    settings: Any = {"logprobs": True, "top_logprobs": n_top}
    whole = http.post("/api/chat", json=NATIVE | settings | {"stream": False}).json()
    assert (whole["message"]["content"], bool(whole["message"]["thinking"])) == (TEXT, True)
    told = check(whole["logprobs"], n_top)
    frames = list(sdk.chat("nano", MESSAGES, options=GREEDY, stream=True, **settings))
    assert all(bool(frame.logprobs) == bool(frame.message.content) for frame in frames)
    streamed = [entry for frame in frames for entry in frame.logprobs or ()]
    assert equal([(e.token, e.logprob) for e in streamed], told)
    assert all(len(entry.top_logprobs or ()) == n_top for entry in streamed)


def test_native_generate(sdk: ollama.Client) -> None:
    settings: Any = {"logprobs": True, "top_logprobs": 2, "options": GREEDY}
    prompt = MESSAGES[0]["content"]
    whole = sdk.generate("nano", prompt, **settings)
    assert whole.response == TEXT
    frames = list(sdk.generate("nano", prompt, stream=True, **settings))
    streamed = [entry for frame in frames for entry in frame.logprobs or ()]
    told = [(entry.token, entry.logprob) for entry in whole.logprobs or ()]
    assert len(told) > 5
    assert equal([(e.token, e.logprob) for e in streamed], told)
    raw = sdk.generate("nano", "<|start|>assistant", raw=True, **settings)
    assert "".join(entry.token for entry in raw.logprobs or ()) == raw.response


def test_absent_unless_asked_for(http: httpx.Client, client: openai.OpenAI) -> None:
    whole = http.post("/api/chat", json=NATIVE | {"stream": False, "logprobs": False}).json()
    assert "logprobs" not in whole
    (choice,) = client.chat.completions.create(**ASK, logprobs=False).choices
    assert choice.logprobs is None


@pytest.mark.parametrize("n_top", [0, 20])
def test_chat_completions(client: openai.OpenAI, n_top: int) -> None:
    settings: Any = ASK | {"logprobs": True, "top_logprobs": n_top}
    (choice,) = client.chat.completions.create(**settings).choices
    assert choice.message.content == TEXT
    assert choice.logprobs is not None
    told = check((e.model_dump() for e in choice.logprobs.content or ()), n_top)
    streamed = []
    for chunk in client.chat.completions.create(**settings, stream=True):
        (part,) = chunk.choices
        assert (part.logprobs is not None) == bool(part.delta.content)
        streamed += part.logprobs.content or [] if part.logprobs else []
    assert equal(check((e.model_dump() for e in streamed), n_top), told)


def test_completions(client: openai.OpenAI) -> None:
    settings: Any = {"model": "nano", "prompt": MESSAGES[0]["content"], "temperature": 0}
    (choice,) = client.completions.create(**settings, logprobs=3).choices
    told = choice.logprobs
    assert told is not None
    assert told.tokens is not None
    assert told.text_offset is not None
    assert (choice.text, told.text_offset[0]) == (TEXT, 0)
    assert told.text_offset[-1] == len(TEXT) - len(told.tokens[-1])
    assert told.text_offset == sorted(told.text_offset)
    for token, value, top in zip(
        told.tokens, told.token_logprobs or (), told.top_logprobs or (), strict=True
    ):
        assert len(top) == 3
        assert (token, value) == max(top.items(), key=lambda item: item[1])
    parts = [
        chunk.choices[0] for chunk in client.completions.create(**settings, logprobs=0, stream=True)
    ]
    streamed = [p.logprobs for p in parts if p.logprobs]
    assert [t for p in streamed for t in p.tokens or ()] == told.tokens
    assert [n for p in streamed for n in p.text_offset or ()] == told.text_offset
    (silent,) = client.completions.create(**settings).choices
    assert silent.logprobs is None


def test_responses(client: openai.OpenAI, http: httpx.Client) -> None:
    settings: Any = ASK_RESPONSES | {"include": INCLUDE, "top_logprobs": 4}
    reply = client.responses.create(**settings)
    assert (reply.output_text, reply.top_logprobs) == (TEXT, 4)
    message: Any = reply.output[-1]
    told = check((e.model_dump() for e in message.content[0].logprobs), 4)
    deltas: list[Any] = []
    for event in client.responses.create(**settings, stream=True):
        if event.type == "response.output_text.delta":
            deltas += event.logprobs
        elif event.type == "response.output_text.done":
            assert [e.token for e in event.logprobs] == [e.token for e in deltas]
    assert equal([(e.token, e.logprob) for e in deltas], told)
    assert all(len(entry.top_logprobs) == 4 for entry in deltas)
    text = http.post("/v1/responses", json=settings | {"stream": True}).text
    final = sse.events(text)[-1][1]["response"]["output"][-1]["content"][0]
    assert equal(check(final["logprobs"], 4), told)
    plain: Any = client.responses.create(**ASK_RESPONSES).output[-1]
    assert plain.content[0].logprobs == []


def test_with_a_format_and_a_stop_string(client: openai.OpenAI, sdk: ollama.Client) -> None:
    """Every token of a bound answer, and none behind a stop string."""
    extract = "Extract name and age as JSON: Sarah Lee is 42 years old."
    asked: Any = ASK | {"messages": [{"role": "user", "content": extract}], "logprobs": True}
    form: Any = {"name": "person", "schema": PERSON}
    asked |= {"response_format": {"type": "json_schema", "json_schema": form}}
    (choice,) = client.chat.completions.create(**asked).choices
    assert choice.message.content == '{"name": "Sarah Lee", "age": 42}'
    assert choice.logprobs is not None
    tokens = [entry.token for entry in choice.logprobs.content or ()]
    assert "".join(tokens) == choice.message.content
    stopped = sdk.chat("nano", COUNT, options=GREEDY | {"stop": [", 7"]}, logprobs=True)
    assert stopped.message.content == "1, 2, 3, 4, 5, 6"
    assert "".join(e.token for e in stopped.logprobs or ()) == "1, 2, 3, 4, 5, 6"


def test_penalties(sdk: ollama.Client, client: openai.OpenAI) -> None:
    """A count repeats its commas; a strong penalty on repetition ends that.

    nano is sure of them, so it takes many.
    """
    count = [{"role": "user", "content": "Count from 1 to 60"}]
    counted = ", ".join(map(str, range(1, 61)))

    def ask(**options: float) -> str:
        return sdk.chat("nano", count, think=False, options=GREEDY | options).message.content or ""

    neutral = {"repeat_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}
    assert ask() == ask(**neutral) == ask(repeat_penalty=9, repeat_last_n=0) == counted
    assert ask(frequency_penalty=2) != counted
    repeated = ask(repeat_penalty=9, repeat_last_n=-1, num_predict=30)
    assert repeated.count(",") < counted.count(",")
    settings: Any = ASK | {"messages": count, "reasoning_effort": "none"}
    (choice,) = client.chat.completions.create(**settings, frequency_penalty=2).choices
    assert (choice.message.content or "")[:20] == counted[:20]
    assert choice.message.content != counted


def test_logit_bias(client: openai.OpenAI, vocabulary: Vocabulary) -> None:
    """A token that is banned is not drawn: the name is spelled with others."""
    (paris,) = vocabulary.encode(" Paris")
    question: Any = [{"role": "user", "content": "What is the capital of France?"}]
    settings: Any = {"model": "nano", "messages": question, "temperature": 0, "logprobs": True}
    settings |= {"reasoning_effort": "none"}

    def tokens(**fields: Any) -> list[str]:
        (choice,) = client.chat.completions.create(**settings, **fields).choices
        assert choice.logprobs is not None
        return [entry.token for entry in choice.logprobs.content or ()]

    assert " Paris" in tokens(logit_bias={str(paris): 0})
    assert " Paris" not in tokens(logit_bias={str(paris): -100})
    assert tokens(logit_bias={str(paris): 100}, max_tokens=3) == [" Paris"] * 3
