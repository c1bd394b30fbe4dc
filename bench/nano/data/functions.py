"""Function calling: any declared function, one call or two, and reports of results."""

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from string import Formatter
from typing import Any, NamedTuple

from bench.nano.data.document import Answer, Branch
from bench.nano.data.source import Source
from bench.nano.data.tools import Ability, Toolset, arguments_json, call_and_result
from bench.nano.data.wording import phrase
from bench.nano.phrases import banks
from gptoss_local.harmony.message import Message, Tool
from gptoss_local.types import Effort

BANK = banks("functions")
WORDS = banks("words")

Schema = dict[str, Any]


def free_text(source: Source, _: Schema) -> str:
    """Any text of one line, half of it English."""
    kind = source.rng.random()
    if kind < 0.25:
        return source.fresh(source.sentence)
    if kind < 0.4:
        return source.fresh(lambda: source.sentence()[:-1].lower())
    return source.line()


def short_text(source: Source, _: Schema) -> str:
    kind = source.rng.random()
    if kind < 0.3:
        return source.fresh(lambda: f"{source.choice(WORDS.ADJECTIVES)} {source.noun()}")
    if kind < 0.5:
        return source.fresh(lambda: source.tokens(source.rng.randint(1, 5)))
    if kind < 0.7:
        return source.fresh(lambda: " ".join(source.token_word() for _ in range(3)))
    return source.fresh(source.invented) if kind < 0.8 else source.line()


def draw_city(source: Source, _: Schema) -> str:
    city = source.city()
    return f"{city}, {source.choice(_COUNTRIES)}" if source.chance(0.08) else city


def draw_symbol(source: Source, _: Schema) -> str:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    n = source.rng.randint(2, 5)
    return source.fresh(lambda: "".join(source.choice(letters) for _ in range(n)))


def draw_amount(source: Source, schema: Schema) -> int | float:
    if schema["type"] == "number" and source.chance(0.3):
        return source.rng.randrange(1, 100000) / 100
    return source.rng.randrange(1, source.choice((10, 100, 1000, 100000)))


def draw_currency(source: Source, schema: Schema) -> str:
    return source.choice(BANK.CURRENCIES) if source.chance(0.7) else draw_symbol(source, schema)[:3]


def draw_email_address(source: Source, _: Schema) -> str:
    def draw() -> str:
        host = source.invented() + source.choice((".com", ".org", ".net", ".io", ".example"))
        name = source.person().lower().replace(" ", source.choice("._-"))
        return f"{name if source.chance(0.6) else source.token_word().lower()}@{host}"

    return source.fresh(draw)


def draw_time(source: Source, _: Schema) -> str:
    hour, minute = source.rng.randrange(24), source.rng.randrange(60)
    if source.chance(0.7):
        return f"{hour:02d}:{minute:02d}" if source.chance(0.8) else f"{hour}:{minute:02d}"
    half = source.choice(("am", "pm", "AM", "PM"))
    clock = f"{hour % 12 + 1}:{minute:02d}" if source.chance(0.5) else str(hour % 12 + 1)
    return f"{clock}{source.choice((' ', ' ', ''))}{half}"


def draw_date(source: Source, _: Schema) -> str:
    year, month = source.rng.randrange(2020, 2040), source.rng.randrange(12)
    day = source.rng.randrange(1, 29)
    kind = source.rng.randrange(5)
    if kind <= 1:
        return f"{year}-{month + 1:02d}-{day:02d}"
    if kind == 2:
        return f"{BANK.MONTHS[month]} {day}"
    return (
        f"{day} {BANK.MONTHS[month]} {year}" if kind == 3 else f"{BANK.MONTHS[month]} {day}, {year}"
    )


def draw_expression(source: Source, _: Schema) -> str:
    def number() -> str:
        whole = source.rng.randrange(1, source.choice((10, 100, 10000)))
        return f"{whole}.{source.rng.randrange(10)}" if source.chance(0.1) else str(whole)

    gap = source.choice((" ", " ", ""))
    text = number()
    for _ in range(source.rng.randint(1, 4)):
        text += gap + source.choice("+-*/") + gap
        text += f"({number()}{gap}{source.choice('+-')}{gap}{number()})" \
            if source.chance(0.2) else number()  # fmt: skip
    return f"sqrt({text})" if source.chance(0.05) else text


def draw_word(source: Source, _: Schema) -> str:
    draws = (source.noun, source.invented, source.token_word, source.token_word)
    draw = source.choice(draws)
    return source.fresh(lambda: draw().lower())


def draw_record_id(source: Source, schema: Schema) -> str | int:
    if schema["type"] == "integer":
        return source.rng.randrange(1, 10 ** source.rng.randint(1, 7))
    return source.fresh(lambda: source.secret().replace(" ", "-"))


def draw_artist(source: Source, _: Schema) -> str:
    return source.person() if source.chance(0.6) else source.fresh(
        lambda: f"The {source.invented().capitalize()} {source.noun().capitalize()}s"
    )  # fmt: skip


def draw_device(source: Source, _: Schema) -> str:
    thing = source.choice(BANK.DEVICES) if source.chance(0.7) else source.fresh(source.invented)
    return f"{source.choice(_ROOMS)} {thing}" if source.chance(0.6) else thing


_COUNTRIES = ("FR", "France", "Germany", "Japan", "USA", "UK", "Canada", "CA", "Texas", "Spain")
_ROOMS = ("kitchen", "bedroom", "bathroom", "office", "hall", "garage", "garden", "living room")
DRAWS: dict[str, Callable[[Source, Schema], object]] = {
    "city": draw_city, "symbol": draw_symbol, "amount": draw_amount, "currency": draw_currency,
    "email_address": draw_email_address, "time": draw_time, "date": draw_date,
    "expression": draw_expression, "word": draw_word, "record_id": draw_record_id,
    "artist": draw_artist, "device": draw_device, "free_text": free_text, "short_text": short_text,
    "person": lambda source, _: source.person(),
    "minutes": lambda source, _: source.rng.randrange(1, 600),
}  # fmt: skip


class Argument(NamedTuple):
    """One argument of a family's functions.

    Attributes:
        slot: What phrasings call it.
        draw: A value as the user writes it, which the schema can take.
        is_free: Any text, which needs quotes within a sentence.
    """

    slot: str
    names: str
    descriptions: str
    draw: Callable[[Source, Schema], object]
    schemas: tuple[Schema, ...] = ({"type": "string"},)
    is_free: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """Functions with one purpose. `|` separates variants.

    Attributes:
        thing: What the user wants, as a noun phrase with slots of short values only.
    """

    role: str
    names: str
    descriptions: str
    thing: str
    arguments: tuple[Argument, ...]


def _families_argument(given: dict[str, Any]) -> Argument:
    """An argument as banks.toml has it, where a draw is a name and `one_of` options."""
    options, draw = given.pop("one_of", None), given.pop("draw", "")
    if isinstance(options, str):
        options = getattr(BANK, options)
    drawn = (lambda source, _: source.choice(options)) if options else DRAWS[draw]
    return Argument(draw=drawn, **given)


FAMILIES = tuple(
    Family(**family | {"arguments": tuple(map(_families_argument, family["arguments"]))})
    for family in BANK.FAMILIES
)


_QUOTES = ('""', '""', '""', "''", "``", "``", "“”", "«»")
_KINDS = ("user", "customer", "account", "client", "member")
_OUTER_ABOUT = ("What is wanted", "The arguments", "One entry for each", "All values", "The data")


@dataclass(frozen=True, slots=True)
class Request:
    """What a user asks of one function.

    Attributes:
        slots: For `Ability.fill`.
        need: What the analysis says of it, a sentence.
        thing: What is wanted as a noun phrase, if it says all there is to know.
    """

    text: str
    slots: dict[str, object]
    need: str
    thing: str = ""


@dataclass(frozen=True, slots=True)
class FunctionAbility(Ability):
    """An ability that makes up requests for itself.

    Attributes:
        ask: Whether the request must be clear within a longer message -> a request.
    """

    ask: Callable[[Source, bool], Request]


class Phrasings(NamedTuple):
    """Requests that have the same slots.

    Attributes:
        ask: They begin with a verb.
        bare: The slot whose text needs no quotes, as it ends the message.
    """

    templates: tuple[str, ...]
    ask: bool = True
    bare: str = ""


def quoted(source: Source, text: str) -> str:
    """Put quotes around a text that does not contain them."""
    fitting = [q for q in _QUOTES if q[0] not in text and q[1] not in text]
    left, right = source.choice(fitting) if fitting else ("\n```\n", "\n```\n")
    return f"{left}{text}{right}"


def parameters_schema(
    source: Source, properties: dict[str, Schema], optional: frozenset[str]
) -> dict[str, Any]:
    """Make an object's schema of properties, in one of the ways people write them."""
    required = [name for name in properties if name not in optional]
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if source.chance(0.9):
        schema["required"] = required if source.chance(0.85) else required[:1]
    if source.chance(0.25):
        schema["additionalProperties"] = False
    return schema


def add_extra(source: Source, properties: dict[str, Schema]) -> tuple[dict[str, Schema], str]:
    """Now and then put in an argument that no request gives; its name or nothing."""
    name, schema = source.choice(BANK.EXTRAS).values()
    if name in properties or not source.chance(0.25):
        return properties, ""
    items = list(properties.items())
    items.insert(source.rng.randint(0, len(items)), (name, schema))
    return dict(items), name


def draw_family_ability(source: Source, family: Family) -> FunctionAbility:
    """Declare one function of a family."""
    schema_of = {a.slot: source.choice(a.schemas) for a in family.arguments}
    name_of = _argument_names(source, family.arguments)
    properties: dict[str, Schema] = {}
    shown = [a for a in family.arguments if a.slot != "unit" or source.chance(0.6)]
    if source.chance(0.3):
        source.rng.shuffle(shown)
    for argument in shown:
        about = source.choice(argument.descriptions.split("|"))
        described = {"description": about} if about else {}
        properties[name_of[argument.slot]] = {**schema_of[argument.slot], **described}
    properties, extra = add_extra(source, properties)
    banks = _banks(family.role, has_unit="unit" in {a.slot for a in shown})
    always = frozenset.intersection(*(_slots_of(bank.templates[0]) for bank in banks))
    optional = frozenset({extra, *(name_of[a.slot] for a in shown if a.slot not in always)})
    order = [(name_of[a.slot], a.slot, schema_of[a.slot]) for a in shown]
    name, about = (source.choice(t.split("|")) for t in (family.names, family.descriptions))
    if about and source.chance(0.2):  # the description alone says what it is for
        name = source.identifier() if source.chance(0.5) else source.fresh(source.invented)
    parameters = parameters_schema(source, properties, optional)
    outer = source.choice(BANK.OUTER) if source.chance(0.12) else ""
    is_list = source.chance(0.5)
    if outer:
        parameters = _wrapped(source, outer, parameters, is_list=is_list)
    tool = Tool(name=name, description=about, parameters=parameters)

    def fill(slots: Mapping[str, object]) -> dict[str, object]:
        given = {n: json_value(slots[slot], s) for n, slot, s in order if slot in slots}
        return {outer: [given] if is_list else given} if outer else given

    def ask(source: Source, in_pair: bool) -> Request:
        request = _request_ask(source, family, schema_of, banks, in_pair=in_pair)
        if in_pair or not source.chance(0.12):
            return request
        return _by_name(source, name, fill(request.slots), request.slots)

    return FunctionAbility(family.role, tool, fill, ask)


def _wrapped(
    source: Source, name: str, parameters: dict[str, Any], *, is_list: bool
) -> dict[str, Any]:
    """Put all arguments into one object, or into a list of which the user wants one entry."""
    inner: Schema = {"type": "array", "items": parameters} if is_list else parameters
    if source.chance(0.3):
        inner = {**inner, "description": source.choice(_OUTER_ABOUT)}
    return parameters_schema(source, {name: inner}, frozenset())


def _argument_names(source: Source, arguments: tuple[Argument, ...]) -> dict[str, str]:
    """Choose names; if two agree, all get their first, which never do."""
    chosen = {a.slot: source.choice(a.names.split("|")) for a in arguments}
    if len(set(chosen.values())) == len(chosen):
        return chosen
    return {a.slot: a.names.split("|")[0] for a in arguments}


@functools.cache
def _slots_of(template: str) -> frozenset[str]:
    return frozenset(name for _, name, _, _ in Formatter().parse(template) if name)


def _banks(role: str, *, has_unit: bool) -> tuple[Phrasings, ...]:
    banks = (Phrasings(**bank) for bank in BANK.PHRASINGS[role])
    return tuple(b for b in banks if has_unit or "unit" not in _slots_of(b.templates[0]))


def _request_ask(
    source: Source,
    family: Family,
    schema_of: dict[str, Schema],
    banks: tuple[Phrasings, ...],
    *,
    in_pair: bool,
) -> Request:
    """Draw a request and the values in it; in a pair, all free text stands in quotes."""
    bank = source.choice([b for b in banks if not (in_pair and b.bare)])
    asked = _slots_of(bank.templates[0])
    slots: dict[str, object] = {}
    written: dict[str, object] = {}
    for argument in family.arguments:
        if argument.slot not in asked:
            continue
        value = argument.draw(source, schema_of[argument.slot])
        slots[argument.slot] = written[argument.slot] = value
        if argument.is_free and argument.slot != bank.bare:
            written[argument.slot] = quoted(source, str(value))
    if "kind" in asked:
        written["kind"] = source.choice(_KINDS)
    text = phrase(source, bank.templates, ask=bank.ask, **written)
    thing = family.thing.format(**written)
    is_whole = {a.slot for a in family.arguments if a.slot in asked} <= _slots_of(family.thing)
    return Request(text, slots, f"The user wants {thing}.", thing if is_whole else "")


def _by_name(
    source: Source, name: str, arguments: dict[str, object], slots: dict[str, object]
) -> Request:
    """Name the function and its arguments outright."""
    joint = source.choice(("=", "=", " = ", ": ", " ", " set to "))
    given = [f"{key}{joint}{_spelled(source, value)}" for key, value in arguments.items()]
    last = source.choice((", ", " and "))
    text = ", ".join(given[:-1]) + (last if len(given) > 1 else "") + given[-1]
    need = f"The user names `{name}`."
    return Request(phrase(source, BANK.EXPLICIT, ask=False, name=name, given=text), slots, need)


def _spelled(source: Source, value: object) -> str:
    """A value that may stand within a sentence."""
    if not isinstance(value, str):
        return json.dumps(value)
    is_word = value.isalnum() and value.isascii() and not value.isdigit()
    return value if is_word and source.chance(0.6) else quoted(source, value)


def json_value(value: object, schema: Schema) -> object:
    """Spell a value in the user's words as the schema wants it."""
    if schema["type"] == "boolean":
        return value == "on"
    if "enum" in schema:
        same = BANK.SAME.get(str(value), (str(value),))
        return next(option for option in schema["enum"] if option in same)
    return str(value) if schema["type"] == "string" else value


_YES = ("true", "true", "True", "yes")
_NO = ("false", "false", "False", "no")


def draw_invented_ability(source: Source, role: str) -> FunctionAbility:
    """Declare a function that does not exist anywhere."""
    verb = source.choice(BANK.DOINGS) if source.chance(0.4) else source.invented()
    thing = source.invented() if source.chance(0.5) else source.noun()
    deed = f"{verb} the {thing}"
    if source.chance(0.4):
        deed += f" of the {source.invented() if source.chance(0.5) else source.noun()}"
    n = source.choice((0, 1, 1, 2, 2, 2, 3, 3, 4, 5))
    wanted = {name: _draw_schema(source) for name in (_invented_argument(source) for _ in range(n))}
    optional = frozenset(name for name in wanted if source.chance(0.2))
    properties, extra = add_extra(source, wanted)
    has_deed = source.chance(0.6)
    tool = Tool(
        name=_function_name(source, verb, thing, is_related=has_deed and source.chance(0.6)),
        description=_description(source, deed, has_deed=has_deed),
        parameters=parameters_schema(source, properties, optional | {extra})
        if properties or source.chance(0.5)
        else None,
    )

    def fill(slots: Mapping[str, object]) -> dict[str, object]:
        return {name: slots[name] for name in properties if name in slots}

    def ask(source: Source, in_pair: bool) -> Request:
        given = {
            name: _draw_value(source, schema)
            for name, schema in wanted.items()
            if name not in optional or source.chance(0.5)
        }
        return _invented_ask(source, tool.name, deed if has_deed else "", given, in_pair=in_pair)

    return FunctionAbility(role, tool, fill, ask)


def _function_name(source: Source, verb: str, thing: str, *, is_related: bool) -> str:
    if not is_related:
        return source.identifier() if source.chance(0.5) else source.fresh(source.invented)
    style = source.rng.randrange(5)
    if style <= 1:
        return f"{verb}_{thing}"
    if style == 2:
        return verb + thing.capitalize()
    return verb if style == 3 else verb.capitalize() + thing.capitalize()


def _description(source: Source, deed: str, *, has_deed: bool) -> str:
    if has_deed:
        text = deed[0].upper() + deed[1:] + source.choice((".", "", "."))
        return f"{text} {source.sentence()}" if source.chance(0.2) else text
    kind = source.rng.random()
    if kind < 0.3:
        return ""
    return source.sentence() if kind < 0.7 else source.tokens(source.rng.randint(2, 12))


def _invented_argument(source: Source) -> str:
    kind = source.rng.random()
    if kind < 0.35:
        return source.choice(BANK.ARGUMENT_KEYS)
    return source.choice(WORDS.CODE_WORDS) if kind < 0.6 else source.identifier()


def _draw_schema(source: Source, depth: int = 0) -> Schema:
    """Any type; objects and arrays of them hold simple values, rarely objects again."""
    kind = source.rng.random()
    schema: Schema
    if kind < 0.32:
        schema = {"type": "string"}
    elif kind < 0.6:
        schema = {"type": source.choice(("integer", "integer", "number", "boolean"))}
    elif kind < 0.68 or depth == 2 or (depth == 1 and kind < 0.78):
        options = {source.choice((source.noun, source.invented))() for _ in range(3)}
        schema = {"type": "string", "enum": sorted(options)}
    elif kind < 0.79:
        schema = {
            "type": "array",
            "items": {"type": source.choice(("string", "string", "integer"))},
        }
    else:
        names = [_invented_argument(source) for _ in range(source.rng.randint(1, 3))]
        inner = {name: _draw_schema(source, depth + 1) for name in names}
        schema = {"type": "object", "properties": inner}
        if source.chance(0.5):
            schema["required"] = names
        if kind > 0.9:
            schema = {"type": "array", "items": schema}
    if source.chance(0.3 if depth == 0 else 0.1):
        schema["description"] = source.sentence() if source.chance(0.5) else source.noun()
    return schema


def _draw_value(source: Source, schema: Schema) -> object:
    pick = source.rng.randrange
    match schema["type"]:
        case "integer":
            return pick(10 ** source.rng.randint(1, 6)) * (-1 if source.chance(0.1) else 1)
        case "number":
            return pick(1000) / source.choice((4, 10, 100)) if source.chance(0.7) else pick(100)
        case "boolean":
            return source.chance(0.5)
        case "array":
            most = 2 if schema["items"]["type"] == "object" else 4
            n = source.rng.randint(1, most)
            return [_draw_value(source, schema["items"]) for _ in range(n)]
        case "object":
            return {name: _draw_value(source, s) for name, s in schema["properties"].items()}
    if "enum" in schema:
        return source.choice(schema["enum"])
    if source.chance(0.5):
        return source.fresh(source.choice((source.invented, source.token_word, source.noun)))
    return free_text(source, schema).replace("\\", "/")  # not clear whether it would be an escape


def _invented_ask(
    source: Source, name: str, deed: str, given: dict[str, object], *, in_pair: bool
) -> Request:
    """Draw a request, by the function's name or by what it does."""
    by_deed = bool(deed) and source.chance(0.4)
    need = f"The request fits `{name}`." if by_deed else f"The user names `{name}`."
    deed = deed[:1].upper() + deed[1:] if source.chance(0.5) else deed
    if not given:
        templates = BANK.BARE_DEED if by_deed else BANK.BARE
        return Request(phrase(source, templates, name=name, deed=deed), {}, need)
    if not by_deed and source.chance(0.2):
        spelled = (f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in _mixed(source, given))
        return Request(
            phrase(source, BANK.AS_CODE, given=f"{name}({', '.join(spelled)})"), given, need
        )
    if not by_deed and source.chance(0.2):
        templates, is_imperative = BANK.BY_NAME_NO_VERB, False
    else:
        templates, is_imperative = (BANK.BY_DEED if by_deed else BANK.BY_NAME), True
    written = _write(source, given, in_pair=in_pair)
    text = phrase(source, templates, ask=is_imperative, name=name, deed=deed, given=written)
    return Request(text, given, need)


def _mixed(source: Source, given: dict[str, object]) -> list[tuple[str, object]]:
    """Mostly in the schema's order, as people do."""
    items = list(given.items())
    if source.chance(0.25):
        source.rng.shuffle(items)
    return items


def _write(source: Source, given: dict[str, object], *, in_pair: bool) -> str:
    """Write arguments as people do: JSON, lists, prose."""
    items = _mixed(source, given)
    style = source.rng.random()
    if style < 0.2:
        indent = 2 if source.chance(0.3) else None
        return json.dumps(dict(items), ensure_ascii=False, indent=indent)
    if style < 0.4 and not in_pair:
        mark, joint = source.choice(("- ", "* ", "", "  ")), source.choice((": ", " = ", ": "))
        return "".join(f"\n{mark}{name}{joint}{_bare(source, value)}" for name, value in items)
    tick = source.choice(("", "", "`"))
    joint = source.choice(("=", "=", " = ", ": ", " ", " is ", " set to "))
    parts = [f"{tick}{name}{tick}{joint}{_inline(source, value)}" for name, value in items]
    if len(parts) > 1 and source.chance(0.6):
        return ", ".join(parts[:-1]) + source.choice((" and ", ", and ", " and ")) + parts[-1]
    return ", ".join(parts)


def _bare(source: Source, value: object) -> str:
    """A value that ends with its line."""
    if isinstance(value, str) and not value.startswith(('"', "'", "`")):
        return value if source.chance(0.6) else quoted(source, value)
    return _inline(source, value)


def _inline(source: Source, value: object) -> str:
    """A value that may stand within a sentence."""
    if isinstance(value, str):
        if value.isalpha() and value.isascii() and source.chance(0.4):
            return value
        return quoted(source, value)
    if isinstance(value, bool):
        return source.choice(_YES if value else _NO)
    return json.dumps(value, ensure_ascii=False)


_TEMPERATURES = ("temperature", "temperature", "temperature", "temp")
_CONDITIONS = ("condition", "condition", "weather", "description", "conditions")


def draw_result(source: Source, role: str) -> str:
    """Draw what a function of a role may answer."""
    if role == "weather" and source.chance(0.75):
        return _weather(source)
    kind = source.rng.random()
    if kind < 0.03:
        return ""
    if kind < 0.13:
        result = source.choice(BANK.DONE)
    elif kind < 0.38:
        result = source.line()
    elif kind < 0.7:
        result = _json(source, role)
    elif kind < 0.76:
        result = source.choice(("Error: ", "error: ", "ERROR ", "Failed: ")) + source.line()
    else:
        result = _lines(source)
    end = "\n" if source.chance(0.1) else ""
    return result.replace("```", "'''") + end


def report(name: str, role: str, city: object, result: str) -> str:
    """Say what a function answered; the one right text."""
    text = result.rstrip("\n")
    sentence = _weather_sentence(text, city) if role == "weather" else ""
    if sentence:
        return sentence
    if not text:
        return f"`{name}` answered nothing."
    if "\n" in text:
        return f"`{name}` answered:\n\n```\n{text}\n```"
    return f"`{name}` answered: {text}"


def _weather_sentence(text: str, city: object) -> str:
    try:
        found = json.loads(text)
    except ValueError:
        return ""
    if not isinstance(found, dict):
        return ""
    warmth = next((found[key] for key in _TEMPERATURES if key in found), None)
    sky = next((found[key] for key in _CONDITIONS if key in found), None)
    if not isinstance(warmth, int | float) or not isinstance(sky, str):
        return ""
    return f"It is {warmth} degrees and {sky} in {city}."


def _weather(source: Source) -> str:
    """An object as weather services give it."""
    warmth = source.rng.randrange(-20, 45)
    sky = source.choice(BANK.SKIES) if source.chance(0.75) else source.fresh(source.invented)
    found: dict[str, object] = {
        source.choice(_TEMPERATURES): warmth + source.rng.randrange(10) / 10
        if source.chance(0.15)
        else warmth,
        source.choice(_CONDITIONS): sky,
    }
    extras: tuple[tuple[str, Callable[[], object]], ...] = (
        ("unit", lambda: source.choice(("celsius", "fahrenheit", "C", "F"))),
        ("humidity", lambda: source.rng.randrange(100)),
        ("wind", lambda: source.rng.randrange(80)),
    )
    for key, draw in extras:
        if source.chance(0.15):
            found[key] = draw()
    items = list(found.items())
    if source.chance(0.3):
        source.rng.shuffle(items)
    return _dump(source, dict(items))


def _dump(source: Source, value: object) -> str:
    style = source.rng.random()
    if style < 0.6:
        return json.dumps(value, ensure_ascii=False)
    if style < 0.85:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return json.dumps(value, ensure_ascii=False, indent=2)


def _json(source: Source, role: str) -> str:
    keys = BANK.RESULT_KEYS.get(role, ())
    if not keys or source.chance(0.4):
        keys = tuple(source.choice(WORDS.CODE_WORDS) for _ in range(4))
    found = {key: _scalar(source) for key in keys[: source.rng.randint(1, 4)]}
    return _dump(source, [found] if source.chance(0.1) else found)


def _scalar(source: Source) -> object:
    kind = source.rng.random()
    if kind < 0.3:
        return source.rng.randrange(10 ** source.rng.randint(1, 7))
    if kind < 0.4:
        return source.rng.randrange(10**5) / 100
    if kind < 0.5:
        return source.choice((True, False, None))
    return source.secret() if kind < 0.7 else source.line()


def _lines(source: Source) -> str:
    n = source.rng.randint(2, 7)
    kind = source.rng.randrange(4)
    if kind == 0:
        return "\n".join(source.line() for _ in range(n))
    if kind == 1:
        return "\n".join(f"{source.choice(WORDS.CODE_WORDS)}: {source.line()}" for _ in range(n))
    if kind == 2:
        return "\n".join(f"{i}. {source.line()}" for i in range(1, n + 1))
    return "\n".join(source.sentence() for _ in range(n))


_PAIR = "{a} and {b}|{a} and in {b}|{a}, then in {b}|both {a} and {b}|{a} and also in {b}"
_PAIR_OF = _PAIR.replace(" in {b}", " of {b}")
_SLOT_ALIKE = {"weather": "city", "city_time": "city", "stock": "symbol"}


def draw_functions(source: Source) -> list[Ability]:
    """Declare one to four functions with different roles and names."""
    abilities: dict[str, Ability] = {}
    n = source.rng.randint(1, 4)
    families = source.rng.sample(FAMILIES, n)
    if source.chance(0.25):
        families[0] = FAMILIES[0]
    for index, family in enumerate(families):
        if source.chance(0.45):
            role = "invented" if index == 0 else f"invented_{index}"
            ability = draw_invented_ability(source, role)
        else:
            ability = draw_family_ability(source, family)
        if all(a.role != ability.role for a in abilities.values()):
            abilities.setdefault(ability.tool.name, ability)
    return list(abilities.values())


def _pick(source: Source, toolset: Toolset) -> FunctionAbility | None:
    fitting = [a for a in toolset.abilities.values() if isinstance(a, FunctionAbility)]
    return source.choice(fitting) if fitting else None


def _function_call(source: Source, effort: Effort, toolset: Toolset) -> Branch | None:
    ability = _pick(source, toolset)
    if ability is None:
        return None
    request = ability.ask(source, False)
    messages = (*_earlier(source, toolset), _user(request.text))
    name, arguments = ability.tool.name, ability.fill(request.slots)
    analysis = _call_analysis(effort, name, arguments, request.need)
    return Branch("function_call", messages, _call(name, arguments, analysis))


def _function_report(source: Source, effort: Effort, toolset: Toolset) -> Branch | None:
    ability = _pick(source, toolset)
    if ability is None:
        return None
    request = ability.ask(source, False)
    exchange, final = _exchange(source, effort, ability, request)
    messages = (*_earlier(source, toolset), *exchange)
    analysis = _report_analysis(effort, ability.tool.name, final)
    return Branch("function_report", messages, Answer(final, analysis))


def _function_two(source: Source, effort: Effort, toolset: Toolset) -> Branch | None:
    first, second = _pick(source, toolset), _pick(source, toolset)
    if first is None or second is None:
        return None
    text, one, two = _ask_two(source, first, second)
    calls = [(a.tool.name, a.fill(r.slots)) for a, r in ((first, one), (second, two))]
    analyses = [_two_analysis(effort, step, calls) for step in range(3)]
    messages = [*_earlier(source, toolset), _user(text)]
    n_done = source.rng.randrange(3)
    reports: list[str] = []
    for index, (ability, request) in enumerate(((first, one), (second, two))[:n_done]):
        result = draw_result(source, ability.role)
        messages += call_and_result(*calls[index], result, reasoning=analyses[index])
        reports.append(_report(ability, request, result))
    if n_done == 2:
        answer = Answer("\n\n".join(reports), analyses[2])
    else:
        answer = _call(*calls[n_done], analyses[n_done])
    return Branch("function_two", tuple(messages), answer)


BRANCHES: dict[str, Callable[[Source, Effort, Toolset], Branch | None]] = {
    "function_call": _function_call,
    "function_report": _function_report,
    "function_two": _function_two,
}


def _user(text: str) -> Message:
    return Message(role="user", content=text)


def _call(name: str, arguments: dict[str, object], analysis: str) -> Answer:
    return Answer(arguments_json(arguments), analysis, name)


def _exchange(
    source: Source, effort: Effort, ability: FunctionAbility, request: Request
) -> tuple[tuple[Message, ...], str]:
    """A request, its call and its result; and how the model reports that."""
    name, arguments = ability.tool.name, ability.fill(request.slots)
    result = draw_result(source, ability.role)
    reasoning = _call_analysis(effort, name, arguments, request.need)
    call = call_and_result(name, arguments, result, reasoning=reasoning)
    return (_user(request.text), *call), _report(ability, request, result)


def _earlier(source: Source, toolset: Toolset) -> tuple[Message, ...]:
    """Now and then a finished exchange about another request."""
    ability = _pick(source, toolset)
    if ability is None or not source.chance(0.3):
        return ()
    messages, final = _exchange(source, "low", ability, ability.ask(source, False))
    return (*messages, Message(role="assistant", content=final))


def _report(ability: FunctionAbility, request: Request, result: str) -> str:
    return report(ability.tool.name, ability.role, request.slots.get("city", ""), result)


def _ask_two(
    source: Source, first: FunctionAbility, second: FunctionAbility
) -> tuple[str, Request, Request]:
    """One message that wants two things, and the two requests in it."""
    one, two = first.ask(source, True), second.ask(source, True)
    slot = _SLOT_ALIKE.get(first.role, "")
    if first is second and one.slots.keys() == two.slots.keys() == {slot} and source.chance(0.6):
        values = {"a": one.slots[slot], "b": two.slots[slot]}
        return phrase(source, BANK.TWO_ALIKE[first.role], ask=False, **values), one, two
    if one.thing and two.thing and source.chance(0.6):
        return phrase(source, BANK.TWO_THINGS, ask=False, a=one.thing, b=two.thing), one, two
    text = phrase(source, BANK.TWO_REQUESTS, ask=False, a=_ended(one.text), b=two.text)
    return text, one, two


def _ended(text: str) -> str:
    return text if text.endswith((".", "?", "!", ":")) else text + "."


def _named(arguments: dict[str, object]) -> str:
    """Argument names for an analysis."""
    names = [f"`{name}`" for name in arguments]
    if not names:
        return "It needs no arguments."
    joined = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return f"I fill in {joined} from the message."


def _call_analysis(effort: Effort, name: str, arguments: dict[str, object], need: str) -> str:
    if effort == "low":
        return ""
    if effort == "medium":
        return f"{need} I call `{name}`."
    return (
        f"{need} So `{name}` is the function to call. {_named(arguments)} "
        "Nothing else is needed. I call it now."
    )


def _report_analysis(effort: Effort, name: str, final: str) -> str:
    if effort == "low":
        return ""
    if effort == "medium":
        return "The tool answered, so I report the result."
    if not final.startswith("`"):
        how = "It has a temperature and a condition. I say both in one sentence."
    elif "\n" in final:
        how = "It has several lines. I repeat them in a code fence."
    elif final == f"`{name}` answered nothing.":
        how = "There is no text. I say so."
    else:
        how = "It has one line. I repeat it as it is."
    return f"The function `{name}` has answered. The request is done. {how}"


def _two_analysis(effort: Effort, step: int, calls: list[tuple[str, dict[str, object]]]) -> str:
    """What the model thinks before the first call, the second, and the report."""
    if effort == "low":
        return ""
    if step == 2:
        if effort == "medium":
            return "Both results are here, so I report them."
        return "Both functions have answered. Nothing is left to call. I report both in order."
    name, arguments = calls[step]
    if effort == "medium":
        begin = "One result is here. Next" if step else "The user wants two things. First"
        return f"{begin} I call `{name}`."
    begin = "The first result is here. The second thing is left." if step else (
        "The user wants two things. I do one after the other."
    )  # fmt: skip
    return f"{begin} The function for it is `{name}`. {_named(arguments)} I call it now."
