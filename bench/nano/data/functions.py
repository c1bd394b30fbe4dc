"""Function calling: any declared function, one call or two, and reports of results."""

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from string import Formatter
from typing import Any, NamedTuple

from bench.nano.data.document import Answer, Branch, thought
from bench.nano.data.source import Source
from bench.nano.data.tools import Ability, Toolset, call_and_result, call_answer, user
from bench.nano.data.wording import phrase
from bench.nano.phrases import banks
from gptoss_local.base.types import Effort
from gptoss_local.harmony.message import Message, Tool

BANK = banks("functions")
WORDS = banks("words")

Schema = Values = dict[str, Any]
Draw = Callable[[Source, Schema], Any]
_QUOTES = ('""', '""', '""', "''", "``", "``", "“”", "«»")
_JOINTS = ("=", "=", " = ", ": ", " ", " set to ")


def _free_text(source: Source, _: Schema) -> str:
    return source.drawn(
        (0.25, lambda: source.fresh(source.sentence)),
        (0.4, lambda: source.fresh(lambda: source.sentence()[:-1].lower())),
        (1, source.line),
    )


def _short_text(source: Source, _: Schema) -> str:
    def draw(make: Callable[[], str]) -> Callable[[], str]:
        return lambda: source.fresh(make)

    return source.drawn(
        (0.3, draw(lambda: f"{source.adjective()} {source.noun()}")),
        (0.5, draw(lambda: source.tokens(source.rng.randint(1, 5)))),
        (0.7, draw(lambda: " ".join(source.token_word() for _ in range(3)))),
        (0.8, draw(source.invented)),
        (1, source.line),
    )


def _city(source: Source, _: Schema) -> str:
    city = source.city()
    return f"{city}, {source.choice(BANK.COUNTRIES)}" if source.chance(0.08) else city


def _symbol(source: Source, _: Schema) -> str:
    letters, n = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", source.rng.randint(2, 5)
    return source.fresh(lambda: "".join(source.choice(letters) for _ in range(n)))


def _amount(source: Source, schema: Schema) -> float:
    if schema["type"] == "number" and source.chance(0.3):
        return source.rng.randrange(1, 100000) / 100
    return source.rng.randrange(1, source.choice((10, 100, 1000, 100000)))


def _email_address(source: Source, _: Schema) -> str:
    def draw() -> str:
        host = source.invented() + source.choice((".com", ".org", ".net", ".io", ".example"))
        name = source.person().lower().replace(" ", source.choice("._-"))
        return f"{name if source.chance(0.6) else source.token_word().lower()}@{host}"

    return source.fresh(draw)


def _time(source: Source, _: Schema) -> str:
    hour, minute = source.rng.randrange(24), source.rng.randrange(60)
    if source.chance(0.7):
        return f"{hour:02d}:{minute:02d}" if source.chance(0.8) else f"{hour}:{minute:02d}"
    half = source.choice(("am", "pm", "AM", "PM"))
    clock = f"{hour % 12 + 1}:{minute:02d}" if source.chance(0.5) else str(hour % 12 + 1)
    return f"{clock}{source.choice((' ', ' ', ''))}{half}"


def _date(source: Source, _: Schema) -> str:
    year, number = source.rng.randrange(2020, 2040), source.rng.randrange(12)
    day, month = source.rng.randrange(1, 29), BANK.MONTHS[number]
    in_digits = f"{year}-{number + 1:02d}-{day:02d}"
    words = (f"{month} {day}", f"{day} {month} {year}", f"{month} {day}, {year}")
    return (in_digits, in_digits, *words)[source.rng.randrange(5)]


def _expression(source: Source, _: Schema) -> str:
    def number() -> str:
        whole = source.rng.randrange(1, source.choice((10, 100, 10000)))
        return f"{whole}.{source.rng.randrange(10)}" if source.chance(0.1) else str(whole)

    gap = source.choice((" ", " ", ""))
    text = number()
    for _ in range(source.rng.randint(1, 4)):
        text += gap + source.choice("+-*/") + gap
        is_sum = source.chance(0.2)
        text += f"({number()}{gap}{source.choice('+-')}{gap}{number()})" if is_sum else number()
    return f"sqrt({text})" if source.chance(0.05) else text


def _word(source: Source, _: Schema) -> str:
    draw = source.choice((source.noun, source.invented, source.token_word, source.token_word))
    return source.fresh(lambda: draw().lower())


def _record_id(source: Source, schema: Schema) -> str | int:
    if schema["type"] == "integer":
        return source.rng.randrange(1, 10 ** source.rng.randint(1, 7))
    return source.fresh(lambda: source.secret().replace(" ", "-"))


def _artist(source: Source, _: Schema) -> str:
    def band() -> str:
        return f"The {source.invented().capitalize()} {source.noun().capitalize()}s"

    return source.person() if source.chance(0.6) else source.fresh(band)


def _device(source: Source, _: Schema) -> str:
    thing = source.choice(BANK.DEVICES) if source.chance(0.7) else source.fresh(source.invented)
    return f"{source.choice(BANK.ROOMS)} {thing}" if source.chance(0.6) else thing


_DRAWS: dict[str, Draw] = {
    "city": _city, "symbol": _symbol, "amount": _amount, "email_address": _email_address,
    "time": _time, "date": _date, "expression": _expression, "word": _word,
    "record_id": _record_id, "artist": _artist, "device": _device, "free_text": _free_text,
    "short_text": _short_text, "person": lambda source, _: source.person(),
    "minutes": lambda source, _: source.rng.randrange(1, 600),
    "currency": lambda source, schema: (
        source.choice(BANK.CURRENCIES) if source.chance(0.7) else _symbol(source, schema)[:3]
    ),
}  # fmt: skip


class Argument(NamedTuple):
    """One argument of a family's functions, whose value is drawn as the user writes it."""

    slot: str
    names: str
    descriptions: str
    draw: Draw
    schemas: tuple[Schema, ...] = ({"type": "string"},)
    is_free: bool = False  # any text, which needs quotes within a sentence


class Family(NamedTuple):
    """Functions with one purpose, that get `thing`. `|` separates variants."""

    role: str
    names: str
    descriptions: str
    thing: str
    arguments: tuple[Argument, ...]


def _argument(one_of: str | list[str] = "", draw: str = "", **given: Any) -> Argument:
    options = getattr(BANK, one_of) if one_of and isinstance(one_of, str) else one_of
    drawn = (lambda source, _: source.choice(options)) if options else _DRAWS[draw]
    return Argument(draw=drawn, **given)


FAMILIES = tuple(
    Family(**family | {"arguments": tuple(_argument(**given) for given in family["arguments"])})
    for family in BANK.FAMILIES
)


class Request(NamedTuple):
    """What a user asks of one function: `need` in a sentence, `thing` if that says it all."""

    text: str
    slots: Values
    need: str
    thing: str = ""


@dataclass(frozen=True, slots=True)
class FunctionAbility(Ability):
    """An ability that makes up requests for itself, clear within a longer message or not."""

    ask: Callable[[Source, bool], Request]


class Phrasings(NamedTuple):
    """Requests with the same slots; `ask`: they begin with a verb; `bare`: ends the message."""

    templates: tuple[str, ...]
    ask: bool = True
    bare: str = ""

    @property
    def slots(self) -> frozenset[str]:
        return _slots_of(self.templates[0])


@functools.cache
def _slots_of(template: str) -> frozenset[str]:
    return frozenset(name for _, name, _, _ in Formatter().parse(template) if name)


def _quoted(source: Source, text: str) -> str:
    fitting = [q for q in _QUOTES if q[0] not in text and q[1] not in text]
    left, right = source.choice(fitting) if fitting else ("\n```\n", "\n```\n")
    return f"{left}{text}{right}"


def _parameters(source: Source, properties: dict[str, Schema], optional: frozenset[str]) -> Schema:
    required = [name for name in properties if name not in optional]
    schema: Schema = {"type": "object", "properties": properties}
    if source.chance(0.9):
        schema["required"] = required if source.chance(0.85) else required[:1]
    if source.chance(0.25):
        schema["additionalProperties"] = False
    return schema


def _with_extra(source: Source, properties: dict[str, Schema]) -> tuple[dict[str, Schema], str]:
    """Now and then put in an argument that no request gives; its name or nothing."""
    name, schema = source.choice(BANK.EXTRAS).values()
    if name in properties or not source.chance(0.25):
        return properties, ""
    items = list(properties.items())
    items.insert(source.rng.randint(0, len(items)), (name, schema))
    return dict(items), name


def _family_ability(source: Source, family: Family) -> FunctionAbility:
    schema_of = {a.slot: source.choice(a.schemas) for a in family.arguments}
    name_of = {a.slot: source.choice(a.names.split("|")) for a in family.arguments}
    if len({*name_of.values()}) < len(name_of):  # the first names never agree
        name_of = {a.slot: a.names.split("|")[0] for a in family.arguments}
    properties: dict[str, Schema] = {}
    shown = [a for a in family.arguments if a.slot != "unit" or source.chance(0.6)]
    if source.chance(0.3):
        source.rng.shuffle(shown)
    for argument in shown:
        about = source.choice(argument.descriptions.split("|"))
        described = {"description": about} if about else {}
        properties[name_of[argument.slot]] = {**schema_of[argument.slot], **described}
    properties, extra = _with_extra(source, properties)
    found = [Phrasings(**bank) for bank in BANK.PHRASINGS[family.role]]
    has_unit = any(a.slot == "unit" for a in shown)
    found = [bank for bank in found if has_unit or "unit" not in bank.slots]
    always = frozenset.intersection(*(bank.slots for bank in found))
    optional = frozenset({extra, *(name_of[a.slot] for a in shown if a.slot not in always)})
    name, about = (source.choice(t.split("|")) for t in (family.names, family.descriptions))
    if about and source.chance(0.2):  # the description alone says what it is for
        name = source.identifier() if source.chance(0.5) else source.fresh(source.invented)
    parameters = _parameters(source, properties, optional)
    outer = source.choice(BANK.OUTER) if source.chance(0.12) else ""
    is_list = source.chance(0.5)
    if outer:  # one object around all, or a list of which the user wants one entry
        inner: Schema = {"type": "array", "items": parameters} if is_list else parameters
        if source.chance(0.3):
            inner = {**inner, "description": source.choice(BANK.OUTER_ABOUT)}
        parameters = _parameters(source, {outer: inner}, frozenset())
    order = [(name_of[a.slot], a.slot, schema_of[a.slot]) for a in shown]

    def fill(slots: Values) -> Values:
        given = {n: _json_value(slots[slot], s) for n, slot, s in order if slot in slots}
        return {outer: [given] if is_list else given} if outer else given

    def ask(source: Source, in_pair: bool) -> Request:
        request = _request(source, family, schema_of, found, in_pair=in_pair)
        if in_pair or not source.chance(0.12):
            return request
        return _by_name(source, name, fill(request.slots), request.slots)

    return FunctionAbility(family.role, Tool(name, about, parameters), fill, ask)


def _request(
    source: Source, family: Family, schema_of: Values, found: list[Phrasings], *, in_pair: bool
) -> Request:
    bank = source.choice([b for b in found if not (in_pair and b.bare)])
    slots: Values = {}
    written: Values = {}
    for argument in family.arguments:
        if argument.slot in bank.slots:
            value = argument.draw(source, schema_of[argument.slot])
            slots[argument.slot] = written[argument.slot] = value
            if argument.is_free and argument.slot != bank.bare:
                written[argument.slot] = _quoted(source, str(value))
    if "kind" in bank.slots:
        written["kind"] = source.choice(BANK.KINDS)
    text = phrase(source, bank.templates, ask=bank.ask, **written)
    thing = family.thing.format(**written)
    is_whole = slots.keys() <= _slots_of(family.thing)
    return Request(text, slots, f"The user wants {thing}.", thing if is_whole else "")


def _by_name(source: Source, name: str, arguments: Values, slots: Values) -> Request:
    joint = source.choice(_JOINTS)
    given = [f"{key}{joint}{_spelled(source, value)}" for key, value in arguments.items()]
    last = source.choice((", ", " and "))
    text = ", ".join(given[:-1]) + (last if len(given) > 1 else "") + given[-1]
    text = phrase(source, BANK.EXPLICIT, ask=False, name=name, given=text)
    return Request(text, slots, f"The user names `{name}`.")


def _spelled(source: Source, value: object) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    is_word = value.isalnum() and value.isascii() and not value.isdigit()
    return value if is_word and source.chance(0.6) else _quoted(source, value)


def _json_value(value: Any, schema: Schema) -> object:
    if schema["type"] == "boolean":
        return bool(value == "on")
    if "enum" in schema:
        same = BANK.SAME.get(str(value), (str(value),))
        return next(option for option in schema["enum"] if option in same)
    return str(value) if schema["type"] == "string" else value


def _invented_ability(source: Source, role: str) -> FunctionAbility:
    """Declare a function that does not exist anywhere."""

    def thing_drawn() -> str:
        return source.invented() if source.chance(0.5) else source.noun()

    verb = source.choice(BANK.DOINGS) if source.chance(0.4) else source.invented()
    thing = thing_drawn()
    deed = f"{verb} the {thing}" + (f" of the {thing_drawn()}" if source.chance(0.4) else "")
    n = source.choice((0, 1, 1, 2, 2, 2, 3, 3, 4, 5))
    wanted = {name: _schema(source) for name in (_argument_name(source) for _ in range(n))}
    optional = frozenset(name for name in wanted if source.chance(0.2))
    properties, extra = _with_extra(source, wanted)
    has_deed = source.chance(0.6)
    name = _function_name(source, verb, thing, is_related=has_deed and source.chance(0.6))
    about = _description(source, deed, has_deed=has_deed)
    parameters = None
    if properties or source.chance(0.5):
        parameters = _parameters(source, properties, optional | {extra})

    def fill(slots: Values) -> Values:
        return {name: slots[name] for name in properties if name in slots}

    def ask(source: Source, in_pair: bool) -> Request:
        given = {
            name: _value(source, schema)
            for name, schema in wanted.items()
            if name not in optional or source.chance(0.5)
        }
        return _invented_request(source, name, deed if has_deed else "", given, in_pair=in_pair)

    return FunctionAbility(role, Tool(name, about, parameters), fill, ask)


def _function_name(source: Source, verb: str, thing: str, *, is_related: bool) -> str:
    if not is_related:
        return source.identifier() if source.chance(0.5) else source.fresh(source.invented)
    joined, camel = f"{verb}_{thing}", verb + thing.capitalize()
    pascal = verb.capitalize() + thing.capitalize()
    return (joined, joined, camel, verb, pascal)[source.rng.randrange(5)]


def _description(source: Source, deed: str, *, has_deed: bool) -> str:
    if has_deed:
        text = deed[0].upper() + deed[1:] + source.choice((".", "", "."))
        return f"{text} {source.sentence()}" if source.chance(0.2) else text
    tokens = lambda: source.tokens(source.rng.randint(2, 12))  # noqa: E731
    return source.drawn((0.3, str), (0.7, source.sentence), (1, tokens))


def _argument_name(source: Source) -> str:
    return source.drawn(
        (0.35, lambda: source.choice(BANK.ARGUMENT_KEYS)),
        (0.6, source.code_word),
        (1, source.identifier),
    )


def _schema(source: Source, depth: int = 0) -> Schema:
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
        inner_type = source.choice(("string", "string", "integer"))
        schema = {"type": "array", "items": {"type": inner_type}}
    else:
        names = [_argument_name(source) for _ in range(source.rng.randint(1, 3))]
        inner = {name: _schema(source, depth + 1) for name in names}
        schema = {"type": "object", "properties": inner}
        if source.chance(0.5):
            schema["required"] = names
        if kind > 0.9:
            schema = {"type": "array", "items": schema}
    if source.chance(0.3 if depth == 0 else 0.1):
        schema["description"] = source.sentence() if source.chance(0.5) else source.noun()
    return schema


def _value(source: Source, schema: Schema) -> object:
    pick = source.rng.randrange
    match schema["type"]:
        case "integer":
            return pick(10 ** source.rng.randint(1, 6)) * (-1 if source.chance(0.1) else 1)
        case "number":
            return pick(1000) / source.choice((4, 10, 100)) if source.chance(0.7) else pick(100)
        case "boolean":
            return source.chance(0.5)
        case "array":
            n = source.rng.randint(1, 2 if schema["items"]["type"] == "object" else 4)
            return [_value(source, schema["items"]) for _ in range(n)]
        case "object":
            return {name: _value(source, s) for name, s in schema["properties"].items()}
    if "enum" in schema:
        return source.choice(schema["enum"])
    if source.chance(0.5):
        return source.fresh(source.choice((source.invented, source.token_word, source.noun)))
    return _free_text(source, schema).replace("\\", "/")  # unclear whether it were an escape


def _invented_request(
    source: Source, name: str, deed: str, given: Values, *, in_pair: bool
) -> Request:
    by_deed = bool(deed) and source.chance(0.4)
    need = f"The request fits `{name}`." if by_deed else f"The user names `{name}`."
    deed = deed[:1].upper() + deed[1:] if source.chance(0.5) else deed
    if not given:
        templates = BANK.BARE_DEED if by_deed else BANK.BARE
        return Request(phrase(source, templates, name=name, deed=deed), {}, need)
    if not by_deed and source.chance(0.2):
        spelled = (f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in _mixed(source, given))
        call = f"{name}({', '.join(spelled)})"
        return Request(phrase(source, BANK.AS_CODE, given=call), given, need)
    no_verb = not by_deed and source.chance(0.2)
    templates = BANK.BY_NAME_NO_VERB if no_verb else BANK.BY_DEED if by_deed else BANK.BY_NAME
    written = _written(source, given, in_pair=in_pair)
    text = phrase(source, templates, ask=not no_verb, name=name, deed=deed, given=written)
    return Request(text, given, need)


def _mixed(source: Source, given: Values) -> list[tuple[str, object]]:
    items = list(given.items())  # mostly in the schema's order, as people do
    if source.chance(0.25):
        source.rng.shuffle(items)
    return items


def _written(source: Source, given: Values, *, in_pair: bool) -> str:
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
    joint = source.choice((*_JOINTS[:5], " is ", " set to "))
    parts = [f"{tick}{name}{tick}{joint}{_inline(source, value)}" for name, value in items]
    if len(parts) > 1 and source.chance(0.6):
        return ", ".join(parts[:-1]) + source.choice((" and ", ", and ", " and ")) + parts[-1]
    return ", ".join(parts)


def _bare(source: Source, value: object) -> str:
    """A value that ends with its line."""
    if isinstance(value, str) and not value.startswith(('"', "'", "`")):
        return value if source.chance(0.6) else _quoted(source, value)
    return _inline(source, value)


def _inline(source: Source, value: object) -> str:
    """A value that may stand within a sentence."""
    if isinstance(value, str):
        is_word = value.isalpha() and value.isascii() and source.chance(0.4)
        return value if is_word else _quoted(source, value)
    if isinstance(value, bool):
        return source.choice(("true", "true", "True", "yes") if value else BANK.NO)
    return json.dumps(value, ensure_ascii=False)


_TEMPERATURES = ("temperature", "temperature", "temperature", "temp")
_CONDITIONS = ("condition", "condition", "weather", "description", "conditions")


def _result(source: Source, role: str) -> str:
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
        keys = BANK.RESULT_KEYS.get(role, ())
        if not keys or source.chance(0.4):
            keys = [source.code_word() for _ in range(4)]
        found = {key: _scalar(source) for key in keys[: source.rng.randint(1, 4)]}
        result = _dump(source, [found] if source.chance(0.1) else found)
    elif kind < 0.76:
        result = source.choice(("Error: ", "error: ", "ERROR ", "Failed: ")) + source.line()
    else:
        n, style = source.rng.randint(2, 7), source.rng.randrange(4)
        draws: tuple[Callable[[int], str], ...] = (
            lambda _: source.line(), lambda _: f"{source.code_word()}: {source.line()}",
            lambda i: f"{i}. {source.line()}", lambda _: source.sentence(),
        )  # fmt: skip
        result = "\n".join(draws[style](i) for i in range(1, n + 1))
    end = "\n" if source.chance(0.1) else ""
    return result.replace("```", "'''") + end


def _weather(source: Source) -> str:
    warmth: float = source.rng.randrange(-20, 45)
    sky = source.choice(BANK.SKIES) if source.chance(0.75) else source.fresh(source.invented)
    key = source.choice(_TEMPERATURES)
    if source.chance(0.15):
        warmth += source.rng.randrange(10) / 10
    found: Values = {key: warmth, source.choice(_CONDITIONS): sky}
    extras: dict[str, Callable[[], object]] = {
        "unit": lambda: source.choice(("celsius", "fahrenheit", "C", "F")),
        "humidity": lambda: source.rng.randrange(100),
        "wind": lambda: source.rng.randrange(80),
    }
    found |= {key: draw() for key, draw in extras.items() if source.chance(0.15)}
    items = list(found.items())
    if source.chance(0.3):
        source.rng.shuffle(items)
    return _dump(source, dict(items))


def _dump(source: Source, value: object) -> str:
    style = source.rng.random()
    options: Values = {} if style < 0.6 else {"indent": 2}
    options = {"separators": (",", ":")} if 0.6 <= style < 0.85 else options
    return json.dumps(value, ensure_ascii=False, **options)


def _scalar(source: Source) -> object:
    return source.drawn(
        (0.3, lambda: source.rng.randrange(10 ** source.rng.randint(1, 7))),
        (0.4, lambda: source.rng.randrange(10**5) / 100),
        (0.5, lambda: source.choice((True, False, None))),
        (0.7, source.secret),
        (1, source.line),
    )


def _report(ability: FunctionAbility, request: Request, result: str) -> str:
    """Say what a function answered; the one right text."""
    name, text = ability.tool.name, result.rstrip("\n")
    if ability.role == "weather" and (said := _weather_sentence(text, request.slots.get("city"))):
        return said
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


def draw_functions(source: Source) -> list[Ability]:
    """Declare one to four functions with different roles and names."""
    abilities: dict[str, Ability] = {}
    families = source.rng.sample(FAMILIES, source.rng.randint(1, 4))
    if source.chance(0.25):
        families[0] = FAMILIES[0]
    for index, family in enumerate(families):
        if source.chance(0.45):
            ability = _invented_ability(source, f"invented_{index}" if index else "invented")
        else:
            ability = _family_ability(source, family)
        if all(a.role != ability.role for a in abilities.values()):
            abilities.setdefault(ability.tool.name, ability)
    return list(abilities.values())


def _pick(source: Source, toolset: Toolset) -> FunctionAbility | None:
    fitting = [a for a in toolset.abilities.values() if isinstance(a, FunctionAbility)]
    return source.choice(fitting) if fitting else None


def _function_call(source: Source, effort: Effort, toolset: Toolset) -> Branch | None:
    if (ability := _pick(source, toolset)) is None:
        return None
    request = ability.ask(source, False)
    messages = (*_earlier(source, toolset), user(request.text))
    return Branch("function_call", messages, _call(effort, ability, request))


def _function_report(source: Source, effort: Effort, toolset: Toolset) -> Branch | None:
    if (ability := _pick(source, toolset)) is None:
        return None
    exchange, final = _exchange(source, effort, ability, ability.ask(source, False))
    name = ability.tool.name
    if not final.startswith("`"):
        how = "weather"
    elif "\n" in final:
        how = "lines"
    else:
        how = "nothing" if final == f"`{name}` answered nothing." else "line"
    analysis = thought(effort, BANK.THOUGHTS["report"], name=name, how=BANK.HOW[how])
    messages = (*_earlier(source, toolset), *exchange)
    return Branch("function_report", messages, Answer(final, analysis))


def _function_two(source: Source, effort: Effort, toolset: Toolset) -> Branch | None:
    first, second = _pick(source, toolset), _pick(source, toolset)
    if first is None or second is None:
        return None
    text, one, two = _ask_two(source, first, second)
    calls = [(a.tool.name, a.fill(r.slots)) for a, r in ((first, one), (second, two))]
    analyses = [
        thought(effort, BANK.THOUGHTS[step], name=name, named=_named(arguments))
        for step, (name, arguments) in zip(
            ("first", "second", "both"), [*calls, calls[0]], strict=True
        )
    ]
    messages = [*_earlier(source, toolset), user(text)]
    n_done = source.rng.randrange(3)
    reports: list[str] = []
    for index, (ability, request) in enumerate(((first, one), (second, two))[:n_done]):
        result = _result(source, ability.role)
        messages += call_and_result(*calls[index], result, reasoning=analyses[index])
        reports.append(_report(ability, request, result))
    if n_done == 2:
        answer = Answer("\n\n".join(reports), analyses[2])
    else:
        answer = call_answer(*calls[n_done], analyses[n_done])
    return Branch("function_two", tuple(messages), answer)


BRANCHES: dict[str, Callable[[Source, Effort, Toolset], Branch | None]] = {
    "function_call": _function_call,
    "function_report": _function_report,
    "function_two": _function_two,
}


def _call(effort: Effort, ability: FunctionAbility, request: Request) -> Answer:
    name, arguments = ability.tool.name, ability.fill(request.slots)
    thoughts, named = BANK.THOUGHTS["call"], _named(arguments)
    analysis = thought(effort, thoughts, need=request.need, name=name, named=named)
    return call_answer(name, arguments, analysis)


def _exchange(
    source: Source, effort: Effort, ability: FunctionAbility, request: Request
) -> tuple[tuple[Message, ...], str]:
    name, result = ability.tool.name, _result(source, ability.role)
    reasoning = _call(effort, ability, request).analysis
    call = call_and_result(name, ability.fill(request.slots), result, reasoning=reasoning)
    return (user(request.text), *call), _report(ability, request, result)


def _earlier(source: Source, toolset: Toolset) -> tuple[Message, ...]:
    """Now and then a finished exchange about another request."""
    ability = _pick(source, toolset)
    if ability is None or not source.chance(0.3):
        return ()
    messages, final = _exchange(source, "low", ability, ability.ask(source, False))
    return (*messages, Message(role="assistant", content=final))


def _ask_two(
    source: Source, first: FunctionAbility, second: FunctionAbility
) -> tuple[str, Request, Request]:
    """One message that wants two things, and the two requests in it."""
    one, two = first.ask(source, True), second.ask(source, True)
    slot = {"weather": "city", "city_time": "city", "stock": "symbol"}.get(first.role, "")
    if first is second and one.slots.keys() == two.slots.keys() == {slot} and source.chance(0.6):
        bank, a, b = BANK.TWO_ALIKE[first.role], one.slots[slot], two.slots[slot]
    elif one.thing and two.thing and source.chance(0.6):
        bank, a, b = BANK.TWO_THINGS, one.thing, two.thing
    else:
        end = "" if one.text.endswith((".", "?", "!", ":")) else "."
        bank, a, b = BANK.TWO_REQUESTS, one.text + end, two.text
    return phrase(source, bank, ask=False, a=a, b=b), one, two


def _named(arguments: Values) -> str:
    names = [f"`{name}`" for name in arguments]
    if not names:
        return "It needs no arguments."
    joined = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return f"I fill in {joined} from the message."
