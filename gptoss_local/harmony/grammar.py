"""Builds one grammar over an answer's harmony tokens, tags included, from its possible forms.

The engine masks tokens with it, and knows neither harmony nor JSON. Source: the headers that
openai-harmony renders and real models write. In llguidance's Lark, no expression matches a tag.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gptoss_local.base.errors import UsageError
from gptoss_local.harmony import guidance
from gptoss_local.harmony.message import AnswerFormat, JsonFormat, RegexFormat, Tool
from gptoss_local.harmony.pattern import read_pattern
from gptoss_local.harmony.schema_check import enforceable, in_words

_ANSWER = """
start: (analysis turn){thoughts} last
last: {last}
turn: <|start|> "assistant"
analysis: <|channel|> "analysis" <|message|> TEXT <|end|>
final: <|channel|> "final" typed? <|message|> {body} <|return|>
typed: " "? <|constrain|> /[Jj][Ss][Oo][Nn]/
TEXT: /(.|\\n)*/
"""
_OPEN_ANSWER = """
start: {body} <|return|>
TEXT: /(.|\\n)*/
"""
_CALLS = """
channel: <|channel|> "commentary"
preamble: channel <|message|> TEXT <|end|>
kind: typed | " json"
call: {calls}
"""
_CALL = """
c{i}: (channel t{i} | t{i} channel) kind? <|message|> @a{i} <|call|>
t{i}: " to=functions." N{i}
N{i}: {names}
"""
_BUILT_IN = """
b: (own tb | tb own) (" code" | kind)? <|message|> TEXT <|call|>
own: <|channel|> ("analysis" | "commentary")
tb: " to=" B
B: {names}
"""
_OBJECT: dict[str, Any] = {"type": "object"}


def compile_grammar(
    answer_format: AnswerFormat | None,
    tools: Sequence[Tool] = (),
    *,
    must_call: Sequence[str] = (),
    opens_final: bool = False,
) -> str:
    """Make the grammar of an answer. UsageError names a keyword that cannot be enforced.

    With `tools` the model may call one instead of giving an answer of the format (None: any text);
    of those in `must_call` it calls one and gives no other answer. With `opens_final` the answer is
    the final message alone, as the prompt holds its header.
    """
    grammars: list[dict[str, Any]] = []
    if isinstance(answer_format, JsonFormat):
        schema = enforceable(answer_format.schema, "the format")
        grammars.append({"name": "body", **guidance.json_schema(schema)})
    elif answer_format is not None:
        grammars.append({"name": "body", "lark_grammar": _text(answer_format)})
    body = "TEXT" if answer_format is None else "@body"
    if opens_final:
        top = _OPEN_ANSWER.format(body=body)
    else:
        # A model that must call and would rather answer does so wherever else it may say a word:
        # in a preamble, or in analysis without end. So it gets one message of analysis.
        last, thoughts = "final", "*"
        if must_call:
            last, thoughts = "call", "?"
        elif tools:
            last = "final | (preamble turn (analysis turn)*)? call"
        top = _ANSWER.format(last=last, thoughts=thoughts, body=body)
        if tools:
            functions = [tool for tool in tools if not tool.is_built_in]
            groups = list(_argument_schemas(functions, must_call))
            own = [t.name for t in tools if t.is_built_in and t.name in (must_call or [t.name])]
            kinds = [f"c{i}" for i in range(len(groups))] + ["b"] * bool(own)
            top += _CALLS.format(calls=" | ".join(kinds))
            top += _BUILT_IN.format(names=_spelled(own)) if own else ""
            for i, (names, schema) in enumerate(groups):
                top += _CALL.format(i=i, names=_spelled(names))
                grammars.append({"name": f"a{i}", **guidance.json_schema(schema)})
    grammar = guidance.grammar({"name": "top", "lark_grammar": top}, *grammars)
    is_checked = isinstance(answer_format, JsonFormat) and len(grammars) == 1  # and nothing else
    if not is_checked and (problem := guidance.problem(grammar)):
        raise UsageError(f"the format cannot be enforced: {in_words(problem)}")
    return grammar


def _spelled(names: Iterable[str]) -> str:
    return " | ".join(json.dumps(name, ensure_ascii=False) for name in names)


def _text(answer_format: RegexFormat) -> str:
    try:
        expressions = read_pattern(f"^(?:{answer_format.pattern})$")
    except ValueError as error:
        raise UsageError(f"the format cannot be enforced: the pattern {error}") from error
    return f"start: BODY\nBODY: /{expressions[0]}/"


def _argument_schemas(
    tools: Iterable[Tool], must_call: Sequence[str]
) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Yield names of callable functions and their arguments' schema, if it can be enforced."""
    free: list[str] = []
    for tool in tools:
        if must_call and tool.name not in must_call:
            continue
        schema = _OBJECT | (tool.parameters or {})
        if tool.strict:
            yield [tool.name], enforceable(schema, f"the parameters of the tool '{tool.name}'")
        elif must_call and (enforced := _if_enforceable(schema)) is not None:
            yield [tool.name], enforced
        else:
            free.append(tool.name)
    if free:
        yield free, _OBJECT


def _if_enforceable(schema: dict[str, Any]) -> dict[str, Any] | None:
    try:
        return enforceable(schema, "")
    except UsageError:
        return None
