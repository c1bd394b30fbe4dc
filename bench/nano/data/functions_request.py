"""Turns a family of functions into a declared tool, and a user's wish into words and a call."""

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from string import Formatter
from typing import Any, NamedTuple

from bench.nano.data.ability import Ability
from bench.nano.data.functions_families import Argument, Family
from bench.nano.data.functions_values import Schema
from bench.nano.data.source import Source
from bench.nano.data.wording import phrase
from bench.nano.phrases import banks
from gptoss_local.harmony.message import Tool

BANK = banks("functions")

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
        request = _ask(source, family, schema_of, banks, in_pair=in_pair)
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


def _ask(
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
