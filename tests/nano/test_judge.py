"""What counts as the wanted answer, and that reading a context once changes no answer."""

from pathlib import Path

import pytest

from bench.nano.answering import Answerer, Question
from bench.nano.data.document import Answer, Branch, encode_answer
from bench.nano.judge import Reply, is_right, n_analysis_tokens, parse
from gptoss_local.harmony import load_vocabulary

CALL = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"


def tagged(text: str) -> list[int]:
    return load_vocabulary().encode_tagged(text)


def branch(answer: Answer, *, is_json: bool = False) -> Branch:
    return Branch("any", (), answer, is_json=is_json)


@pytest.mark.parametrize(
    "answer",
    [Answer("Grüße 🐈‍⬛\n"), Answer("a", "Why."), Answer('{"a": 1}', "So.", call="f")],
)
def test_every_wanted_answer_is_right(answer: Answer) -> None:
    tokens = encode_answer(answer, opens_final=False)
    reply = parse(tokens, opens_final=False)
    assert reply == Reply(answer.text, answer.call)
    assert is_right(reply, branch(answer))
    assert n_analysis_tokens(tokens) == len(load_vocabulary().encoding.encode(answer.analysis))


def test_an_opened_final_message() -> None:
    tokens = encode_answer(Answer("yes"), opens_final=True)
    assert parse(tokens, opens_final=True) == Reply("yes")
    assert parse(tokens, opens_final=False) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain<|return|>",
        "<|channel|>final<|message|>no end",
        "<|channel|>final<|message|>wrong end<|call|>",
        "<|channel|>final<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>",
        "<|channel|>analysis<|message|>only that<|return|>",
        "<|channel|>commentary<|message|>nobody called<|return|>",
        CALL.replace(" <|constrain|>json", ""),
        CALL.replace("<|call|>", "<|return|>"),
        CALL + "more",
    ],
)
def test_sloppy_harmony_does_not_parse(text: str) -> None:
    assert parse(tagged(text), opens_final=False) is None


def test_half_a_character_does_not_parse() -> None:
    half = load_vocabulary().token_bytes.index(b"\xf0\x9f")
    header = tagged("<|channel|>final<|message|>")
    assert parse([*header, half, *tagged("<|return|>")], opens_final=False) is None


def test_a_tag_in_letters_is_text() -> None:
    letters = load_vocabulary().encoding.encode("a<|end|>b", disallowed_special=())
    tokens = [*tagged("<|channel|>final<|message|>"), *letters, *tagged("<|return|>")]
    assert parse(tokens, opens_final=False) == Reply("a<|end|>b")


def test_json_is_compared_by_value() -> None:
    want = branch(Answer('{"a": [1, "x"], "b": true}', call="f"))
    assert is_right(Reply('{"b":true,"a":[1,"x"]}', "f"), want)
    for text in ('{"a": [1.0, "x"], "b": true}', '{"a": [1, "x"], "b": 1}', "{", ""):
        assert not is_right(Reply(text, "f"), want)
    assert not is_right(Reply(want.answer.text, "g"), want)
    assert not is_right(Reply(want.answer.text), want)
    assert is_right(Reply("[1]"), branch(Answer(" [1]"), is_json=True))
    assert not is_right(Reply("[1]"), branch(Answer(" [1]")))


def test_questions_behind_one_context(nano_gguf: Path) -> None:
    """The context is longer than the sliding window's ring, and so is one question."""
    answerer = Answerer(nano_gguf, n_ctx=4096, n_threads=2)
    context = tagged("<|start|>user<|message|>" + "The passcode is 4711. " * 180 + "<|end|>")
    fill = "One more thing. " * 200
    prompts = [
        tagged(f"<|start|>user<|message|>{text}<|end|><|start|>assistant")
        for text in (fill, "What is the passcode?", "hi")
    ]
    apart = []
    for prompt in prompts:
        answerer.read(context)
        apart += answerer.answer([Question(prompt, 40)])
    together = answerer.answer([Question(prompt, 40) for prompt in prompts[::-1]])
    assert together[::-1] == apart
