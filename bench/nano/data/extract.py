"""Branches that have facts read from a text and answered as JSON.

A statement makes clear where its value ends: by quotes, by the end of the sentence or of the line.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from bench.nano.data.document import Answer, Branch, thought
from bench.nano.data.echo import QUOTES, fenced
from bench.nano.data.source import Source
from bench.nano.data.tools import user
from bench.nano.data.wording import phrase
from bench.nano.phrases import banks
from gptoss_local.base.types import Effort

BANK = banks("extract")
WORDS = banks("words")
Draw = Callable[[Source], Any]
Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Field:
    """What may be read from a text, stated by `patterns`, or `negative` ones for a no.

    Of fields with the same group a text states only one; `keys` are its names in JSON.
    """

    keys: tuple[str, ...]
    hint: str
    schema: Schema
    draw: Draw
    patterns: tuple[str, ...]
    negative: tuple[str, ...] = ()
    group: str = ""
    is_quoted: bool = False

    def state(self, source: Source, value: Any) -> str:
        """Say in one sentence what the value is."""
        if self.negative and not value:
            return source.choice(self.negative)
        return source.choice(self.patterns).format(v=self._shown(source, value))

    def state_in_form(self, source: Source, key: str, value: Any) -> str:
        """Say in one line, as in a form, what the value is."""
        label = "".join(f" {c.lower()}" if c.isupper() else c for c in key).replace("_", " ")
        label = label if source.chance(0.3) else label.capitalize()
        if isinstance(value, bool):
            return f"{label}: {'yes' if value else 'no'}"
        text = _plain(source, value)
        return f"{label}: {text if text[0] not in QUOTES else self._shown(source, value)}"

    def _shown(self, source: Source, value: Any) -> str:
        text = _plain(source, value)
        if not self.is_quoted:
            return text
        pairs = [pair for pair in ('""', "``", "“”", "«»") if not set(pair) & set(text)]
        before, after = source.choice(pairs or ["“”"])
        return before + text + after


def _plain(source: Source, value: Any) -> str:
    if isinstance(value, dict):
        return f"{value['street']}, {value['city']}, {value['zip']}"
    if isinstance(value, list):
        shown = [_item(v) if isinstance(v, dict) else str(v) for v in value]
        return _joined(shown, source.choice((" and ", ", ")))
    return value if isinstance(value, str) else json.dumps(value)


def _item(item: Schema) -> str:
    price = f" at {json.dumps(item['price'])} each" if "price" in item else ""
    return f"{item['quantity']} x {item['name']}{price}"


def _joined(parts: list[str], last: str) -> str:
    return ", ".join(parts[:-1]) + (last if len(parts) > 1 else "") + parts[-1]


def _word(source: Source) -> str:
    return source.token_word() if source.chance(0.4) else source.invented()


def _any_words(source: Source) -> str:
    """Draw a short name of anything, often of rare tokens, with no mark that ends a value."""

    def draw() -> str:
        kind = source.rng.randrange(5)
        if kind <= 1:
            drop = dict.fromkeys(map(ord, '"`“”«»\\'))
            return source.tokens(source.rng.randint(1, 5)).translate(drop).strip()
        first = (source.adjective, str, lambda: source.invented().capitalize())[kind - 2]()
        return f"{first} {source.noun()}".strip()

    return source.fresh(lambda: draw() or "thing")


def _country(source: Source) -> str:
    if source.chance(0.5):
        return source.choice(BANK.COUNTRIES)
    return (source.token_word() if source.chance(0.5) else source.invented()).capitalize()


def _email(source: Source) -> str:
    name = source.token_word().lower() if source.chance(0.4) else source.invented()
    joint = source.choice(("", ".", "_"))
    host = source.choice(("example.com", "mail.org", f"{source.invented()}.com", "post.net"))
    return f"{name}{joint}{source.invented()}@{host}"


def _phone(source: Source) -> str:
    pick = source.rng.randrange
    return source.choice((
        f"+{pick(1, 99)} {pick(100, 999)} {pick(1000000, 9999999)}", f"555-{pick(1000, 9999)}",
        f"0{pick(100, 999)} {pick(100000, 9999999)}",
        f"({pick(100, 999)}) {pick(100, 999)}-{pick(1000, 9999)}",
    ))  # fmt: skip


def _date(source: Source) -> str:
    pick, month = source.rng.randint, source.choice(BANK.MONTHS)
    return source.choice((
        f"{pick(1950, 2035)}-{pick(1, 12):02d}-{pick(1, 28):02d}", f"{month} {pick(1, 28)}",
        f"{pick(1, 28)} {month} {pick(1950, 2035)}",
        f"{pick(1, 12)}/{pick(1, 28)}/{pick(1990, 2035)}",
    ))  # fmt: skip


def clock_time(source: Source) -> str:
    hour, minute = source.rng.randrange(24), source.choice((0, 15, 30, 45, 5, 20, 52))
    return source.choice((f"{hour:02d}:{minute:02d}", f"{hour % 12 + 1}:{minute:02d} pm"))


def _reference(source: Source) -> str:
    letters = source.token_word().upper() if source.chance(0.4) else source.choice("ABCXZ")
    return f"{letters}-{source.rng.randrange(10 ** source.rng.randint(2, 7))}"


def _website(source: Source) -> str:
    name = source.token_word().lower() if source.chance(0.4) else source.invented()
    tail = source.choice(("", f"/{source.noun()}", f"/{source.invented()}"))
    return f"https://{name}.{source.choice(('com', 'org', 'net', 'dev'))}{tail}"


def _some_words(options: tuple[str, ...]) -> Draw:
    """Draw lists of one to four words, now and then unknown ones."""

    def draw(source: Source) -> list[str]:
        known = source.some(options, 1, 4)
        drawn = [source.token_word() if source.chance(0.3) else word for word in known]
        return list(dict.fromkeys(drawn))

    return draw


def _items(source: Source, *, priced: bool) -> list[Schema]:
    drawn: list[Schema] = []
    for noun in source.some(WORDS.NOUNS, 1, 3):
        name = source.token_word() if source.chance(0.4) else f"{noun}s"
        item: Schema = {"name": name, "quantity": source.rng.randint(1, 40)}
        drawn.append(item | {"price": _price(source)} if priced else item)
    return drawn


def _price(source: Source) -> float | int:
    whole = source.rng.randrange(1, 10 ** source.rng.randint(1, 5))
    cents = source.choice((25, 5, 99, 49, source.rng.randrange(1, 100)))
    return whole if source.chance(0.4) else float(f"{whole}.{cents:02d}")


def _address(source: Source) -> Schema:
    name, kind = _word(source), source.choice(("Street", "Road", "Lane", "Avenue"))
    street = f"{source.rng.randint(1, 299)} {name.capitalize()} {kind}"
    return {"street": street, "city": source.city(), "zip": f"{source.rng.randrange(1, 99999):05d}"}


def _fresh(draw: Callable[[Source], str]) -> Draw:
    return lambda source: source.fresh(lambda: draw(source))


_COMPANIES = ("", "", " GmbH", " Ltd", " Labs", " Group", " AG")
_DRAWS: dict[str, Draw] = {
    "city": Source.city, "person": Source.person, "line": Source.line, "any_words": _any_words,
    "country": _country, "date": _date, "clock_time": clock_time, "website": _website,
    "price": _price, "address": _address, "email": _fresh(_email), "phone": _fresh(_phone),
    "reference": _fresh(_reference), "coin": lambda source: source.chance(0.5),
    "company": _fresh(lambda source: _word(source).capitalize() + source.choice(_COMPANIES)),
}  # fmt: skip
_MAKES: dict[str, Callable[..., Draw]] = {
    "choice": lambda of: lambda s: s.choice(getattr(BANK, of) if isinstance(of, str) else of),
    "some_words": lambda of: _some_words(getattr(BANK, of, WORDS.ADJECTIVES)),
    "items": lambda priced: lambda source: _items(source, priced=priced),
    "whole": lambda low, high: lambda source: source.rng.randint(low, high),
    "decimal": lambda low, high: (
        lambda source: float(f"{source.rng.randint(low, high)}.{source.rng.randrange(10)}")
    ),
}


def _field(draw: list[Any], **given: Any) -> Field:
    kind, *arguments = draw
    return Field(draw=_MAKES[kind](*arguments) if arguments else _DRAWS[kind], **given)


FIELDS = tuple(_field(**field) for field in BANK.FIELDS.values())


def _custom_field(source: Source) -> Field:
    """Make up a field that nobody has seen."""
    first = source.noun() if source.chance(0.5) else source.token_word().lower()
    second = source.choice(("code", "id", "kind", "value", "level", "count", "mode", "index"))
    keys, name = (f"{first}_{second}", f"{first}{second.capitalize()}"), f"{first} {second}"
    patterns = tuple(pattern.replace("LABEL", name) for pattern in BANK.STATEMENTS)
    is_number = second in ("count", "level", "index")
    schema = {"type": "integer" if is_number else "string"}
    draw = (lambda s: s.rng.randint(0, 9999)) if is_number else _any_words
    return Field(keys, f"the {name}", schema, draw, patterns, is_quoted=not is_number)


class Asked(NamedTuple):
    """A field under the key that an answer has it."""

    field: Field
    key: str


def _extract_inline(source: Source, effort: Effort) -> Branch:
    first, second, sentence = source.choice(BANK.JOINT)
    drawn: Schema = {
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
    n_fields = source.choice((1, 1, 2, 2, 3, 3, 4, 5, 6))
    asked: list[Asked] = []
    for field in source.some(FIELDS, 12, 12):
        field = _custom_field(source) if source.chance(0.12) else field
        key = source.choice(field.keys)
        if not _clashes(field, asked) and key not in [a.key for a in asked]:
            asked.append(Asked(field, key))
    return asked[:n_fields]


def _clashes(field: Field, others: list[Asked]) -> bool:
    return any(
        other.field.keys[0] == field.keys[0] or (field.group and other.field.group == field.group)
        for other in others
    )


def draw_text(source: Source, asked: list[Asked]) -> tuple[str, Schema]:
    """Write a text that states the fields among other things; also return their values."""
    values = {a.key: a.field.draw(source) for a in asked}
    as_form = source.chance(0.2)
    sentences: list[str] = []

    def state(field: Field, key: str, value: Any) -> None:
        in_form = field.state_in_form(source, key, value)
        sentences.append(in_form if as_form else field.state(source, value))

    for a in asked:
        state(a.field, a.key, values[a.key])
    for _ in range(source.rng.randint(0, 4)):
        if source.chance(0.5):
            sentences.append(_idle_sentence(source))
            continue
        field = source.choice(FIELDS)
        if not _clashes(field, asked):
            asked = [*asked, Asked(field, field.keys[0])]
            state(field, field.keys[0], field.draw(source))
    source.rng.shuffle(sentences)
    if as_form or source.chance(0.15):
        return "\n".join(sentences), values
    text = " ".join(sentences)
    if source.chance(0.15):
        greeting, regards = source.choice(BANK.GREETINGS)
        text = f"{greeting}\n\n{text}\n\n{regards}"
    return text, values


def _idle_sentence(source: Source) -> str:
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
    return _joined(keys, source.choice((" and ", ", ")))


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


def _example(schema: Schema, style: str) -> Any:
    kind = schema["type"]
    if kind == "object":
        return {key: _example(entry, style) for key, entry in schema["properties"].items()}
    if kind == "array":
        return [_example(schema["items"], style)]
    if style == "empty":
        return {"string": "...", "integer": 0, "number": 0.0, "boolean": True}[kind]
    name = " | ".join(schema["enum"]) if "enum" in schema else kind
    return f"<{name}>" if style == "bare" else name


def schema_of(source: Source, asked: list[Asked]) -> Schema:
    """The JSON schema of an object of these fields."""
    with_hints, is_closed = source.chance(0.3), source.chance(0.3)
    properties = {
        a.key: {**a.field.schema, "description": a.field.hint} if with_hints else a.field.schema
        for a in asked
    }
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {**schema, "additionalProperties": False} if is_closed else schema


def json_branch(source: Source, effort: Effort, content: str, values: Schema) -> Branch:
    """Ask for values that are read from a text; the answer is one JSON object."""
    keys = ", ".join(values)
    analysis = thought(effort, BANK.THOUGHTS["json_branch"], keys=keys)
    answer = Answer(json.dumps(values, ensure_ascii=False), analysis)
    return Branch("extract", (user(content),), answer, is_json=True, opens_final=source.chance(0.1))


BRANCHES: dict[str, Callable[[Source, Effort], Branch]] = {"extract": _extract}
