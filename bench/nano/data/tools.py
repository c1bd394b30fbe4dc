"""Tools as agents declare them, and how a request for what one can do becomes its arguments."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.nano.data.document import Answer
from bench.nano.data.source import Source
from bench.nano.phrases import banks
from gptoss_local.harmony.message import Message, Tool, ToolRequest

BANK = banks("tools")
WORDS = banks("words")


@dataclass(frozen=True, slots=True)
class Ability:
    """A tool and how a request for its role becomes a call."""

    role: str
    tool: Tool
    fill: Callable[[Mapping[str, object]], dict[str, object]]


@dataclass(frozen=True, slots=True)
class Toolset:
    """Declared tools in order, and those among them that branches may use, by role."""

    tools: tuple[Tool, ...]
    abilities: dict[str, Ability]


def user(text: str) -> Message:
    return Message(role="user", content=text)


def assistant(text: str) -> Message:
    return Message(role="assistant", content=text)


def call_answer(name: str, arguments: Mapping[str, object], analysis: str) -> Answer:
    """A call, its arguments spelled as the model does."""
    text = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    return Answer(text, analysis, name)


def call_and_result(
    name: str, arguments: dict[str, object], result: str, *, reasoning: str = ""
) -> tuple[Message, Message]:
    """An assistant's call in the history and the message that answers it."""
    call = Message(
        role="assistant", reasoning=reasoning, tool_calls=(ToolRequest(name, arguments),)
    )
    return call, Message(role="tool", content=result, tool_name=name)


_ENUM_ABOUT = ("One of the options", "Which kind", "How to do it", "Mode of the call", "Variant")


def draw_style(source: Source) -> Callable[[str], str]:
    """A way to spell names given as `snake_case`; one tool spells all its arguments in one way."""
    kind = source.rng.random()
    if kind < 0.62:
        return str
    if kind < 0.85:
        return _camel
    if kind < 0.93:
        return lambda name: _camel(name)[0].upper() + _camel(name)[1:]
    return lambda name: name.replace("_", "-" if kind < 0.97 else "")


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def draw_description(
    source: Source, summary: str, details: tuple[str, ...] = (), *, long: float = 0.07
) -> str:
    """A summary alone, or with up to 40 lines of advice."""
    size = source.rng.random()
    if size < 0.5:
        return summary
    n = source.rng.randint(11, 36) if size > 1 - long else source.rng.choice((1, 1, 2, 2, 3, 4, 7))
    own = source.some(details, min(n, len(details)), min(n, len(details)))
    lines = own + source.some(BANK.GENERAL_DETAILS, n - len(own), n - len(own))
    filled = [_schema_fill(source, line) for line in lines]
    style = source.rng.randrange(4)
    if style == 0 and n < 8:
        return " ".join([summary.rstrip(".") + ".", *filled])
    heading = [source.choice(BANK.HEADINGS)] if source.chance(0.6) else []
    if len(filled) > 6 and source.chance(0.6):
        filled[len(filled) // 2 : len(filled) // 2] = ["", source.choice(BANK.HEADINGS)]
    if style == 2:
        filled = [f"{i}. {line}" if line else line for i, line in enumerate(filled, 1)]
    elif style != 1 or heading:
        filled = [line if not line or line in BANK.HEADINGS else f"- {line}" for line in filled]
    blank = [""] if source.chance(0.5) else []
    return "\n".join([summary, *blank, *heading, *filled])


def _schema_fill(source: Source, line: str) -> str:
    if "{" not in line:
        return line
    return line.format(
        n=source.rng.randrange(1, 100),
        id=source.secret(),
        word=source.token_word(),
        noun=source.noun(),
        adj=source.choice(WORDS.ADJECTIVES),
    )


def schema_of(source: Source, kind: str, about: str) -> dict[str, Any]:
    """The schema of one property."""
    schema: dict[str, Any] = {"type": kind}
    if kind in ("strings", "numbers"):
        schema = {"type": "array", "items": {"type": kind[:-1]}}
    elif kind == "map":
        schema = {"type": "object", "additionalProperties": {"type": "string"}}
    elif kind.startswith("enum"):
        options = kind[5:].split("/") if "=" in kind else _options(source)
        schema = {"type": "string", "enum": options}
        about = about or (source.choice(_ENUM_ABOUT) if source.chance(0.3) else "")
    elif kind in ("object", "objects"):
        schema = _nested(source)
        if kind == "objects":
            schema = {"type": "array", "items": schema}
    if about:
        schema["description"] = about
    return schema


def nullable(source: Source, schema: dict[str, Any]) -> dict[str, Any]:
    """Let an optional property be null too, now and then, as some clients do."""
    if not source.chance(0.15):
        return schema
    kept = {key: value for key, value in schema.items() if key != "description"}
    about = {"description": schema["description"]} if "description" in schema else {}
    return {**about, "anyOf": [kept, {"type": "null"}]}


def _options(source: Source) -> list[str]:
    drawn = [
        source.choice(WORDS.CODE_WORDS) if source.chance(0.6) else source.invented()
        for _ in range(source.rng.randint(2, 5))
    ]
    return list(dict.fromkeys(drawn))


def _nested(source: Source) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for _ in range(source.rng.randint(1, 4)):
        name = source.choice(WORDS.CODE_WORDS)
        properties[name] = schema_of(source, draw_type(source, nested=False), draw_about(source))
    required = [name for name in properties if source.chance(0.5)]
    return object_schema(source, properties, required)


def draw_type(source: Source, *, nested: bool = True) -> str:
    """Any type that an argument of an unknown tool may have."""
    simple = ("string", "string", "string", "integer", "number", "boolean", "strings", "enum")
    return source.choice((*simple, "object", "objects", "map") if nested else simple)


def draw_about(source: Source) -> str:
    """A description of an argument of an unknown tool; often none."""
    if source.chance(0.45):
        return ""
    templates = (
        "The {adj} {noun}", "Which {noun} to use", "{noun} of the {noun2}", "Number of {noun}s",
        "Whether the {noun} is {adj}", "Optional {noun}, e.g. {word}", "Id of the {noun}",
        "The {noun} to use. Must be {adj}.", "How {adj} the {noun} shall be", "Name of a {noun}",
    )  # fmt: skip
    return source.choice(templates).format(
        adj=source.choice(WORDS.ADJECTIVES),
        noun=source.noun(),
        noun2=source.noun(),
        word=source.choice(WORDS.CODE_WORDS),
    )


def object_schema(
    source: Source, properties: dict[str, Any], required: list[str]
) -> dict[str, Any]:
    """The schema of an object, as different clients spell it."""
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required or source.chance(0.3):
        schema["required"] = required
    if source.chance(0.4):
        schema["additionalProperties"] = False
    if source.chance(0.2):
        schema["$schema"] = "http://json-schema.org/draft-07/schema#"
    return schema


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
    schemas = {p.name: p.schema for p in properties}
    if source.chance(0.4):
        for name, kind, about in source.some(BANK.ITEM_OPTIONS, 1, 3):
            schema = schema_of(source, kind, about if source.chance(0.7) else "")
            schemas.setdefault(name, nullable(source, schema))
    return {"type": "object", "properties": schemas, "required": [p.name for p in properties]}


def _object(properties: list[Property], slots: Slots) -> dict[str, object]:
    return {p.name: p.value(slots) for p in properties if p.value}


_SUFFIXES = ("_tool", "_v2", "_now", "_fn", "_action", "_op", "_3", "_safe", "Tool", "_sync")
_VAGUE = {"input", "line", "run", "statement", "data", "body", "payload", "q", "where", "scope"}
_NUMBERS = ("timeout", "priority", "retries", "wait_ms", "session", "tab", "max_size", "level")
_ENUMS = ("mode", "risk", "format", "risk_level", "kind", "profile", "strategy", "origin")


@dataclass(frozen=True, slots=True)
class Kind:
    """The words of one role."""

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
    return Ability(role, tool, partial(_tools_fill, values))


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
    return Ability("edit", tool, partial(_tools_fill, edit)), Ability(
        "create", tool, partial(_tools_fill, create)
    )


def _split(slots: str) -> list[str]:
    return slots.split("+")


def _tools_fill(values: tuple[tuple[str, Value], ...], slots: Slots) -> dict[str, object]:
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
    if source.chance(0.3):
        return []
    about = source.choice(kind.about["path"])
    name = source.choice(BANK.SEARCH_FOLDERS)
    if source.chance(0.5):
        schema = schema_of(source, "string", about if source.chance(told) else "")
        return [Property(style(name), schema, slot_value("path"))]
    return [Property(style(name), schema_of(source, "string", about), required=False)]


def _fixed(source: Source, kind: Kind, style: Callable[[str], str]) -> list[Property]:
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


_NOUNS = tuple(sorted({*WORDS.NOUNS} - {"file", "folder", "paper", "book", "library"}))


def draw_other(source: Source, taken: Iterable[str]) -> Tool:
    """Draw a tool that cannot do what a role does, with a name that is not taken yet."""
    taken = {name.lower() for name in taken}
    while True:
        tool = _known(source) if source.chance(0.55) else _invented(source)
        if tool.name.lower() not in taken:
            return tool


def _known(source: Source) -> Tool:
    name, summary, spec = source.choice(BANK.KNOWN)
    style = draw_style(source)
    properties: dict[str, Any] = {}
    required = []
    tells = source.chance(0.7)
    for word in spec.split():
        argument, _, kind = word.partition(":")
        about = f"{argument.strip('?').replace('_', ' ').capitalize()} {source.noun()}"
        key = style(argument.strip("?"))
        properties[key] = schema_of(source, kind, about if tells and source.chance(0.6) else "")
        if not argument.endswith("?"):
            required.append(key)
    schema = object_schema(source, properties, required)
    name = name if source.chance(0.5) else style(name)
    return Tool(name, draw_description(source, summary, long=0.1), schema)


def _invented(source: Source) -> Tool:
    verb, noun, style = source.choice(BANK.VERBS), source.choice(_NOUNS), draw_style(source)
    kind = source.rng.random()
    if kind < 0.55:
        name = style(f"{verb}_{noun}")
    elif kind < 0.8:
        name = f"{source.invented()}_{style(f'{verb}_{noun}')}"
    else:
        name = source.invented() + source.choice(("", "", "_api", "Client", f"_{verb}"))
    summary = source.choice(BANK.SUMMARIES).format(
        verb=verb, noun=noun, noun2=source.choice(_NOUNS), word=source.invented(),
        adj=source.choice(WORDS.ADJECTIVES), city=source.city(),
    )  # fmt: skip
    summary = summary[0].upper() + summary[1:]
    properties: dict[str, Any] = {}
    for _ in range(source.rng.choice((0, 1, 1, 2, 2, 3, 4, 6))):
        key = f"{source.choice(WORDS.CODE_WORDS)}_{source.choice(_NOUNS)}"
        key = style(key if source.chance(0.5) else key.split("_")[source.chance(0.5)])
        properties[key] = schema_of(source, draw_type(source), draw_about(source))
    required = [key for key in properties if source.chance(0.6)]
    if not properties and source.chance(0.4):
        return Tool(name, summary)
    schema = object_schema(source, properties, required)
    return Tool(name, draw_description(source, summary, long=0.1), schema)
