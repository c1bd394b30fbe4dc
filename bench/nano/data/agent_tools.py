"""Draws the tool of one role, and how a request for the role becomes its arguments."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.nano.data.ability import Ability
from bench.nano.data.agent_schema import (
    draw_description,
    draw_style,
    nullable,
    object_schema,
    schema_of,
)
from bench.nano.data.agent_shapes import Property, Slots, Value, other_shape, slot_value
from bench.nano.data.source import Source
from bench.nano.phrases import banks
from gptoss_local.harmony.message import Tool

BANK = banks("tools")

_SUFFIXES = ("_tool", "_v2", "_now", "_fn", "_action", "_op", "_3", "_safe", "Tool", "_sync")
_VAGUE = {"input", "line", "run", "statement", "data", "body", "payload", "q", "where", "scope"}
_NUMBERS = ("timeout", "priority", "retries", "wait_ms", "session", "tab", "max_size", "level")
_ENUMS = ("mode", "risk", "format", "risk_level", "kind", "profile", "strategy", "origin")


@dataclass(frozen=True, slots=True)
class Kind:
    """The words of one role.

    Attributes:
        names: As well-known agents spell it.
        verbs: With `objects`, the parts of a generated name.
        slots: Names of the arguments that hold the slots, joined by `+`.
        about: Per slot, what the schema says of it.
        summaries: First lines of a description.
        details: Further lines of it.
        extras: Optional arguments: name, type, description.
        reason: What to write into a required argument that asks what the call is for.
    """

    names: tuple[str, ...]
    verbs: tuple[str, ...]
    objects: tuple[str, ...]
    slots: tuple[str, ...]
    about: dict[str, tuple[str, ...]]
    summaries: tuple[str, ...]
    details: tuple[str, ...]
    extras: tuple[tuple[str, str, str], ...]
    reason: str


KINDS = {role: Kind(**kind) for role, kind in BANK.KINDS.items()}


def draw_ability(source: Source, role: str, taken: Iterable[str]) -> Ability:
    """Draw a tool for a role, with a name that is not taken yet."""
    kind = KINDS[role]
    opaque = source.chance(0.06)
    name = draw_name(source, kind, taken, opaque=opaque)
    properties = _properties(source, role, kind)
    schema = object_schema(
        source,
        {p.name: p.schema for p in properties},
        [p.name for p in properties if p.required],
    )
    told = opaque or name not in kind.names or source.chance(0.94)
    summary = source.choice(kind.summaries)
    tool = Tool(name, draw_description(source, summary, kind.details) if told else "", schema)
    values = tuple((p.name, p.value) for p in properties if p.value)
    return Ability(role, tool, partial(_fill, values))


def draw_editor(source: Source, taken: Iterable[str]) -> tuple[Ability, Ability]:
    """Draw a tool that edits files, and creates one where no old text is given; both its roles."""
    kind, style = KINDS["edit"], draw_style(source)
    name = draw_name(source, kind, taken, opaque=False)
    known = source.choice([slots for slots in map(_split, kind.slots) if len({*slots}) == 3])
    path, old, new = map(style, known)
    summary = source.choice(BANK.EDITOR_SUMMARIES).format(old=old, new=new)
    schemas = {key: schema_of(source, "string", "") for key in (path, old, new)}
    schemas[path]["description"] = source.choice(kind.about["path"])
    schemas[old] = nullable(source, schemas[old] | {"description": source.choice(BANK.EDITOR_OLD)})
    schemas[new]["description"] = source.choice(BANK.EDITOR_NEW).format(old=old)
    if source.chance(0.4):
        for extra, kind_of, about in source.some(BANK.EDITOR_EXTRAS, 1, 2):
            schemas.setdefault(style(extra), nullable(source, schema_of(source, kind_of, about)))
    schema = object_schema(source, schemas, [path, new])
    tool = Tool(name, draw_description(source, summary, kind.details), schema)
    names = {"path": path, "old": old, "new": new}
    edit = tuple((names[slot], slot_value(slot)) for slot in BANK.SLOTS["edit"])
    create = ((path, slot_value("path")), (new, slot_value("content")))
    return Ability("edit", tool, partial(_fill, edit)), Ability(
        "create", tool, partial(_fill, create)
    )


def _split(slots: str) -> list[str]:
    return slots.split("+")


def _fill(values: tuple[tuple[str, Value], ...], slots: Slots) -> dict[str, object]:
    return {name: value(slots) for name, value in values}


def draw_name(source: Source, kind: Kind, taken: Iterable[str], *, opaque: bool) -> str:
    """A name as agents give it: well-known, made of a verb and a noun, or meaningless."""
    taken = {name.lower() for name in taken}
    while True:
        if opaque:
            name = source.fresh(source.invented)
        elif source.chance(0.4):
            name = source.choice(kind.names)
        else:
            name = source.fresh(partial(_generated_name, source, kind))
        if name.lower() not in taken:
            return name


def _generated_name(source: Source, kind: Kind) -> str:
    style = draw_style(source)
    if source.chance(0.25):
        name = source.choice(kind.names)
    else:
        verb, noun = source.choice(kind.verbs), source.choice(kind.objects)
        in_order = source.chance(0.85) or noun.startswith(("in_", "to_", "from_", "on_"))
        name = style(f"{verb}_{noun}" if in_order else f"{noun}_{verb}")
    if source.chance(0.2):
        prefix = f"{source.invented()}_" if source.chance(0.3) else source.choice(BANK.PREFIXES)
        name = prefix + name
    if source.chance(0.08):
        name += source.choice(_SUFFIXES)
    return name


def _properties(source: Source, role: str, kind: Kind) -> list[Property]:
    """All arguments, none of the same name, in the order of the schema."""
    style = draw_style(source)
    told = source.choice((0.0, 0.5, 1.0, 1.0, 1.0, 1.0))
    main = _main(source, role, kind, style, told)
    if role == "search":
        main += _search_folder(source, kind, style, told)
    fixed = _fixed(source, kind, style) if source.chance(0.25) else []
    extras = [
        Property(style(name), nullable(source, schema_of(source, type_, about)), required=False)
        for name, type_, about in source.some(kind.extras, 0, source.choice((0, 1, 2, 2, 3, 5)))
    ]
    if source.chance(0.25):
        fixed, extras = extras, fixed
    properties = [*fixed, *main, *extras] if source.chance(0.12) else [*main, *fixed, *extras]
    if source.chance(0.1):
        source.rng.shuffle(properties)
    unique = {p.name.lower(): p for p in properties if p not in main}
    unique.update({p.name.lower(): p for p in main})
    return [p for p in properties if unique[p.name.lower()] is p]


def _main(
    source: Source, role: str, kind: Kind, style: Callable[[str], str], told: float
) -> list[Property]:
    """The arguments that hold what the user gives."""
    slots = BANK.SLOTS[role]
    schemas: dict[str, dict[str, Any]] = {}
    by_name: dict[str, str] = {}
    for slot, known in zip(slots, _split(source.choice(kind.slots)), strict=True):
        name = known if source.chance(0.5) else style(known)  # agents mix their styles
        opaque = source.chance(0.08)
        if opaque:
            name = source.fresh(source.invented)
        by_name[name] = slot
        must_tell = opaque or known in _VAGUE
        about = source.choice(kind.about[slot]) if must_tell or source.chance(told) else ""
        schemas[name] = schema_of(source, "string", about)
    plain = [Property(name, schemas[name], slot_value(slot)) for name, slot in by_name.items()]
    return other_shape(source, role, plain) or plain


def _search_folder(
    source: Source, kind: Kind, style: Callable[[str], str], told: float
) -> list[Property]:
    """Where to search: needed, left to the tool, or no argument at all."""
    if source.chance(0.3):
        return []
    about = source.choice(kind.about["path"])
    name = source.choice(BANK.SEARCH_FOLDERS)
    if source.chance(0.5):
        schema = schema_of(source, "string", about if source.chance(told) else "")
        return [Property(style(name), schema, slot_value("path"))]
    return [Property(style(name), schema_of(source, "string", about), required=False)]


def _fixed(source: Source, kind: Kind, style: Callable[[str], str]) -> list[Property]:
    """Required arguments that the user says nothing about; each type has one right value."""
    drawn: list[Property] = []
    for what in source.some(("boolean", "number", "enum", "reason", "reason"), 1, 2):
        value: object
        if what == "boolean":
            name, value = source.choice(BANK.BOOLEANS), False
            schema = schema_of(source, what, "Whether to do so" if source.chance(0.3) else "")
        elif what == "number":
            name, value = source.choice(_NUMBERS), 1
            schema = schema_of(source, source.choice(("number", "integer")), "")
            if source.chance(0.5):
                value = schema["default"] = source.rng.choice((0, 2, 5, 10, 30, 60, 120, 1000))
        elif what == "enum":
            name = source.choice(_ENUMS)
            schema = schema_of(source, what, "")
            value = schema["enum"][0]
        else:
            name, value = source.choice(tuple(BANK.REASONS)), kind.reason
            schema = schema_of(source, "string", source.choice(BANK.REASONS[name]))
        drawn.append(Property(style(name), schema, partial(_constant, value)))
    return drawn


def _constant(value: object, _slots: Slots) -> object:
    return value
