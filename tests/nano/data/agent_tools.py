"""Draws the tool of one role, and how a request for the role becomes its arguments."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gptoss_local.chat.message import Tool
from tests.nano.data.ability import Ability
from tests.nano.data.agent_kind import Kind
from tests.nano.data.agent_names import KINDS, SEARCH_FOLDERS
from tests.nano.data.agent_schema import (
    draw_description,
    draw_style,
    object_schema,
    schema_of,
)
from tests.nano.data.source import Source

Slots = Mapping[str, object]
Value = Callable[[Slots], object]
SLOTS = {
    "shell": ("command",), "create": ("path", "content"), "read": ("path",),
    "edit": ("path", "old", "new"), "list": ("path",), "search": ("pattern",),
}  # fmt: skip
_PREFIXES = (
    "fs_", "dev_", "local_", "workspace_", "agent_", "tool_", "my_", "mcp__filesystem__", "mcp_",
    "developer__", "code_", "ide_", "host_", "sandbox_", "default_api_", "builtin_", "core-",
)  # fmt: skip
_SUFFIXES = ("_tool", "_v2", "_now", "_fn", "_action", "_op", "_3", "_safe", "Tool", "_sync")
_VAGUE = {"input", "line", "run", "statement", "data", "body", "payload", "q", "where", "scope"}
_BOOLEANS = (
    "requires_approval", "is_background", "interactive", "dry_run", "blocking", "confirm", "force",
    "verbose", "is_dangerous", "wait", "notify", "silent", "needs_network", "should_reload",
)  # fmt: skip
_NUMBERS = ("timeout", "priority", "retries", "wait_ms", "session", "tab", "max_size", "level")
_ENUMS = ("mode", "risk", "format", "risk_level", "kind", "profile", "strategy", "origin")
_REASONS = {
    "description": ("What this call does, in a few words", "Clear, short description of the call"),
    "explanation": ("One sentence explanation of why this tool is used", "Why you call it"),
    "reason": ("The reason for the call", "Why this is needed"),
    "purpose": ("What the call is good for", "Purpose of the call"),
}


@dataclass(frozen=True, slots=True)
class _Property:
    """An argument; `value` says what to give, none that it is left out."""

    name: str
    schema: dict[str, Any]
    value: Value | None = None
    required: bool = True


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
        prefix = f"{source.invented()}_" if source.chance(0.3) else source.choice(_PREFIXES)
        name = prefix + name
    if source.chance(0.08):
        name += source.choice(_SUFFIXES)
    return name


def _properties(source: Source, role: str, kind: Kind) -> list[_Property]:
    """All arguments, none of the same name, in the order of the schema."""
    style = draw_style(source)
    told = source.choice((0.0, 0.5, 1.0, 1.0, 1.0, 1.0))
    main = _main(source, role, kind, style, told)
    if role == "search":
        main += _search_folder(source, kind, style, told)
    fixed = _fixed(source, kind, style) if source.chance(0.25) else []
    extras = [
        _Property(style(name), schema_of(source, type_, about), required=False)
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
) -> list[_Property]:
    """The arguments that hold what the user gives."""
    slots = SLOTS[role]
    schemas: dict[str, dict[str, Any]] = {}
    by_name: dict[str, str] = {}
    for slot, known in zip(slots, source.choice(kind.slots), strict=True):
        name = known if source.chance(0.5) else style(known)  # agents mix their styles
        opaque = source.chance(0.05)
        if opaque:
            name = source.fresh(source.invented)
        by_name[name] = slot
        must_tell = opaque or known in _VAGUE
        about = source.choice(kind.about[slot]) if must_tell or source.chance(told) else ""
        schemas[name] = schema_of(source, "string", about)
    plain = [_Property(name, schemas[name], _slot(slot)) for name, slot in by_name.items()]
    return _other_shape(source, role, plain) or plain


def _slot(slot: str) -> Value:
    return lambda slots: slots[slot]


def _other_shape(source: Source, role: str, plain: list[_Property]) -> list[_Property]:
    """Now and then the same arguments as an array or inside an object, else nothing."""
    inner = plain[1:] if role == "edit" else plain
    if role == "shell" and source.chance(0.1):
        schema = {**plain[0].schema, "type": "array", "items": {"type": "string"}}
        return [_Property(plain[0].name, schema, lambda slots: ["bash", "-lc", slots["command"]])]
    if role == "read" and source.chance(0.12):
        name = source.choice(("paths", "files", "file_paths", "filePaths", "targets"))
        if source.chance(0.6):
            schema = {"type": "array", "items": {"type": "string"}, "description": "Files to read"}
            return [_Property(name, schema, lambda slots: [slots["path"]])]
        return [_Property(name, _array_of(inner), lambda slots: [_object(inner, slots)])]
    if role == "edit" and source.chance(0.18):
        name = source.choice(("edits", "edits", "changes", "replacements", "operations", "hunks"))
        return [plain[0], _Property(name, _array_of(inner), lambda slots: [_object(inner, slots)])]
    if role in ("edit", "create") and source.chance(0.04):
        name = source.choice(("edit", "change", "file", "request", "params", "args"))
        kept = plain[:1] if role == "edit" else []
        if name not in {p.name for p in kept}:
            return [*kept, _Property(name, _object_of(inner), lambda slots: _object(inner, slots))]
    return []


def _object_of(properties: list[_Property]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {p.name: p.schema for p in properties},
        "required": [p.name for p in properties],
    }


def _array_of(properties: list[_Property]) -> dict[str, Any]:
    return {"type": "array", "items": _object_of(properties)}


def _object(properties: list[_Property], slots: Slots) -> dict[str, object]:
    return {p.name: p.value(slots) for p in properties if p.value}


def _search_folder(
    source: Source, kind: Kind, style: Callable[[str], str], told: float
) -> list[_Property]:
    """Where to search: needed, left to the tool, or no argument at all."""
    if source.chance(0.3):
        return []
    about = source.choice(kind.about["path"])
    name = source.choice(SEARCH_FOLDERS)
    if source.chance(0.5):
        schema = schema_of(source, "string", about if source.chance(told) else "")
        return [_Property(style(name), schema, _slot("path"))]
    return [_Property(style(name), schema_of(source, "string", about), required=False)]


def _fixed(source: Source, kind: Kind, style: Callable[[str], str]) -> list[_Property]:
    """Required arguments that the user says nothing about; each type has one right value."""
    drawn: list[_Property] = []
    for what in source.some(("boolean", "number", "enum", "reason", "reason"), 1, 2):
        value: object
        if what == "boolean":
            name, value = source.choice(_BOOLEANS), False
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
            name, value = source.choice(tuple(_REASONS)), kind.reason
            schema = schema_of(source, "string", source.choice(_REASONS[name]))
        drawn.append(_Property(style(name), schema, partial(_constant, value)))
    return drawn


def _constant(value: object, _slots: Slots) -> object:
    return value
