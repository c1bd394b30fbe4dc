"""The harmony parser on well-formed answers, on slips of real models, and cut anywhere."""

import random
from typing import Any

import pytest

from gptoss_local.chat import ContentDelta, ReasoningDelta, ToolCall, Vocabulary
from gptoss_local.chat.parser import HarmonyParser, RawParser

TAGS = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>")


def parse(vocabulary: Vocabulary, text: str, **kwargs: Any) -> tuple[str, str, list[ToolCall]]:
    """Reasoning, content and calls of a completion; tags in `text` are special tokens."""
    tokens = vocabulary.encoding.encode(text, allowed_special="all")
    return join(HarmonyParser(vocabulary, **kwargs), tokens)


def join(parser: HarmonyParser, tokens: list[int]) -> tuple[str, str, list[ToolCall]]:
    events = [event for token in tokens for event in parser.feed(token)] + parser.finish()
    return (
        "".join(e.text for e in events if isinstance(e, ReasoningDelta)),
        "".join(e.text for e in events if isinstance(e, ContentDelta)),
        [e for e in events if isinstance(e, ToolCall)],
    )


def test_reasoning_then_answer(vocabulary: Vocabulary) -> None:
    text = (
        "<|channel|>analysis<|message|>Easy.<|end|>"
        "<|start|>assistant<|channel|>final<|message|>Hi 👋🏽, ça va?<|return|>"
    )
    assert parse(vocabulary, text) == ("Easy.", "Hi 👋🏽, ça va?", [])


CALL = '{"a": 1}<|call|>'


@pytest.mark.parametrize(
    "header",
    [
        "<|channel|>commentary to=functions.f <|constrain|>json<|message|>",
        " to=functions.f<|channel|>commentary <|constrain|>json<|message|>",
        " to=functions.f<|channel|>commentary json<|message|>",
        "<|channel|>commentary to=functions.f code<|message|>",
        "<|channel|>analysis to=functions.f<|message|>",
        "<|channel|>commentary to=f<|message|>",
        "<|channel|>commentary<|channel|>commentary to=functions.f<|message|>",
    ],
)
def test_every_spelling_of_a_call(vocabulary: Vocabulary, header: str) -> None:
    reasoning, content, calls = parse(vocabulary, header + CALL)
    assert (reasoning, content) == ("", "")
    assert [(c.name, c.arguments) for c in calls] == [("f", {"a": 1})]
    assert calls[0].id.startswith("call_")
    assert len(calls[0].id) == 13


def test_preamble_and_two_calls(vocabulary: Vocabulary) -> None:
    text = (
        "<|channel|>commentary<|message|>I look it up.<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.f<|message|>{}<|end|>"
        '<|start|>assistant<|channel|>commentary to=functions.g<|message|>{"x":[1]}<|call|>'
    )
    _, content, calls = parse(vocabulary, text)
    assert content == "I look it up."
    assert [(c.index, c.name, c.arguments) for c in calls] == [(0, "f", {}), (1, "g", {"x": [1]})]


@pytest.mark.parametrize(
    "arguments", ["not json", "[1, 2]", '{"a": ', "12", '{"a":' * 4000, '{"a": "\\ud800"}']
)
def test_broken_arguments_become_content(vocabulary: Vocabulary, arguments: str) -> None:
    text = f"<|channel|>commentary to=functions.f<|message|>{arguments}<|call|>"
    assert parse(vocabulary, text) == ("", arguments, [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Plain words<|return|>", ("", "Plain words")),
        ("<|message|>no channel<|return|>", ("", "no channel")),
        (
            "<|channel|>final<|message|>x<|start|>assistant<|channel|>final<|message|>y",
            ("", "x\n\ny"),
        ),
        ("<|channel|>analysis<|message|>t<|channel|>final<|message|>a<|return|>", ("t", "a")),
        ("<|channel|>final<|message|>a<|message|>b<|return|>", ("", "ab")),
        ("<|start|>assistant<|channel|>final<|message|>a<|return|>", ("", "a")),
        ("<|channel|>bogus<|message|>a<|return|>", ("", "a")),
        ("<|end|><|end|><|start|>", ("", "")),
        (
            "<|channel|>final<|message|>a<|end|><|start|>functions.f to=assistant"
            "<|channel|>commentary<|message|>made up<|end|>",
            ("made up", "a"),
        ),
    ],
)
def test_slips_lose_no_text_and_show_no_tag(
    vocabulary: Vocabulary, text: str, expected: tuple[str, str]
) -> None:
    reasoning, content, calls = parse(vocabulary, text)
    assert (reasoning, content) == expected
    assert calls == []


def test_open_final_channel(vocabulary: Vocabulary) -> None:
    assert parse(vocabulary, "Hi<|return|>", opens_final=True) == ("", "Hi", [])


def test_characters_split_over_tokens(vocabulary: Vocabulary) -> None:
    text = "🜚𓀀é漢"
    tokens = [vocabulary.token_bytes.index(bytes([b])) for b in text.encode()]  # byte by byte
    parser = HarmonyParser(vocabulary, opens_final=True)
    pieces = [e.text for t in tokens for e in parser.feed(t) if isinstance(e, ContentDelta)]
    assert pieces == list(text)


def test_user_text_is_not_special(vocabulary: Vocabulary) -> None:
    tokens = vocabulary.encoding.encode("a<|end|>b", disallowed_special=())
    assert join(HarmonyParser(vocabulary, opens_final=True), tokens)[1] == "a<|end|>b"


def test_random_tokens_never_raise_or_leak(vocabulary: Vocabulary) -> None:
    r = random.Random(7)
    special = vocabulary.encoding.encode("".join(TAGS) + "<|return|>", allowed_special="all")
    words = vocabulary.encoding.encode('assistant analysis final commentary to=functions.f {"a":1}')
    for _ in range(3000):
        pool = special * 3 + words * 2 + [r.randrange(201_088) for _ in range(10)]
        tokens = r.choices(pool, k=r.randrange(1, 40))
        reasoning, content, calls = join(HarmonyParser(vocabulary), tokens)
        shown = reasoning + content + "".join(f"{c.name}{c.arguments}" for c in calls)
        assert not any(tag in shown for tag in TAGS), tokens


def test_raw_spells_the_tags(vocabulary: Vocabulary) -> None:
    text = "<|channel|>final<|message|>é<|end|>"
    parser = RawParser(vocabulary)
    tokens = vocabulary.encoding.encode(text + "<|return|>", allowed_special="all")
    events = [e for t in tokens for e in parser.feed(t)] + parser.finish()
    assert "".join(e.text for e in events if isinstance(e, ContentDelta)) == text
