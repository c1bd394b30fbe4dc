"""Branches that have facts read from a text and answered as JSON.

The schema stands in the question in one of many forms; `response_format` has it told by the server.
`extract_bank` has the fields themselves.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.nano.data.document import Answer, Branch
from bench.nano.data.echo import fenced
from bench.nano.data.extract_bank import FIELDS, INLINE, JOINT, custom_field
from bench.nano.data.extract_fields import Field, object_schema
from bench.nano.data.source import Source
from bench.nano.data.wording import combine, phrase
from gptoss_local.harmony.message import Message
from gptoss_local.types import Effort

_VERBS = "Extract|Read|Pull out|Take|Find|Collect|Parse|Get|Give me|Return|Write|List|Fill in"
_ANSWER = "Answer|Reply|Respond"
_YOUR = "Your answer|The answer|Your reply|The output|Your output|The result"
_TURN = "Turn|Convert|Change|Transform|Put"
_TEXT = "the text|this text|the message|the input|what the text says"
_OBJECT = "JSON|a JSON object|one JSON object|a JSON record|JSON only|only JSON"
_ASK_FIELDS = (
    *combine(_VERBS, "these fields|the following fields|the fields|these keys",
             "from the text as JSON: {keys}|as a JSON object: {keys}|from the text and answer as "
             "JSON: {keys}.|from the message as JSON: {keys}"),
    *combine(f"{_ANSWER}|Reply only|Answer only", f"with {_OBJECT.replace('|', '|with ')}",
             "that has the keys {keys}.|that has exactly these keys: {keys}|with the keys {keys}|"
             "with the fields {keys} from the text.|, keys: {keys}"),
    *combine("Return|Write|Output|Create|Give me|Make|I need|I want", _OBJECT,
             "with {keys}.|with the keys {keys}.|with exactly these keys: {keys}|: {keys}|"
             "with the fields {keys} from the text."),
    *combine(_TURN, _TEXT, f"into {_OBJECT.replace('|', '|into ')}",
             "with {keys}.|with the keys {keys}.|. Keys: {keys}|. Fields: {keys}"),
    *combine("What are|What does the text say about|Find|Tell me|From the text, fill in|Give me",
             "{keys}", "? Answer in JSON.|? Reply with JSON only.|as JSON.|in JSON, nothing else.|"
             ", as a JSON object, please."),
    *combine("Keys|Fields|JSON keys|JSON fields|Fields wanted|Keys wanted|To JSON|As JSON",
             ": {keys}|: {keys}. JSON only|: {keys}. Answer in JSON.|: {keys}, please"),
    *combine("{keys}", "as JSON|as JSON, please|from the text as JSON|in JSON, nothing else."),
)  # fmt: skip
_LIKE = (
    "in this form|of this shape|in this format|of this form|with this structure|in this shape|"
    "with exactly this structure|like this|like the following"
)
_END = ":\n{shape}|: {shape}"
_ASK_SHAPE = (
    *combine(_VERBS, "the data|the facts|this information|the values", "from the text as JSON|"
             "as a JSON object|and return only JSON|from the message as JSON", _LIKE,
             ":\n{shape}"),
    *combine(f"{_ANSWER}|Return|Reply only|Answer only", "with JSON|with one JSON object|"
             "with only JSON|with the values of the text as JSON", _LIKE, _END),
    *combine(_YOUR, "is|must be|has to be|should be", "JSON|one JSON object", _LIKE, _END),
    *combine(_TURN, _TEXT, "into JSON|into one JSON object|into this", f"|{_LIKE}", _END),
    *combine("Use|Fill in|Follow|Keep to", "this JSON|exactly this structure|this structure|"
             "this form|this shape|this format|exactly this format", _END),
    *combine("|JSON|Answer|Output|Wanted", "format|shape|structure|form", ":\n{shape}|: {shape}"),
)  # fmt: skip
_SCHEMA = "this schema|this JSON schema|the following JSON Schema|the schema below"
_ASK_SCHEMA = (
    *combine(_VERBS, "the data|the facts|the values|the text", "as JSON", "that follows|for|"
             "that matches|with", _SCHEMA, _END),
    *combine(f"{_ANSWER}|Return", "with JSON|with an object|with only JSON|with one JSON object",
             "that follows|that matches|that is valid against|of|that conforms to", _SCHEMA, _END),
    *combine(_YOUR, "must|has to|should", "match|follow|satisfy|conform to|be valid against",
             _SCHEMA, _END),
    *combine(_TURN, _TEXT, "into JSON", "of|for|that follows|that matches", _SCHEMA, _END),
    *combine("Use|Follow|Keep to|Parse the text into|Fill in an object of|Read the text into",
             _SCHEMA, _END),
    *combine("|JSON|Answer|Output|Structured output,|Here is the|The text as JSON.",
             "schema|JSON schema|type", _END),
)  # fmt: skip
_LAYOUTS = (
    "{ask}\n\n{text}", "{ask}\n\nText:\n{text}", "{ask}\n\nText: {text}", "{text}\n\n{ask}",
    "{ask}\n\n\"\"\"\n{text}\n\"\"\"", "Text: {text}\n\n{ask}", "A text:\n\n{text}\n\n{ask}",
    "{ask}\n\n<text>\n{text}\n</text>", "<text>\n{text}\n</text>\n\n{ask}", "{ask}\n---\n{text}",
    "{text}\n---\n{ask}", "Read this.\n\n{text}\n\n{ask}", "# Text\n\n{text}\n\n# Task\n\n{ask}",
    "{ask}\n\nThis is the text:\n\n{text}", "# Task\n\n{ask}\n\n# Input\n\n{text}",
)  # fmt: skip
_GREETINGS = (("Hello,", "Best regards"), ("Hi!", "Thanks"), ("Dear team,", "Kind regards"))


@dataclass(frozen=True, slots=True)
class Asked:
    """A field under the key that an answer has it."""

    field: Field
    key: str


def _extract_inline(source: Source, effort: Effort) -> Branch:
    first, second, sentence = source.choice(JOINT)
    drawn: dict[str, Any] = {
        "name": source.person(), "city": source.city(), "age": source.rng.randint(1, 99),
    }  # fmt: skip
    values = {key: drawn[key] for key in (first, second)}
    text = sentence.format(**values)
    if source.chance(0.3):
        text = f"{_idle_sentence(source)} {text}"
    keys = source.choice((" and ", ", ")).join(values)
    return json_branch(source, effort, phrase(source, INLINE, keys=keys, text=text), values)


def _extract(source: Source, effort: Effort) -> Branch:
    if source.chance(0.12):
        return _extract_inline(source, effort)
    asked = draw_asked(source)
    text, values = draw_text(source, asked)
    ask = _ask(source, asked)
    layout = source.choice(_LAYOUTS)
    return json_branch(source, effort, layout.format(ask=ask, text=text), values)


def draw_asked(source: Source) -> list[Asked]:
    """Draw one to six fields with different keys, none of which says what another one does."""
    n_fields = source.rng.choice((1, 1, 2, 2, 3, 3, 4, 5, 6))
    asked: list[Asked] = []
    for field in source.some(FIELDS, 12, 12):
        field = custom_field(source) if source.chance(0.12) else field
        key = source.choice(field.keys)
        if not _clashes(field, asked) and key not in [a.key for a in asked]:
            asked.append(Asked(field, key))
    return asked[:n_fields]


def _clashes(field: Field, others: list[Asked]) -> bool:
    """Whether a text that states the others must not state this field too."""
    return any(
        other.field.keys[0] == field.keys[0] or (field.group and other.field.group == field.group)
        for other in others
    )


def draw_text(source: Source, asked: list[Asked]) -> tuple[str, dict[str, Any]]:
    """Write a text that states the fields among other things; also return their values."""
    values = {a.key: a.field.draw(source) for a in asked}
    as_form = source.chance(0.2)
    sentences: list[str] = []
    for a in asked:
        value = values[a.key]
        in_form = a.field.state_in_form(source, a.key, value)
        sentences.append(in_form if as_form else a.field.state(source, value))
    for _ in range(source.rng.randint(0, 4)):
        if source.chance(0.5):
            sentences.append(_idle_sentence(source))
            continue
        field = source.choice(FIELDS)
        if not _clashes(field, asked):
            asked = [*asked, Asked(field, field.keys[0])]
            value = field.draw(source)
            in_form = field.state_in_form(source, field.keys[0], value)
            sentences.append(in_form if as_form else field.state(source, value))
    source.rng.shuffle(sentences)
    if as_form or source.chance(0.15):
        return "\n".join(sentences), values
    text = " ".join(sentences)
    if source.chance(0.15):
        greeting, regards = source.choice(_GREETINGS)
        text = f"{greeting}\n\n{text}\n\n{regards}"
    return text, values


def _idle_sentence(source: Source) -> str:
    """Draw a sentence that states no field."""
    while "minutes" in (sentence := source.sentence()):  # that could be taken for a duration
        pass
    return sentence


def _ask(source: Source, asked: list[Asked]) -> str:
    form = source.rng.random()
    if form < 0.3:
        return phrase(source, _ASK_FIELDS, keys=_keys_in_words(source, asked))
    if form < 0.65:
        return phrase(source, _ASK_SHAPE, shape=_skeleton(source, asked))
    indent = source.choice((None, None, 2, 4))
    schema = json.dumps(schema_of(source, asked), indent=indent)
    shape = fenced(schema, source.choice(("", "json"))) if source.chance(0.3) else schema
    return phrase(source, _ASK_SCHEMA, shape=shape)


def _keys_in_words(source: Source, asked: list[Asked]) -> str:
    mark = source.choice(('"', "`", "", ""))
    keys = [f"{mark}{a.key}{mark}{_nested(a.field)}" for a in asked]
    joint = source.choice((" and ", ", "))
    return ", ".join(keys[:-1]) + (joint if len(keys) > 1 else "") + keys[-1]


def _nested(field: Field) -> str:
    schema = field.schema
    if "enum" in schema:
        return f" ({'/'.join(schema['enum'])})"
    if schema["type"] == "object":
        return f" (object with {', '.join(schema['properties'])})"
    if schema["type"] != "array":
        return ""
    entry = schema["items"]
    if entry["type"] == "object":
        return f" (list of objects with {', '.join(entry['properties'])})"
    return " (list)"


def _skeleton(source: Source, asked: list[Asked]) -> str:
    """Show the shape of the answer with types or empty values in place of the values."""
    style = source.choice(("bare", "quoted", "empty", "list", "hint"))
    if style in ("list", "hint"):
        lines = []
        for a in asked:
            kind = a.field.schema["type"] + _nested(a.field).replace(" (list)", " of strings")
            lines.append(f"- {a.key}: {a.field.hint if style == 'hint' else kind}")
            lines[-1] += f" ({kind})" if style == "hint" else ""
        return "\n".join(lines)
    shape = {a.key: _example(a.field.schema, style) for a in asked}
    text = json.dumps(shape, ensure_ascii=False, indent=source.choice((None, None, 2)))
    return text.replace('"<', "").replace('>"', "") if style == "bare" else text


def _example(schema: dict[str, Any], style: str) -> Any:
    kind = schema["type"]
    if kind == "object":
        return {key: _example(entry, style) for key, entry in schema["properties"].items()}
    if kind == "array":
        return [_example(schema["items"], style)]
    if style == "empty":
        return {"string": "...", "integer": 0, "number": 0.0, "boolean": True}[kind]
    name = " | ".join(schema["enum"]) if "enum" in schema else kind
    return f"<{name}>" if style == "bare" else name


def schema_of(source: Source, asked: list[Asked]) -> dict[str, Any]:
    """The JSON schema of an object of these fields."""
    with_hints, is_closed = source.chance(0.3), source.chance(0.3)
    properties = {
        a.key: {**a.field.schema, "description": a.field.hint} if with_hints else a.field.schema
        for a in asked
    }
    schema = object_schema(properties)
    return {**schema, "additionalProperties": False} if is_closed else schema


def json_branch(source: Source, effort: Effort, content: str, values: dict[str, Any]) -> Branch:
    """Ask for values that are read from a text; the answer is one JSON object."""
    keys = ", ".join(values)
    analysis: dict[Effort, str] = {
        "low": "",
        "medium": f"I read from the text: {keys}.",
        "high": f"The answer is one JSON object. Its keys are: {keys}. I find each value in the "
        "text and copy it exactly. Numbers stand without quotes. I add nothing else.",
    }
    answer = Answer(json.dumps(values, ensure_ascii=False), analysis[effort])
    message = Message(role="user", content=content)
    return Branch("extract", (message,), answer, is_json=True, opens_final=source.chance(0.1))


BRANCHES: dict[str, Callable[[Source, Effort], Branch]] = {"extract": _extract}
