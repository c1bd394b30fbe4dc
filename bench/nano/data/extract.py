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
from bench.nano.data.extract_bank import FIELDS, custom_field
from bench.nano.data.extract_fields import Field, object_schema
from bench.nano.data.source import Source
from bench.nano.data.wording import phrase
from bench.nano.phrases import banks
from gptoss_local.harmony.message import Message
from gptoss_local.types import Effort

BANK = banks("extract")

_GREETINGS = (("Hello,", "Best regards"), ("Hi!", "Thanks"), ("Dear team,", "Kind regards"))


@dataclass(frozen=True, slots=True)
class Asked:
    """A field under the key that an answer has it."""

    field: Field
    key: str


def _extract_inline(source: Source, effort: Effort) -> Branch:
    first, second, sentence = source.choice(BANK.JOINT)
    drawn: dict[str, Any] = {
        "name": source.person(), "city": source.city(), "age": source.rng.randint(1, 99),
    }  # fmt: skip
    values = {key: drawn[key] for key in (first, second)}
    text = sentence.format(**values)
    if source.chance(0.3):
        text = f"{_idle_sentence(source)} {text}"
    keys = source.choice((" and ", ", ")).join(values)
    return json_branch(source, effort, phrase(source, BANK.INLINE, keys=keys, text=text), values)


def _extract(source: Source, effort: Effort) -> Branch:
    if source.chance(0.12):
        return _extract_inline(source, effort)
    asked = draw_asked(source)
    text, values = draw_text(source, asked)
    ask = _ask(source, asked)
    layout = source.choice(BANK.LAYOUTS)
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
        return phrase(source, BANK.ASK_FIELDS, keys=_keys_in_words(source, asked))
    if form < 0.65:
        return phrase(source, BANK.ASK_SHAPE, shape=_skeleton(source, asked))
    indent = source.choice((None, None, 2, 4))
    schema = json.dumps(schema_of(source, asked), indent=indent)
    shape = fenced(schema, source.choice(("", "json"))) if source.chance(0.3) else schema
    return phrase(source, BANK.ASK_SCHEMA, shape=shape)


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
