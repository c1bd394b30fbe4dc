"""Builds one grammar over an answer's harmony tokens, tags included, from what it may look like.

Analysis stays free, the final message is what the format says, and a call of a function is a JSON
object, of the function's own schema if it is strict or must be called. The engine masks tokens with
it and knows neither harmony nor JSON.

Source: the harmony format as openai-harmony renders it, and the headers that real models write
(recipient before or after the channel, `<|constrain|>json` or none). Lark as llguidance reads it,
where a regular expression never matches a tag.
"""

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gptoss_local.errors import UsageError
from gptoss_local.harmony import guidance
from gptoss_local.harmony.fixed_text import FIXED_MAX, fixed_length
from gptoss_local.harmony.format_schema import Enforced, enforceable
from gptoss_local.harmony.message import AnswerFormat, JsonFormat, RegexFormat, Tool
from gptoss_local.harmony.patience import Patience
from gptoss_local.harmony.pattern import PatternError, read_pattern, render
from gptoss_local.harmony.schema_document import all_schemas, within
from gptoss_local.harmony.schema_values import settle

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
_BUILT_IN = """
b: (own tb | tb own) (" code" | kind)? <|message|> TEXT <|call|>
own: <|channel|> ("analysis" | "commentary")
tb: " to=" B
B: {names}
"""
_OBJECT: dict[str, Any] = {"type": "object"}

# How llguidance says what, and how we do.
_PROBLEMS = {
    "Unsatisfiable": "no value satisfies it",
    "min/maxProperties only": "'minProperties' or 'maxProperties' next to optional properties",
    "are not disjoint": "a property may match two patterns of 'patternProperties'",
    "circular references": "a reference to a schema around it, next to other keywords",
    "too many digits": "'multipleOf' with so many digits",
    "multiple of": "'multipleOf' of such a number",
    "Unicode property": "a pattern with an unknown kind of characters",
}
_TOO_COMPLEX = "it is too large or too complex"


def compile_grammar(
    answer_format: AnswerFormat | None,
    tools: Sequence[Tool] = (),
    *,
    must_call: Sequence[str] = (),
    opens_final: bool = False,
    patience: Patience | None = None,
) -> str:
    """Make the grammar of an answer and check it.

    Args:
        answer_format: What the final message is, None for any text; with tools the model may call
            one instead.
        tools: Functions that may be called.
        must_call: Names of tools; the model calls one of these and gives no other answer.
        opens_final: The answer is the final message alone, whose header the prompt holds.
        patience: How long it may take; None: a new one.

    Raises:
        UsageError: llguidance cannot enforce it; the reason names the keyword and its place.
    """
    patience = patience or Patience()
    patience.begin()
    schemas: list[Enforced] = []
    grammars: list[dict[str, Any]] = []
    if isinstance(answer_format, JsonFormat):
        schemas.append(_settled(answer_format.schema, "the format", patience))
        grammars.append({"name": "body", **guidance.json_schema(schemas[0].schema)})
    elif answer_format is not None:
        grammars.append({"name": "body", "lark_grammar": _text(answer_format, patience)})
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
            groups = list(_argument_schemas(functions, must_call, patience))
            own = [t.name for t in tools if t.is_built_in and t.name in (must_call or [t.name])]
            kinds = [f"c{i}" for i in range(len(groups))] + ["b"] * bool(own)
            top += _CALLS.format(calls=" | ".join(kinds))
            top += _BUILT_IN.format(names=_spelled(own)) if own else ""
            for i, (names, schema) in enumerate(groups):
                top += _CALL.format(i=i, names=_spelled(names))
                schemas.append(schema)
                grammars.append({"name": f"a{i}", **guidance.json_schema(schema.schema)})
    grammar = guidance.grammar({"name": "top", "lark_grammar": top}, *grammars)
    _check(grammar, schemas)
    return grammar


def _spelled(names: Iterable[str]) -> str:
    return " | ".join(json.dumps(name, ensure_ascii=False) for name in names)


def _text(answer_format: RegexFormat, patience: Patience) -> str:
    def check() -> None:
        if patience.is_over:
            raise PatternError(f"takes longer than {patience.limit_s:g} s to prepare")

    try:
        expression = render(read_pattern(f"^(?:{answer_format.pattern})$"), check)
    except PatternError as error:
        raise UsageError(f"the format cannot be enforced: the pattern {error}") from error
    return f"start: BODY\nBODY: /(?:{expression})/"


def _check(grammar: str, schemas: list[Enforced]) -> None:
    """Raise UsageError if an answer cannot be held to a grammar, which these schemas are in."""
    if problem := guidance.problem(grammar):
        for schema in schemas:
            _check_schema(schema)
        raise UsageError(f"the format cannot be enforced: {problem}")


def _check_schema(schema: Enforced) -> None:
    problem = _problem(schema.schema)
    if problem == _TOO_COMPLEX:
        raise schema.refusal(problem)
    if problem:
        raise schema.refusal(problem + within(_find(problem, schema)))


def _argument_schemas(
    tools: Iterable[Tool], must_call: Sequence[str], patience: Patience
) -> Iterator[tuple[list[str], Enforced]]:
    """Yield names of functions that may be called, and what their arguments keep to.

    The schema of a tool that is not strict is left out if it cannot be enforced: clients send any.
    """
    free: list[str] = []
    for tool in tools:
        if must_call and tool.name not in must_call:
            continue
        schema = _OBJECT | (tool.parameters or {})
        if tool.strict:
            subject = f"the parameters of the tool '{tool.name}'"
            yield [tool.name], _settled(schema, subject, patience)
        elif must_call and (enforced := _if_enforceable(schema, patience)) is not None:
            yield [tool.name], enforced
        else:
            free.append(tool.name)
    if free:
        yield free, enforceable(_OBJECT, "", Patience())


def _settled(schema: dict[str, Any], subject: str, patience: Patience) -> Enforced:
    enforced = enforceable(schema, subject, patience)
    settle(enforced)
    if (n_fixed := fixed_length(enforced)) > FIXED_MAX:
        raise enforced.refusal(f"{n_fixed} characters of fixed text are more than {FIXED_MAX}")
    return enforced


def _if_enforceable(schema: dict[str, Any], patience: Patience) -> Enforced | None:
    try:
        enforced = _settled(schema, "", patience)
        _check_schema(enforced)
    except UsageError:
        return None
    return enforced


def _find(problem: str, enforced: Enforced) -> str:
    """Return the place of the innermost part that has the problem by itself; empty if none has."""
    parts = [*all_schemas(enforced.schema)]
    for part in itertools.islice(reversed(parts), _N_SEARCHED_MAX):
        if enforced.patience.is_over:
            break
        if (
            id(part) in enforced.places
            and _problem(part | {"$defs": enforced.definitions}) == problem
        ):
            return enforced.places[id(part)]
    return ""


def _problem(schema: dict[str, Any]) -> str:
    """Return why llguidance refuses a schema, in our words; empty if it does not."""
    theirs = guidance.problem(guidance.grammar({"name": "top", **guidance.json_schema(schema)}))
    for words, ours in _PROBLEMS.items():
        if words in theirs:
            return ours
    return _TOO_COMPLEX if theirs else ""
