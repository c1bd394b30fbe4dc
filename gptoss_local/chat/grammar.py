"""What an answer may look like -> one grammar over its harmony tokens, tags and all.

Analysis stays free, the final message is what the format says, and a call of a function is a JSON
object, of the function's own schema if it is strict or must be called. The engine masks tokens with
it and knows neither harmony nor JSON.

Source: the harmony format as openai-harmony renders it, and the headers that real models write
(recipient before or after the channel, `<|constrain|>json` or none). Lark as llguidance reads it,
where a regular expression never matches a tag.
"""

import functools
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import llguidance

from gptoss_local.chat.fixed_text import FIXED_MAX, fixed_length
from gptoss_local.chat.format_schema import enforceable, not_enforceable, places
from gptoss_local.chat.message import AnswerFormat, JsonFormat, RegexFormat, Tool
from gptoss_local.errors import UsageError

_REASON_MAX = 250  # characters
_N_SEARCHED_MAX = 300  # parts of a schema, 0.1 ms each and more
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
_OBJECT: dict[str, Any] = {"type": "object"}

# What printers of JSON write between two values. With any amount, a model that is lost in a format
# would put whitespace there until its context is full.
_OPTIONS = {"whitespace_flexible": True, "whitespace_pattern": r"[ \t]{1,2}|\r?\n[ \t]{0,40}"}


def compile_grammar(
    answer_format: AnswerFormat | None,
    tools: Sequence[Tool] = (),
    *,
    must_call: Sequence[str] = (),
    opens_final: bool = False,
) -> str:
    """Make the grammar of an answer and check it.

    Args:
        answer_format: What the final message is, None for any text; with tools the model may call
            one instead.
        tools: Functions that may be called.
        must_call: Names of tools; the model calls one of these and gives no other answer.
        opens_final: The answer is the final message alone, whose header the prompt holds.

    Raises:
        UsageError: llguidance cannot enforce it; the reason names the keyword and its place.
    """
    schemas: dict[str, dict[str, Any]] = {}  # by what to call them
    grammars: list[dict[str, Any]] = []
    if isinstance(answer_format, JsonFormat):
        schemas["#"] = enforceable(answer_format.schema)
        grammars.append({"name": "body", **_json_schema(schemas["#"])})
    elif answer_format is not None:
        grammars.append({"name": "body", **_regex(answer_format)})
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
            groups = list(_argument_schemas(tools, must_call))
            top += _CALLS.format(calls=" | ".join(f"c{i}" for i in range(len(groups))))
            for i, (names, schema) in enumerate(groups):
                spelled = " | ".join(json.dumps(name, ensure_ascii=False) for name in names)
                schemas[f"{names[0]}#"] = schema
                top += _CALL.format(i=i, names=spelled)
                grammars.append({"name": f"a{i}", **_json_schema(schema)})
    grammar = json.dumps({"grammars": [{"name": "top", "lark_grammar": top}, *grammars]})
    _check(grammar, schemas)
    return grammar


def _check(grammar: str, schemas: dict[str, dict[str, Any]]) -> None:
    """Raise UsageError if an answer cannot be held to a grammar, which these schemas are in."""
    if problem := _problem(grammar):
        raise not_enforceable(problem, _find(problem, schemas))
    for path, schema in schemas.items():
        if flaw := _flaw(schema):
            raise not_enforceable(flaw, path)


def _argument_schemas(
    tools: Iterable[Tool], must_call: Sequence[str]
) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Names of functions that may be called, and the schema that their arguments keep to.

    The schema of a tool that is not strict is left out if it cannot be enforced: clients send any.
    """
    free: list[str] = []
    for tool in tools:
        if must_call and tool.name not in must_call:
            continue
        schema = _OBJECT | (tool.parameters or {})
        if tool.strict:
            yield [tool.name], enforceable(schema, f"{tool.name}#")
        elif must_call and (enforced := _if_enforceable(schema)) is not None:
            yield [tool.name], enforced
        else:
            free.append(tool.name)
    if free:
        yield free, _OBJECT


def _if_enforceable(schema: dict[str, Any]) -> dict[str, Any] | None:
    try:
        enforced: dict[str, Any] = enforceable(schema)
    except UsageError:
        return None
    return None if _problem(_grammar_of(enforced)) or _flaw(enforced) else enforced


def _flaw(schema: dict[str, Any]) -> str:
    """What llguidance accepts and cannot do; empty if there is nothing."""
    n_fixed = sum(fixed_length(part) for _, part in places(schema, ""))
    if n_fixed > FIXED_MAX:
        return f"{n_fixed} characters of fixed text are more than {FIXED_MAX}"
    return "nothing satisfies it" if _is_empty(schema) else ""


def _is_empty(schema: dict[str, Any]) -> bool:
    """Whether no value can even begin, as with a reference that leads to itself.

    A model would reason for ever, as it could not come to an answer.
    """
    matcher = llguidance.LLMatcher(_byte_tokenizer(), _grammar_of(schema), log_level=0)
    matcher.compute_bitmask()
    return bool(matcher.is_error())


@functools.cache
def _byte_tokenizer() -> llguidance.LLTokenizer:
    """One for which every byte is a token; 1 ms."""
    return llguidance.LLTokenizer("byte")


def _find(problem: str, schemas: dict[str, dict[str, Any]]) -> str:
    """The innermost part of a schema that has the problem by itself; empty if none has."""
    for start, schema in schemas.items():
        definitions = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
        for path, part in itertools.islice(places(schema, start), _N_SEARCHED_MAX):
            alone = _problem(_grammar_of(part | definitions))
            if alone and problem.startswith(alone):  # it goes on with where a reference led
                return path
    return ""


def _grammar_of(schema: dict[str, Any]) -> str:
    return json.dumps({"grammars": [{"name": "top", **_json_schema(schema)}]})


def _problem(grammar: str) -> str:
    """Why llguidance refuses a grammar; empty if it does not."""
    is_error, messages = llguidance.LLMatcher.validate_grammar_with_warnings(grammar)
    if not is_error:
        return ""
    return " ".join(messages[0].split())[-_REASON_MAX:]  # of a regex, the end says what


def _regex(answer_format: RegexFormat) -> dict[str, Any]:
    grammar = json.loads(llguidance.LLMatcher.grammar_from_regex(answer_format.pattern))
    return {"lark_grammar": grammar["grammars"][0]["lark_grammar"]}


def _json_schema(schema: dict[str, Any]) -> dict[str, Any]:
    return {"json_schema": schema | {"x-guidance": _OPTIONS}}
