"""The shapes in which a tool takes what the user gives: strings, lists of them, objects, argv."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.nano.data.agent_schema import nullable, schema_of
from bench.nano.data.source import Source
from bench.nano.phrases import banks

BANK = banks("tools")

Slots = Mapping[str, object]
Value = Callable[[Slots], object]

_EDITS = ("edits", "edits", "changes", "replacements", "operations", "hunks")
_OUTER = ("edit", "change", "file", "request", "params", "args", "input", "options", "arguments")


@dataclass(frozen=True, slots=True)
class Property:
    """An argument; `value` says what to give, none that it is left out."""

    name: str
    schema: dict[str, Any]
    value: Value | None = None
    required: bool = True


def slot_value(slot: str) -> Value:
    """Give what the user said for a slot."""
    return lambda slots: slots[slot]


def other_shape(source: Source, role: str, plain: list[Property]) -> list[Property]:
    """Now and then the same arguments in an array or an object, else nothing."""
    inner = plain[1:] if role == "edit" else plain
    if role == "shell" and source.chance(0.07):
        schema = {**plain[0].schema, "type": "array", "items": {"type": "string"}}
        return [Property(plain[0].name, schema, lambda slots: ["bash", "-lc", slots["command"]])]
    if role in BANK.PLURALS and source.chance(0.2):
        return [_list(source, role, plain[0])]
    if role == "edit" and source.chance(0.2):
        return [plain[0], _objects(source, source.choice(_EDITS), inner)]
    if source.chance(0.07):
        name = source.choice(_OUTER)
        kept = plain[:1] if role == "edit" and source.chance(0.5) else []
        outer = inner if kept else plain
        if name not in {p.name for p in kept}:
            if role == "create" and source.chance(0.5):
                return [_objects(source, "files", outer)]
            value = lambda slots: _object(outer, slots)  # noqa: E731
            return [*kept, Property(name, _object_of(source, outer), value)]
    return []


def _list(source: Source, role: str, item: Property) -> Property:
    """A list for several, of which the user wants one."""
    name = source.choice(BANK.PLURALS[role])
    if source.chance(0.06):
        name = source.fresh(source.invented)
    if source.chance(0.5):
        return _objects(source, name, [item])
    about = source.choice(BANK.ABOUT[role]) if source.chance(0.8) else ""
    items = schema_of(source, "string", "")
    schema: dict[str, Any] = {"type": "array", "items": items}
    if about:
        schema["description"] = about
    value = item.value
    assert value is not None
    return Property(name, schema, lambda slots: [value(slots)])


def _objects(source: Source, name: str, inner: list[Property]) -> Property:
    schema = {"type": "array", "items": _object_of(source, inner)}
    return Property(name, schema, lambda slots: [_object(inner, slots)])


def _object_of(source: Source, properties: list[Property]) -> dict[str, Any]:
    """An object of these, and now and then of optional ones."""
    schemas = {p.name: p.schema for p in properties}
    if source.chance(0.4):
        for name, kind, about in source.some(BANK.ITEM_OPTIONS, 1, 3):
            schema = schema_of(source, kind, about if source.chance(0.7) else "")
            schemas.setdefault(name, nullable(source, schema))
    return {"type": "object", "properties": schemas, "required": [p.name for p in properties]}


def _object(properties: list[Property], slots: Slots) -> dict[str, object]:
    return {p.name: p.value(slots) for p in properties if p.value}
