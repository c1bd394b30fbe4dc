"""Grammars of answers take harmony in every spelling that models use."""

import msgspec
import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.harmony import JsonFormat, RegexFormat, Tool
from gptoss_local.harmony.grammar import compile_grammar
from tests.chat.conftest import Accepts
from tests.chat.test_parser import BUILT_IN

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
CITY = {
    "properties": {"city": {"type": "string"}, "unit": {"enum": ["c", "f"]}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = Tool("get_weather", "", CITY)
STRICT = msgspec.structs.replace(WEATHER, strict=True)
ODD = Tool("odd", "", {"type": "object", "properties": {"a": {"not": {"type": "string"}}}})
BOB = '{"name": "Bob", "age": 4}<|return|>'
THOUGHT = "<|channel|>analysis<|message|>A {thought}\n日本 😀<|end|><|start|>assistant"
WAIT = "<|channel|>commentary<|message|>Wait.<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>"
TO_WEATHER = "<|channel|>commentary to=functions.get_weather"
TO_ODD = "<|channel|>commentary to=functions.odd"

PLAIN = compile_grammar(JsonFormat(PERSON))
CALLING = compile_grammar(JsonFormat(PERSON), (Tool("get_weather"), Tool('say "hi"'), *BUILT_IN))
MUST_CALL = compile_grammar(None, [WEATHER, ODD], must_call=["get_weather"])
MUST_CALL_EITHER = compile_grammar(
    JsonFormat(PERSON), [WEATHER, ODD], must_call=["get_weather", "odd"]
)
STRICTLY = compile_grammar(None, [STRICT, Tool("any")])

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
    FINAL + '{   "name": "Bob", "age": 4}<|return|>',
    WAIT + FINAL + BOB,
    "<|channel|>analysis<|message|>It is 4.<|return|>",
]
CALLS = [
    TO_WEATHER + " <|constrain|>json<|message|>{}<|call|>",
    TO_WEATHER + "<|constrain|>json<|message|>{}<|call|>",
    TO_WEATHER + " json<|message|>{}<|call|>",
    " to=functions.get_weather<|channel|>commentary<|message|>{}<|call|>",
    " to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>{}<|call|>",
    '<|channel|>commentary to=functions.say "hi"<|message|>{"a": [1]}<|call|>',
    WAIT + TO_WEATHER + "<|message|>{}<|call|>",
    "<|channel|>analysis to=python code<|message|>print(1)<|call|>",
    " to=python<|channel|>analysis code<|message|>print(1)<|call|>",
    '<|channel|>commentary to=browser.search <|constrain|>json<|message|>{"query":1}<|call|>',
]
BAD_CALLS = [
    "<|channel|>commentary to=functions.rm <|constrain|>json<|message|>{}<|call|>",
    "<|channel|>analysis to=other code<|message|>print(1)<|call|>",
    TO_WEATHER + " <|constrain|>json<|message|>{<|call|>",
    TO_WEATHER + " <|constrain|>json<|message|>[]<|call|>",
    TO_WEATHER + " <|constrain|>json<|message|>{}<|return|>",
]
OSLO = '<|message|>{"city": "Oslo"}<|call|>'
# A grammar, answers that it takes, and answers that it does not.
ANSWERS: dict[str, tuple[str, list[str], list[str]]] = {
    "a format": (PLAIN, GOOD, [*BAD, *CALLS]),
    "a format and tools": (CALLING, [*GOOD, *CALLS, *(THOUGHT + call for call in CALLS)],
                           [*BAD, *BAD_CALLS]),
    "strict arguments": (
        STRICTLY,
        [TO_WEATHER + OSLO,
         THOUGHT + TO_WEATHER + '<|message|>{"city": "Oslo", "unit": "c"}<|call|>',
         "<|channel|>commentary to=functions.any<|message|>{}<|call|>",
         THOUGHT + FINAL + "It is {cold}.\n<|return|>"],
        [f"{TO_WEATHER}<|message|>{body}<|call|>" for body in
         ("{}", '{"city": 1}', '{"city": "Oslo", "x": 1}')],
    ),
    "one must be called": (MUST_CALL, [THOUGHT + TO_WEATHER + OSLO],
                           [TO_WEATHER + "<|message|>{}<|call|>", FINAL + BOB,
                            TO_ODD + "<|message|>{}<|call|>"]),
    "either must be called": (MUST_CALL_EITHER,
                              [THOUGHT + TO_WEATHER + OSLO, TO_ODD + "<|message|>{}<|call|>"],
                              [TO_WEATHER + "<|message|>{}<|call|>", FINAL + BOB]),
    "an open final message": (compile_grammar(JsonFormat(PERSON), opens_final=True),
                              [BOB], [FINAL + BOB]),
    "open text": (compile_grammar(None, [Tool("f", strict=True)], opens_final=True),
                  [", 4\n<|return|>"], [", 4<|end|>"]),
    "any JSON": (compile_grammar(JsonFormat(), opens_final=True),
                 ['{"a": [1, null, {"b": "ü"}]}<|return|>'], ["[1]<|return|>"]),
    "a regex": (compile_grammar(RegexFormat(r"a/\d{2}\"?"), opens_final=True),
                ['a/12"<|return|>'], ["a/1<|return|>"]),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_answers(accepts: Accepts, name: str) -> None:
    grammar, good, bad = ANSWERS[name]
    assert [each for each in good if not accepts(grammar, each)] == []
    assert [each for each in bad if accepts(grammar, each)] == []


def test_unusable_regexes_and_schemas_are_refused() -> None:
    with pytest.raises(UsageError, match="not a regular expression: unclosed group"):
        compile_grammar(RegexFormat("(a"))
    with pytest.raises(UsageError, match="'not'"):
        compile_grammar(None, [msgspec.structs.replace(ODD, strict=True)])
