"""Log-probabilities, penalties and logit_bias through the real SDKs, streamed and whole."""

import json
import math
from collections.abc import Iterable
from typing import Any

import httpx
import ollama
import openai
import pytest

from gptoss_local.harmony import Vocabulary
from tests.server.conftest import GREEDY
from tests.server.dialects import PERSON, WEATHER, user

TEXT = "東京 🦜 鱻 ça"  # of characters that are one token, three tokens, and a part of one
MESSAGES: Any = [user(f"Reply with exactly: {TEXT}")]
NATIVE: dict[str, Any] = {"model": "nano", "messages": MESSAGES, "options": GREEDY}
ASK: dict[str, Any] = {"model": "nano", "messages": MESSAGES, "temperature": 0}
ASK_RESPONSES: dict[str, Any] = ASK | {"input": MESSAGES}
del ASK_RESPONSES["messages"]
INCLUDE: Any = ["message.output_text.logprobs"]
WHERE: Any = [user("What is the weather in Paris?")]
TOOLS: Any = [{"type": "function", "function": WEATHER}]
Told = list[tuple[str, float]]


def check(entries: Iterable[dict[str, Any]], n_top: int, text: str = TEXT) -> Told:
    """Check the list of every dialect but the oldest; returns tokens and values."""
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
    assert data.decode() == text
    assert "\\xa6" in dict(told)
    return told


def equal(one: Told, other: Told) -> bool:
    """The same tokens, and values up to the order of rows in a step."""
    values = pytest.approx([value for _, value in other], abs=0.01)
    return [t for t, _ in one] == [t for t, _ in other] and [v for _, v in one] == values


def test_ollamas_dialect(http: httpx.Client, sdk: ollama.Client) -> None:
    settings: Any = {"logprobs": True, "top_logprobs": 20}
    whole = http.post("/api/chat", json=NATIVE | settings | {"stream": False}).json()
    assert (whole["message"]["content"], bool(whole["message"]["thinking"])) == (TEXT, True)
    written = f"<|channel|>analysis<|message|>{whole['message']['thinking']}<|end|>"
    written += f"<|start|>assistant<|channel|>final<|message|>{TEXT}<|return|>"
    told = check(whole["logprobs"], 20, written)
    assert len(told) == whole["eval_count"]
    frames = list(sdk.chat("nano", MESSAGES, options=GREEDY, stream=True, **settings))
    assert all(frame.logprobs for frame in frames)
    streamed = [entry for frame in frames for entry in frame.logprobs or ()]
    assert equal([(e.token, e.logprob) for e in streamed], told)
    plain = http.post("/api/chat", json=NATIVE | {"stream": False, "logprobs": False}).json()
    assert "logprobs" not in plain
    asked: Any = {"options": GREEDY, "prompt": MESSAGES[0]["content"]} | settings
    generated = sdk.generate("nano", **asked)
    assert equal([(e.token, e.logprob) for e in generated.logprobs or ()], told)
    raw = sdk.generate("nano", **asked | {"prompt": "<|start|>assistant", "raw": True})
    assert "".join(entry.token for entry in raw.logprobs or ()) == f"{raw.response}<|return|>"


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("generate", {"prompt": "Why is the sky blue?", "options": GREEDY | {"num_predict": 10}}),
        ("generate", {"prompt": "Why is the sky blue?", "think": False}),
        ("generate", {"prompt": "Why is the sky blue?", "options": GREEDY | {"num_predict": 0}}),
        ("chat", {"messages": MESSAGES, "options": GREEDY | {"stop": ["🦜"]}}),
        ("chat", {"messages": MESSAGES, "options": GREEDY | {"think_budget": 3}}),
        ("chat", {"messages": WHERE, "tools": TOOLS}),
        ("chat", {"messages": WHERE, "tools": TOOLS, "think": False}),
        ("chat", {"messages": WHERE, "tools": TOOLS, "options": GREEDY | {"num_predict": 40}}),
        (
            "chat",
            {"messages": MESSAGES, "format": "json", "options": GREEDY | {"num_predict": 60}},
        ),
    ],
)
def test_ollamas_dialect_scores_every_token(
    http: httpx.Client, path: str, asked: dict[str, Any]
) -> None:
    """Also those of thinking, calls and tags, and those that no text shows."""
    body = {"model": "nano", "options": GREEDY, "logprobs": True} | asked
    for stream in (False, True):
        reply = http.post(f"/api/{path}", json=body | {"stream": stream})
        frames = list(map(json.loads, reply.text.splitlines()))
        tokens = [entry["token"] for frame in frames for entry in frame.get("logprobs", ())]
        assert len(tokens) == frames[-1].get("eval_count", 0)
        for frame in frames:
            said = frame.get("message") or {"content": frame.get("response")}
            if said.get("content") or said.get("thinking") or said.get("tool_calls"):
                assert frame["logprobs"]
            for call in said.get("tool_calls", ()):
                assert call["function"]["arguments"]["location"] in "".join(tokens)


@pytest.mark.parametrize("n_top", [0, 20])
def test_chat_completions(client: openai.OpenAI, n_top: int) -> None:
    settings: Any = ASK | {"logprobs": True, "top_logprobs": n_top}
    (choice,) = client.chat.completions.create(**settings).choices
    assert choice.message.content == TEXT
    assert choice.logprobs is not None
    told = check((e.model_dump() for e in choice.logprobs.content or ()), n_top)
    streamed: list[Any] = []
    for chunk in client.chat.completions.create(**settings, stream=True):
        (part,) = chunk.choices
        assert (part.logprobs is not None) == bool(part.delta.content)
        streamed += part.logprobs.content or [] if part.logprobs else []
    assert equal(check((e.model_dump() for e in streamed), n_top), told)
    (plain,) = client.chat.completions.create(**ASK, logprobs=False).choices
    assert plain.logprobs is None


def test_completions(client: openai.OpenAI) -> None:
    settings: Any = {"model": "nano", "prompt": MESSAGES[0]["content"], "temperature": 0}
    (choice,) = client.completions.create(**settings, logprobs=3).choices
    told: Any = choice.logprobs
    assert (choice.text, told.text_offset[0]) == (TEXT, 0)
    assert told.text_offset[-1] == len(TEXT) - len(told.tokens[-1])
    assert told.text_offset == sorted(told.text_offset)
    for token, value, top in zip(told.tokens, told.token_logprobs, told.top_logprobs, strict=True):
        assert len(top) == 3
        assert (token, value) == max(top.items(), key=lambda item: item[1])
    chunks: Any = client.completions.create(**settings, logprobs=0, stream=True)
    streamed = [c.choices[0].logprobs for c in chunks if c.choices[0].logprobs]
    assert [token for part in streamed for token in part.tokens] == told.tokens
    assert [n for part in streamed for n in part.text_offset] == told.text_offset
    (silent,) = client.completions.create(**settings).choices
    assert silent.logprobs is None


def test_responses(client: openai.OpenAI) -> None:
    settings: Any = ASK_RESPONSES | {"include": INCLUDE, "top_logprobs": 4}
    reply = client.responses.create(**settings)
    assert (reply.output_text, reply.top_logprobs) == (TEXT, 4)
    message: Any = reply.output[-1]
    told = check((e.model_dump() for e in message.content[0].logprobs), 4)
    events: list[Any] = list(client.responses.create(**settings, stream=True))
    deltas = [
        e for event in events if event.type == "response.output_text.delta" for e in event.logprobs
    ]
    (done,) = (event for event in events if event.type == "response.output_text.done")
    assert [e.token for e in done.logprobs] == [e.token for e in deltas]
    assert equal([(e.token, e.logprob) for e in deltas], told)
    assert all(len(entry.top_logprobs) == 4 for entry in deltas)
    final = events[-1].response.output[-1].content[0].logprobs
    assert equal(check((e.model_dump() for e in final), 4), told)
    plain: Any = client.responses.create(**ASK_RESPONSES).output[-1]
    assert plain.content[0].logprobs == []


def test_every_token_of_a_bound_answer_has_a_value(client: openai.OpenAI) -> None:
    extract = "Extract name and age as JSON: Sarah Lee is 42 years old."
    form: Any = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    asked: Any = ASK | {"messages": [user(extract)], "logprobs": True, "response_format": form}
    (choice,) = client.chat.completions.create(**asked).choices
    assert choice.message.content == '{"name": "Sarah Lee", "age": 42}'
    assert choice.logprobs is not None
    tokens = [entry.token for entry in choice.logprobs.content or ()]
    assert "".join(tokens) == choice.message.content


def test_penalties(sdk: ollama.Client, client: openai.OpenAI) -> None:
    """A count repeats its commas; a strong penalty on repetition ends that."""
    count = [user("Count from 1 to 40")]  # nano is sure of them, so it takes many
    counted = ", ".join(map(str, range(1, 41)))

    def ask(**options: float) -> str:
        return sdk.chat("nano", count, think=False, options=GREEDY | options).message.content or ""

    neutral = {"repeat_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}
    assert ask(**neutral) == ask(repeat_penalty=9, repeat_last_n=0) == counted
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
    settings: Any = ASK | {"messages": [user("What is the capital of France?")]}
    settings |= {"reasoning_effort": "none", "logprobs": True}

    def tokens(**fields: Any) -> list[str]:
        (choice,) = client.chat.completions.create(**settings, **fields).choices
        assert choice.logprobs is not None
        return [entry.token for entry in choice.logprobs.content or ()]

    assert " Paris" in tokens(logit_bias={str(paris): 0})
    assert " Paris" not in tokens(logit_bias={str(paris): -100})
    assert tokens(logit_bias={str(paris): 100}, max_tokens=3) == [" Paris"] * 3
