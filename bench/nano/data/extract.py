"""Branches that have facts read from a text and answered as JSON."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.nano.data.document import Answer, Branch, thought
from bench.nano.data.echo import QUOTES, fenced
from bench.nano.data.source import Source
from bench.nano.data.tools import user
from bench.nano.data.wording import phrase
from bench.nano.phrases import banks
from gptoss_local.types import Effort

BANK = banks("extract")
WORDS = banks("words")

Draw = Callable[[Source], Any]


@dataclass(frozen=True, slots=True)
class Field:
    """What may be read from a text."""

    keys: tuple[str, ...]
    hint: str
    schema: dict[str, Any]
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
        shown = text if text[0] not in QUOTES else self._shown(source, value)
        return f"{label}: {shown}"

    def _shown(self, source: Source, value: Any) -> str:
        text = _plain(source, value)
        if not self.is_quoted:
            return text
        pairs = [pair for pair in ('""', "``", "“”", "«»") if not set(pair) & set(text)]
        before, after = source.choice(pairs or ["“”"])
        return before + text + after


def _plain(source: Source, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return f"{value['street']}, {value['city']}, {value['zip']}"
    if isinstance(value, list):
        shown = [_item(v) if isinstance(v, dict) else str(v) for v in value]
        joint = source.choice((" and ", ", "))
        return ", ".join(shown[:-1]) + (joint if len(shown) > 1 else "") + shown[-1]
    return json.dumps(value)


def _item(item: dict[str, Any]) -> str:
    price = f" at {json.dumps(item['price'])} each" if "price" in item else ""
    return f"{item['quantity']} x {item['name']}{price}"


STRING: dict[str, Any] = {"type": "string"}
INTEGER: dict[str, Any] = {"type": "integer"}


def object_schema(properties: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Describe an object that has all these properties."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def any_words(source: Source) -> str:
    """Draw a short name of anything, often of rare tokens, with no mark that ends a value."""

    def draw() -> str:
        kind = source.rng.randrange(5)
        if kind <= 1:
            drop = dict.fromkeys(map(ord, '"`“”«»\\'))
            return source.tokens(source.rng.randint(1, 5)).translate(drop).strip()
        if kind == 2:
            return f"{source.choice(WORDS.ADJECTIVES)} {source.noun()}"
        return source.noun() if kind == 3 else f"{source.invented().capitalize()} {source.noun()}"

    return source.fresh(lambda: draw() or "thing")


def company(source: Source) -> str:
    def draw() -> str:
        name = source.token_word() if source.chance(0.4) else source.invented()
        return name.capitalize() + source.choice(
            ("", "", " GmbH", " Ltd", " Labs", " Group", " AG")
        )

    return source.fresh(draw)


def country(source: Source) -> str:
    real = (
        "Norway", "Japan", "Brazil", "Kenya", "Canada", "France", "India", "Chile", "Egypt",
        "Poland", "Spain", "Peru", "Ghana", "Iceland", "Vietnam", "Mexico", "Greece", "Finland",
    )  # fmt: skip
    if source.chance(0.5):
        return source.choice(real)
    name = source.token_word() if source.chance(0.5) else source.invented()
    return name.capitalize()


def email(source: Source) -> str:
    def draw() -> str:
        user = source.token_word().lower() if source.chance(0.4) else source.invented()
        joint = source.choice(("", ".", "_"))
        host = source.choice(("example.com", "mail.org", f"{source.invented()}.com", "post.net"))
        return f"{user}{joint}{source.invented()}@{host}"

    return source.fresh(draw)


def phone(source: Source) -> str:
    def draw() -> str:
        pick = source.rng.randrange
        forms = (
            f"+{pick(1, 99)} {pick(100, 999)} {pick(1000000, 9999999)}",
            f"555-{pick(1000, 9999)}", f"0{pick(100, 999)} {pick(100000, 9999999)}",
            f"({pick(100, 999)}) {pick(100, 999)}-{pick(1000, 9999)}",
        )  # fmt: skip
        return source.choice(forms)

    return source.fresh(draw)


def date(source: Source) -> str:
    pick = source.rng.randint
    month = source.choice(BANK.MONTHS)
    return source.choice((
        f"{pick(1950, 2035)}-{pick(1, 12):02d}-{pick(1, 28):02d}", f"{month} {pick(1, 28)}",
        f"{pick(1, 28)} {month} {pick(1950, 2035)}",
        f"{pick(1, 12)}/{pick(1, 28)}/{pick(1990, 2035)}",
    ))  # fmt: skip


def clock_time(source: Source) -> str:
    hour, minute = source.rng.randrange(24), source.rng.choice((0, 15, 30, 45, 5, 20, 52))
    return source.choice((f"{hour:02d}:{minute:02d}", f"{hour % 12 + 1}:{minute:02d} pm"))


def reference(source: Source) -> str:
    def draw() -> str:
        letters = source.token_word().upper() if source.chance(0.4) else source.choice("ABCXZ")
        return f"{letters}-{source.rng.randrange(10 ** source.rng.randint(2, 7))}"

    return source.fresh(draw)


def website(source: Source) -> str:
    name = source.token_word().lower() if source.chance(0.4) else source.invented()
    tail = source.choice(("", f"/{source.noun()}", f"/{source.invented()}"))
    ending = source.choice(("com", "org", "net", "dev"))
    return f"https://{name}.{ending}{tail}"


def some_words(options: tuple[str, ...]) -> Draw:
    """Draw lists of one to four words, now and then unknown ones."""

    def draw(source: Source) -> list[str]:
        known = source.some(options, 1, 4)
        return list(
            dict.fromkeys(source.token_word() if source.chance(0.3) else word for word in known)
        )

    return draw


def items(priced: bool) -> Draw:
    def draw(source: Source) -> list[dict[str, Any]]:
        drawn: list[dict[str, Any]] = []
        for noun in source.some(WORDS.NOUNS, 1, 3):
            name = source.token_word() if source.chance(0.4) else f"{noun}s"
            item: dict[str, Any] = {"name": name, "quantity": source.rng.randint(1, 40)}
            drawn.append(item | {"price": price(source)} if priced else item)
        return drawn

    return draw


def price(source: Source) -> float | int:
    whole = source.rng.randrange(1, 10 ** source.rng.randint(1, 5))
    cents = source.rng.choice((25, 5, 99, 49, source.rng.randrange(1, 100)))
    return whole if source.chance(0.4) else float(f"{whole}.{cents:02d}")


def decimal(low: int, high: int) -> Draw:
    return lambda source: float(f"{source.rng.randint(low, high)}.{source.rng.randrange(10)}")


def whole(low: int, high: int) -> Draw:
    return lambda source: source.rng.randint(low, high)


def address(source: Source) -> dict[str, Any]:
    name = source.token_word() if source.chance(0.4) else source.invented()
    kind = source.choice(("Street", "Road", "Lane", "Avenue"))
    street = f"{source.rng.randint(1, 299)} {name.capitalize()} {kind}"
    return {"street": street, "city": source.city(), "zip": f"{source.rng.randrange(1, 99999):05d}"}


def coin(source: Source) -> bool:
    return source.chance(0.5)


def _draw_of(kind: str, *arguments: Any) -> Draw:
    if kind == "choice":
        options = getattr(BANK, arguments[0]) if isinstance(arguments[0], str) else arguments[0]
        return lambda source: source.choice(options)
    if kind == "some_words":
        return some_words(getattr(BANK, arguments[0], WORDS.ADJECTIVES))
    if arguments:
        return globals()[kind](*arguments)
    return globals().get(kind) or getattr(Source, kind)


FIELDS = tuple(
    Field(**field | {"draw": _draw_of(*field["draw"])}) for field in BANK.FIELDS.values()
)


def custom_field(source: Source) -> Field:
    """Make up a field that nobody has seen."""
    first = source.choice(WORDS.NOUNS) if source.chance(0.5) else source.token_word().lower()
    second = source.choice(("code", "id", "kind", "value", "level", "count", "mode", "index"))
    keys = (f"{first}_{second}", f"{first}{second.capitalize()}")
    patterns = tuple(pattern.replace("LABEL", f"{first} {second}") for pattern in BANK.STATEMENTS)
    schema: dict[str, Any] = INTEGER if second in ("count", "level", "index") else STRING
    draw = whole(0, 9999) if schema is INTEGER else any_words
    hint = f"the {first} {second}"
    return Field(keys, hint, schema, draw, patterns, is_quoted=schema is STRING)


# Short requests as people type them: keys and text in one line, two facts in a sentence.


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
    analysis = thought(effort, BANK.THOUGHTS["json_branch"], keys=keys)
    answer = Answer(json.dumps(values, ensure_ascii=False), analysis)
    message = user(content)
    return Branch("extract", (message,), answer, is_json=True, opens_final=source.chance(0.1))


BRANCHES: dict[str, Callable[[Source, Effort], Branch]] = {"extract": _extract}
