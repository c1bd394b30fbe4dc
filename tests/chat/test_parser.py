"""The harmony parser on well-formed answers, on slips of real models, and cut anywhere."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptoss_local.formats.o200k import FIRST_SPECIAL
from gptoss_local.harmony import ContentDelta, ReasoningDelta, Tool, ToolCall, Vocabulary
from gptoss_local.harmony.parser import BadCall, HarmonyParser, RawParser

ALL_TAGS = (
    "<|start|>",
    "<|end|>",
    "<|message|>",
    "<|channel|>",
    "<|constrain|>",
    "<|call|>",
    "<|return|>",
)
TAGS = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>")


TOOLS = (Tool("f"), Tool("g"))


def parse(vocabulary: Vocabulary, text: str, **kwargs: Any) -> tuple[str, str, list[ToolCall]]:
    """Reasoning, content and calls of a completion; tags in `text` are special tokens."""
    tokens = vocabulary.encoding.encode(text, allowed_special="all")
    return join(HarmonyParser(vocabulary, TOOLS, **kwargs), tokens)


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


def test_two_calls_in_one_message(vocabulary: Vocabulary) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    parser = HarmonyParser(vocabulary, (Tool("f", "", schema),))
    text = '<|channel|>commentary to=functions.f<|message|>{"x": 1}\n{"x": 2}<|call|>'
    reasoning, content, calls = join(parser, vocabulary.encode_tagged(text))
    assert [(c.index, c.name, c.arguments) for c in calls] == [
        (0, "f", {"x": 1}),
        (1, "f", {"x": 2}),
    ]
    assert calls[0].id != calls[1].id
    assert not reasoning + content


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
        ("<|channel|>final Hello there<|return|>", ("", "Hello there")),
        (
            "<|channel|>analysis Hm.<|end|><|start|>assistant<|channel|>final: Hi<|return|>",
            ("Hm.", "Hi"),
        ),
        ("<|channel|>analysis<|message|>a<|end|><|start|>assistant Hi.", ("a", "Hi.")),
        ("<|channel|>analysis<|message|>a<|end|><|start|>assistant", ("a", "")),
        (
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b"
            "<|end|><|start|>assistant<|channel|>final<|message|>c<|return|>",
            ("a\n\nb", "c"),
        ),
        (
            "<|channel|>final<|message|>a<|end|><|start|>functions.f to=assistant"
            "<|channel|>commentary<|message|>made up<|end|>",
            ("", "a"),
        ),
    ],
)
def test_slips_lose_no_text_and_show_no_tag(
    vocabulary: Vocabulary, text: str, expected: tuple[str, str]
) -> None:
    reasoning, content, calls = parse(vocabulary, text)
    assert (reasoning, content) == expected
    assert calls == []


@pytest.mark.parametrize(
    "text",
    [
        "<|channel|>commentary to=functions.f <|constrain|>json{}<|call|>",
        '<|channel|>commentary to=functions.f json {"a": 1}<|call|>',
        ' to=functions.f<|channel|>commentary {"a": 1}<|call|>',
        "<|channel|>commentary to=functions.f<|constrain|>json<|message|>{}<|end|>",
        "<|channel|>commentary to=functions.f<|message|>{}<|start|>assistant",
        "<|channel|>commentary to=functions.f<|message|>{}",
    ],
)
def test_calls_with_a_tag_missing(vocabulary: Vocabulary, text: str) -> None:
    reasoning, content, (call,) = parse(vocabulary, text)
    assert (reasoning, content, call.name) == ("", "", "f")


@pytest.mark.parametrize("role", ["user", "system", " user", "tool", "functions.f"])
@pytest.mark.parametrize("opening", ["<|message|>", "<|channel|>final<|message|>", " "])
def test_what_others_are_made_to_say_is_no_answer(
    vocabulary: Vocabulary, role: str, opening: str
) -> None:
    """A model that ends its answer with `<|end|>` may go on with the next question."""
    text = (
        "<|channel|>final<|message|>Paris.<|end|>"
        f"<|start|>{role}{opening}And of Italy?<|end|>"
        "<|start|>assistant<|channel|>final<|message|>Rome.<|return|>"
    )
    assert parse(vocabulary, text) == ("", "Paris.", [])
    thought = "<|channel|>analysis<|message|>Hm.<|end|>"
    assert parse(vocabulary, thought + text.partition("Paris.<|end|>")[2])[1:] == ("Rome.", [])
    call = f"<|start|>{role} to=functions.f<|message|>{{}}<|call|>"
    assert len(parse(vocabulary, "<|end|>" + call)[2]) == 1


@pytest.mark.parametrize(
    ("text", "recipient", "body"),
    [
        (
            '<|channel|>commentary to=functions.rm<|message|>{"path": "/"}<|call|>',
            "functions.rm",
            '{"path": "/"}',
        ),
        ("<|channel|>analysis to=python code<|message|>print(1)<|call|>", "python", "print(1)"),
        ("<|channel|>analysis to=python code print(1)<|call|>", "python", "code print(1)"),
        (
            '<|channel|>commentary to=functions.rm<|message|>{"path": "/"}<|end|>',
            "",
            '{"path": "/"}',
        ),
    ],
)
def test_calls_of_undeclared_functions(
    vocabulary: Vocabulary, text: str, recipient: str, body: str
) -> None:
    """It is the answer, unless the session corrects it: then it is reasoning."""
    parser = HarmonyParser(vocabulary, TOOLS)
    tokens = vocabulary.encode_tagged(text)
    assert [d for token in tokens for d in parser.feed(token)] == []
    assert parser.bad_call == (BadCall(recipient, "undeclared") if recipient else None)
    assert join(HarmonyParser(vocabulary, TOOLS), tokens) == ("", body, [])
    more = vocabulary.encode_tagged("<|channel|>final<|message|>Well.<|return|>")
    assert join(HarmonyParser(vocabulary, TOOLS), tokens + more) == (body, "Well.", [])


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        (
            "<|channel|>analysis to=python code<|message|>print(1)<|call|>",
            "python",
            {"code": "print(1)"},
        ),
        (
            '<|channel|>analysis to=browser.search code<|message|>{"query": "x"}<|call|>',
            "browser.search",
            {"query": "x"},
        ),
        (
            '<|channel|>commentary to=functions.browser.open json<|message|>{"id": 1}<|call|>',
            "browser.open",
            {"id": 1},
        ),
    ],
)
def test_harmonys_own_tools_when_a_client_declares_them(
    vocabulary: Vocabulary, text: str, name: str, arguments: dict[str, Any]
) -> None:
    """Models call them in the analysis channel and without `functions.`, as they were trained."""
    code = {"type": "object", "properties": {"code": {"type": "string"}}}
    tools = (Tool("python", "", code), Tool("browser.search"), Tool("browser.open"))
    tokens = vocabulary.encoding.encode(text, allowed_special="all")
    reasoning, content, (call,) = join(HarmonyParser(vocabulary, tools), tokens)
    assert (reasoning, content, call.name, call.arguments) == ("", "", name, arguments)


def test_a_name_with_spaces(vocabulary: Vocabulary) -> None:
    tools = (Tool("say"), Tool("say hi"))
    text = "<|channel|>commentary to=functions.say hi <|constrain|>json<|message|>{}<|call|>"
    tokens = vocabulary.encoding.encode(text, allowed_special="all")
    _, _, (call,) = join(HarmonyParser(vocabulary, tools), tokens)
    assert call.name == "say hi"


def test_open_final_channel(vocabulary: Vocabulary) -> None:
    assert parse(vocabulary, "Hi<|return|>", opens_final=True) == ("", "Hi", [])


def test_open_reasoning(vocabulary: Vocabulary) -> None:
    """A second message of a kind is a paragraph of its own, as in a whole answer."""
    text = "so 4.<|end|><|start|>assistant<|channel|>analysis<|message|>Yes.<|end|>"
    text += "<|start|>assistant<|channel|>final<|message|>Hi<|return|>"
    assert parse(vocabulary, text, opens_analysis=True) == ("so 4.\n\nYes.", "Hi", [])
    assert parse(vocabulary, "so 4", opens_analysis=True) == ("so 4", "", [])


def test_characters_split_over_tokens(vocabulary: Vocabulary) -> None:
    text = "🜚𓀀é漢"
    tokens = [vocabulary.token_bytes.index(bytes([b])) for b in text.encode()]  # byte by byte
    parser = HarmonyParser(vocabulary, opens_final=True)
    pieces = [e.text for t in tokens for e in parser.feed(t) if isinstance(e, ContentDelta)]
    assert pieces == list(text)


def test_user_text_is_not_special(vocabulary: Vocabulary) -> None:
    tokens = vocabulary.encoding.encode("a<|end|>b", disallowed_special=())
    assert join(HarmonyParser(vocabulary, opens_final=True), tokens)[1] == "a<|end|>b"


GOOD = [
    "<|channel|>analysis<|message|>Think 漢.<|end|><|start|>assistant<|channel|>final<|message|>"
    "Hi 👋🏽!<|return|>",
    "<|channel|>analysis<|message|>T<|end|><|start|>assistant<|channel|>commentary<|message|>Wait.<|end|>"
    '<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": [1, '
    '{"b": "x y"}]}<|call|>',
    " to=functions.g<|channel|>commentary json<|message|>{'a': True,}<|call|><|start|>functions.g"
    " to=assistant<|channel|>commentary<|message|>ok<|end|>",
]
WORDS = [*TAGS, "<|return|>", "assistant", " to=functions.f", " to=python", "analysis", "final"]
WORDS += ["commentary", " json", '{"a"', ": 1}", "[", "}", '"', "\\", "é", "\n", " ", "user"]


@settings(max_examples=1000, deadline=None)
@given(data=st.data())
def test_mutated_answers_never_raise_or_leak(vocabulary: Vocabulary, data: st.DataObject) -> None:
    """Well-formed answers with pieces cut, repeated, put in and swapped; then cut anywhere."""
    tokens = _tokens(vocabulary, data.draw(st.sampled_from(GOOD)))
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(tokens)))
        n = data.draw(st.integers(0, 5))
        match data.draw(st.sampled_from(["cut", "repeat", "insert", "random"])):
            case "cut":
                del tokens[at : at + n]
            case "repeat":
                tokens[at:at] = tokens[at : at + n]
            case "insert":
                words = data.draw(st.lists(st.sampled_from(WORDS), max_size=n))
                tokens[at:at] = _tokens(vocabulary, "".join(words))
            case _:
                tokens[at:at] = data.draw(st.lists(st.integers(0, 201_087), max_size=n))
    _check_every_cut(vocabulary, tokens)


@settings(max_examples=1000, deadline=None)
@given(words=st.lists(st.sampled_from(WORDS), max_size=25))
def test_random_words_never_raise_or_leak(vocabulary: Vocabulary, words: list[str]) -> None:
    _check_every_cut(vocabulary, _tokens(vocabulary, "".join(words)))


def _tokens(vocabulary: Vocabulary, text: str) -> list[int]:
    tokens: list[int] = vocabulary.encoding.encode(text, allowed_special="all")
    return tokens


def _check_every_cut(vocabulary: Vocabulary, tokens: list[int]) -> None:
    """Ends the answer after every token: nothing raises, no tag shows, and calls can be sent."""
    for n in range(len(tokens) + 1):
        reasoning, content, calls = join(HarmonyParser(vocabulary, TOOLS), tokens[:n])
        for call in calls:
            assert call.name in ("f", "g")
            msgspec.json.encode(call)
        shown = reasoning + content + "".join(f"{c.name}{c.arguments}" for c in calls)
        assert not any(tag in shown for tag in ALL_TAGS), tokens[:n]
        assert "\0" not in shown.replace("\0", "", _n_bytes(vocabulary, tokens[:n], 0))
        assert "\1" not in shown.replace("\1", "", _n_bytes(vocabulary, tokens[:n], 1))


def _n_bytes(vocabulary: Vocabulary, tokens: list[int], byte: int) -> int:
    """How often a byte that the parser uses as a mark comes from the model itself."""
    return sum(vocabulary.token_bytes[t].count(byte) for t in tokens if t < FIRST_SPECIAL)


def test_raw_spells_the_tags(vocabulary: Vocabulary) -> None:
    text = "<|channel|>final<|message|>é<|end|>"
    parser = RawParser(vocabulary)
    tokens = vocabulary.encoding.encode(text + "<|return|>", allowed_special="all")
    events = [e for t in tokens for e in parser.feed(t)] + parser.finish()
    assert "".join(e.text for e in events if isinstance(e, ContentDelta)) == text
