"""The grammar of a formatted answer: harmony in the spellings models use, and schemas at random."""

from pathlib import Path

import msgspec
import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.engine.worker.sampling.mask import MaskCompiler
from gptoss_local.harmony import JsonFormat, RegexFormat, Tool, Vocabulary
from gptoss_local.harmony.grammar import compile_grammar
from tests.chat.masked import accepts

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
TOOLS = (Tool("get_weather"), Tool('say "hi"'))
BOB = '{"name": "Bob", "age": 4}<|return|>'
THOUGHT = "<|channel|>analysis<|message|>A {thought}\n日本 😀<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>"


@pytest.fixture(scope="module")
def masks(nano_gguf: Path) -> MaskCompiler:
    return MaskCompiler(nano_gguf)


GOOD = [
    FINAL + BOB,
    THOUGHT + FINAL + BOB,
    THOUGHT + THOUGHT + FINAL + BOB,
    "<|channel|>analysis<|message|><|end|><|start|>assistant" + FINAL + BOB,
    THOUGHT + "<|channel|>final <|constrain|>json<|message|>" + BOB,
    "<|channel|>final<|constrain|>JSON<|message|>" + BOB,
    FINAL + '{"name":"B\\"ob","age":-4}<|return|>',
    FINAL + '{\n    "name": "Bob",\n    "age": 4\n}<|return|>',
]
BAD = [
    BOB,
    FINAL + "Bob is 4<|return|>",
    FINAL + '{"name": "Bob"}<|return|>',
    FINAL + '{"name": "Bob", "age": 4.5}<|return|>',
    FINAL + '{"name": "Bob", "age": 4, "x": 1}<|return|>',
    FINAL + '{"name": "Bob", "age": 4}',
    FINAL + '{"name": "Bob", "age": 4}<|end|>',
    FINAL + "{" + " " * 3 + '"name": "Bob", "age": 4}<|return|>',
    "<|channel|>commentary<|message|>Wait.<|end|><|start|>assistant" + FINAL + BOB,
    "<|channel|>analysis<|message|>It is 4.<|return|>",
]
CALLS = [
    "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{}<|call|>",
    "<|channel|>commentary to=functions.get_weather<|constrain|>json<|message|>{}<|call|>",
    "<|channel|>commentary to=functions.get_weather json<|message|>{}<|call|>",
    " to=functions.get_weather<|channel|>commentary<|message|>{}<|call|>",
    " to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>{}<|call|>",
    '<|channel|>commentary to=functions.say "hi"<|message|>{"a": [1]}<|call|>',
    "<|channel|>commentary<|message|>Wait.<|end|><|start|>assistant"
    "<|channel|>commentary to=functions.get_weather<|message|>{}<|call|>",
]
BAD_CALLS = [
    "<|channel|>commentary to=functions.rm <|constrain|>json<|message|>{}<|call|>",
    "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{<|call|>",
    "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>[]<|call|>",
    "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{}<|return|>",
]


def test_answers_in_every_spelling(masks: MaskCompiler, vocabulary: Vocabulary) -> None:
    plain = compile_grammar(JsonFormat(PERSON))
    with_tools = compile_grammar(JsonFormat(PERSON), TOOLS)
    for answer in GOOD:
        assert accepts(masks, vocabulary, plain, answer), answer
        assert accepts(masks, vocabulary, with_tools, answer), answer
    for answer in BAD:
        assert not accepts(masks, vocabulary, plain, answer), answer
        assert not accepts(masks, vocabulary, with_tools, answer), answer


def test_calls_in_every_spelling(masks: MaskCompiler, vocabulary: Vocabulary) -> None:
    with_tools = compile_grammar(JsonFormat(PERSON), TOOLS)
    for call in CALLS:
        assert accepts(masks, vocabulary, with_tools, call), call
        assert accepts(masks, vocabulary, with_tools, THOUGHT + call), call
        assert not accepts(masks, vocabulary, compile_grammar(JsonFormat(PERSON)), call), call
    for call in BAD_CALLS:
        assert not accepts(masks, vocabulary, with_tools, call), call


WEATHER = Tool(
    "get_weather",
    "",
    {
        "properties": {"city": {"type": "string"}, "unit": {"enum": ["c", "f"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
)
ODD = Tool("odd", "", {"type": "object", "properties": {"a": {"not": {"type": "string"}}}})


def weather_call(arguments: str) -> str:
    return f"<|channel|>commentary to=functions.get_weather<|message|>{arguments}<|call|>"


def test_strict_arguments(masks: MaskCompiler, vocabulary: Vocabulary) -> None:
    strict = msgspec.structs.replace(WEATHER, strict=True)
    grammar = compile_grammar(None, [strict, Tool("any")])
    for answer in (
        weather_call('{"city": "Oslo"}'),
        THOUGHT + weather_call('{"city": "Oslo", "unit": "c"}'),
        "<|channel|>commentary to=functions.any<|message|>{}<|call|>",
        THOUGHT + FINAL + "It is {cold}.\n<|return|>",
    ):
        assert accepts(masks, vocabulary, grammar, answer), answer
    for arguments in ("{}", '{"city": 1}', '{"city": "Oslo", "x": 1}'):
        assert not accepts(masks, vocabulary, grammar, weather_call(arguments)), arguments
    with pytest.raises(UsageError, match="not"):
        compile_grammar(None, [msgspec.structs.replace(ODD, strict=True)])


def test_calls_that_must_be_made(masks: MaskCompiler, vocabulary: Vocabulary) -> None:
    tools = [WEATHER, ODD]
    one = compile_grammar(None, tools, must_call=["get_weather"])
    either = compile_grammar(JsonFormat(PERSON), tools, must_call=["get_weather", "odd"])
    odd = "<|channel|>commentary to=functions.odd<|message|>{}<|call|>"
    for grammar in (one, either):
        assert accepts(masks, vocabulary, grammar, THOUGHT + weather_call('{"city": "Oslo"}'))
        assert not accepts(masks, vocabulary, grammar, weather_call("{}"))
        assert not accepts(masks, vocabulary, grammar, FINAL + BOB)
    assert accepts(masks, vocabulary, either, odd)
    assert not accepts(masks, vocabulary, one, odd)


def test_an_open_final_message(masks: MaskCompiler, vocabulary: Vocabulary) -> None:
    grammar = compile_grammar(JsonFormat(PERSON), opens_final=True)
    assert accepts(masks, vocabulary, grammar, BOB)
    assert not accepts(masks, vocabulary, grammar, FINAL + BOB)
    text = compile_grammar(None, [Tool("f", strict=True)], opens_final=True)
    assert accepts(masks, vocabulary, text, ", 4\n<|return|>")
    assert not accepts(masks, vocabulary, text, ", 4<|end|>")


def test_any_json_and_regex(masks: MaskCompiler, vocabulary: Vocabulary) -> None:
    grammar = compile_grammar(JsonFormat(), opens_final=True)
    assert accepts(masks, vocabulary, grammar, '{"a": [1, null, {"b": "ü"}]}<|return|>')
    assert not accepts(masks, vocabulary, grammar, "[1]<|return|>")
    grammar = compile_grammar(RegexFormat(r"a/\d{2}\"?"), opens_final=True)
    assert accepts(masks, vocabulary, grammar, 'a/12"<|return|>')
    assert not accepts(masks, vocabulary, grammar, "a/1<|return|>")


def test_a_bad_regex_is_refused() -> None:
    with pytest.raises(UsageError, match="not a regular expression: unclosed group"):
        compile_grammar(RegexFormat("(a"))
