"""Tools as agents declare them, and how a request for what one can do becomes its arguments."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from bench.nano.data.document import Answer
from bench.nano.data.source import Source
from bench.nano.phrases import banks
from gptoss_local.harmony.message import Message, Tool, ToolRequest

BANK = banks("tools")
WORDS = banks("words")
Schema = dict[str, Any]
Slots = Mapping[str, object]
Value = Callable[[Slots], object]
Style = Callable[[str], str]
_VAGUE = {"input", "line", "run", "statement", "data", "body", "payload", "q", "where", "scope"}
_NOUNS = tuple(sorted({*WORDS.NOUNS} - {"file", "folder", "paper", "book", "library"}))


@dataclass(frozen=True, slots=True)
class Ability:
    """A tool of a role ("shell", "weather"), and what fills its arguments from a role's slots."""

    role: str
    tool: Tool
    fill: Callable[[dict[str, Any]], dict[str, Any]]


class Toolset(NamedTuple):
    """Declared tools in order, and those among them that branches may use, by role."""

    tools: tuple[Tool, ...]
    abilities: dict[str, Ability]


def user(text: str) -> Message:
    return Message(role="user", content=text)


def assistant(text: str) -> Message:
    return Message(role="assistant", content=text)


def call_answer(name: str, arguments: Slots, analysis: str) -> Answer:
    """A call, its arguments spelled as the model does."""
    text = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    return Answer(text, analysis, name)


def call_and_result(
    name: str, arguments: dict[str, Any], result: str, *, reasoning: str = ""
) -> tuple[Message, Message]:
    """An assistant's call in the history and the message that answers it."""
    calls = (ToolRequest(name, arguments),)
    call = Message(role="assistant", reasoning=reasoning, tool_calls=calls)
    return call, Message(role="tool", content=result, tool_name=name)


# --- names, descriptions and schemas, for tools of any role


def _style(source: Source) -> Style:
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


def _description(
    source: Source, summary: str, details: tuple[str, ...] = (), *, long: float = 0.07
) -> str:
    """A summary alone, or with up to 40 lines of advice."""
    size = source.rng.random()
    if size < 0.5:
        return summary
    n = source.rng.randint(11, 36) if size > 1 - long else source.choice((1, 1, 2, 2, 3, 4, 7))
    own = source.some(details, min(n, len(details)), min(n, len(details)))
    lines = own + source.some(BANK.GENERAL_DETAILS, n - len(own), n - len(own))
    filled = [_filled(source, line) for line in lines]
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


def _filled(source: Source, line: str) -> str:
    if "{" not in line:
        return line
    n, secret, word = source.rng.randrange(1, 100), source.secret(), source.token_word()
    return line.format(n=n, id=secret, word=word, noun=source.noun(), adj=source.adjective())


def _schema(source: Source, kind: str, about: str) -> Schema:
    """The schema of one property: a type of JSON, "strings", "map", "enum=a/b", "objects" ..."""
    schema: Schema = {"type": kind}
    if kind in ("strings", "numbers"):
        schema = {"type": "array", "items": {"type": kind[:-1]}}
    elif kind == "map":
        schema = {"type": "object", "additionalProperties": {"type": "string"}}
    elif kind.startswith("enum"):
        options = kind[5:].split("/") if "=" in kind else _options(source)
        schema = {"type": "string", "enum": options}
        about = about or (source.choice(BANK.ENUM_ABOUT) if source.chance(0.3) else "")
    elif kind in ("object", "objects"):
        properties: dict[str, Schema] = {}
        for _ in range(source.rng.randint(1, 4)):
            name = source.code_word()
            properties[name] = _schema(source, _type(source, nested=False), _about(source))
        required = [name for name in properties if source.chance(0.5)]
        schema = _object_schema(source, properties, required)
        schema = {"type": "array", "items": schema} if kind == "objects" else schema
    if about:
        schema["description"] = about
    return schema


def _nullable(source: Source, schema: Schema) -> Schema:
    """Let an optional property be null too, now and then, as some clients do."""
    if not source.chance(0.15):
        return schema
    kept = {key: value for key, value in schema.items() if key != "description"}
    about = {"description": schema["description"]} if "description" in schema else {}
    return {**about, "anyOf": [kept, {"type": "null"}]}


def _options(source: Source) -> list[str]:
    n = source.rng.randint(2, 5)
    drawn = [source.code_word() if source.chance(0.6) else source.invented() for _ in range(n)]
    return list(dict.fromkeys(drawn))


def _type(source: Source, *, nested: bool = True) -> str:
    simple = ("string", "string", "string", "integer", "number", "boolean", "strings", "enum")
    return source.choice((*simple, "object", "objects", "map") if nested else simple)


def _about(source: Source) -> str:
    """A description of an argument of an unknown tool; often none."""
    if source.chance(0.45):
        return ""
    template, adjective, noun = source.choice(BANK.ARGUMENTS), source.adjective(), source.noun()
    other, word = source.noun(), source.code_word()
    return template.format(adj=adjective, noun=noun, noun2=other, word=word)


def _object_schema(source: Source, properties: dict[str, Schema], required: list[str]) -> Schema:
    """The schema of an object, as different clients spell it."""
    schema: Schema = {"type": "object", "properties": properties}
    if required or source.chance(0.3):
        schema["required"] = required
    if source.chance(0.4):
        schema["additionalProperties"] = False
    if source.chance(0.2):
        schema["$schema"] = "http://json-schema.org/draft-07/schema#"
    return schema


# --- the arguments of a role's tool: strings, lists of them, objects, argv


@dataclass(frozen=True, slots=True)
class Property:
    """An argument; `value` says what to give, none that it is left out."""

    name: str
    schema: Schema
    value: Value | None = None
    required: bool = True


def _slot(slot: str) -> Value:
    return lambda slots: slots[slot]


def _other_shape(source: Source, role: str, plain: list[Property]) -> list[Property]:
    """Now and then the same arguments in an array or an object, else nothing."""
    inner = plain[1:] if role == "edit" else plain
    if role == "shell" and source.chance(0.07):
        schema = {**plain[0].schema, "type": "array", "items": {"type": "string"}}
        return [Property(plain[0].name, schema, lambda slots: ["bash", "-lc", slots["command"]])]
    if role in BANK.PLURALS and source.chance(0.2):
        return [_list(source, role, plain[0])]
    if role == "edit" and source.chance(0.2):
        return [plain[0], _objects(source, source.choice(BANK.EDITS), inner)]
    if source.chance(0.07):
        name = source.choice(BANK.OUTER)
        kept = plain[:1] if role == "edit" and source.chance(0.5) else []
        outer = inner if kept else plain
        if name not in {p.name for p in kept}:
            if role == "create" and source.chance(0.5):
                return [_objects(source, "files", outer)]
            return [*kept, Property(name, _object_of(source, outer), partial(_object, outer))]
    return []


def _list(source: Source, role: str, item: Property) -> Property:
    """A list for several, of which the user wants one."""
    name, value = source.choice(BANK.PLURALS[role]), item.value
    assert value is not None
    if source.chance(0.06):
        name = source.fresh(source.invented)
    if source.chance(0.5):
        return _objects(source, name, [item])
    about = source.choice(BANK.ABOUT[role]) if source.chance(0.8) else ""
    schema: Schema = {"type": "array", "items": _schema(source, "string", "")}
    schema |= {"description": about} if about else {}
    return Property(name, schema, lambda slots: [value(slots)])


def _objects(source: Source, name: str, inner: list[Property]) -> Property:
    schema = {"type": "array", "items": _object_of(source, inner)}
    return Property(name, schema, lambda slots: [_object(inner, slots)])


def _object_of(source: Source, properties: list[Property]) -> Schema:
    """An object of these, and now and then of optional ones."""
    schemas = {p.name: p.schema for p in properties}
    if source.chance(0.4):
        for name, kind, about in source.some(BANK.ITEM_OPTIONS, 1, 3):
            schema = _schema(source, kind, about if source.chance(0.7) else "")
            schemas.setdefault(name, _nullable(source, schema))
    return {"type": "object", "properties": schemas, "required": [p.name for p in properties]}


def _object(properties: list[Property], slots: Slots) -> dict[str, Any]:
    return {p.name: p.value(slots) for p in properties if p.value}


# --- the tools of the roles, whose words banks.toml has


def draw_ability(source: Source, role: str, taken: Iterable[str]) -> Ability:
    """Draw a tool for a role, with a name that is not taken yet."""
    kind, opaque = BANK.KINDS[role], source.chance(0.06)
    name = _name(source, kind, taken, opaque=opaque)
    properties = _properties(source, role, kind)
    schemas = {p.name: p.schema for p in properties}
    schema = _object_schema(source, schemas, [p.name for p in properties if p.required])
    told = opaque or name not in kind["names"] or source.chance(0.94)
    summary = source.choice(kind["summaries"])
    about = _description(source, summary, kind["details"]) if told else ""
    return Ability(role, Tool(name, about, schema), partial(_object, properties))


def draw_editor(source: Source, taken: Iterable[str]) -> tuple[Ability, Ability]:
    """Draw a tool that edits files, and creates one where no old text is given; both its roles."""
    kind, style = BANK.KINDS["edit"], _style(source)
    name = _name(source, kind, taken, opaque=False)
    split = (slots.split("+") for slots in kind["slots"])
    path, old, new = map(style, source.choice([slots for slots in split if len({*slots}) == 3]))
    summary = source.choice(BANK.EDITOR_SUMMARIES).format(old=old, new=new)
    schemas = {key: _schema(source, "string", "") for key in (path, old, new)}
    schemas[path]["description"] = source.choice(kind["about"]["path"])
    schemas[old] = _nullable(source, schemas[old] | {"description": source.choice(BANK.EDITOR_OLD)})
    schemas[new]["description"] = source.choice(BANK.EDITOR_NEW).format(old=old)
    if source.chance(0.4):
        for extra, kind_of, about in source.some(BANK.EDITOR_EXTRAS, 1, 2):
            schemas.setdefault(style(extra), _nullable(source, _schema(source, kind_of, about)))
    schema = _object_schema(source, schemas, [path, new])
    tool = Tool(name, _description(source, summary, kind["details"]), schema)
    edit, create = (
        [Property(name, {}, _slot(slot)) for name, slot in pairs]
        for pairs in (
            ((path, "path"), (old, "old"), (new, "new")),
            ((path, "path"), (new, "content")),
        )
    )
    return (
        Ability("edit", tool, partial(_object, edit)),
        Ability("create", tool, partial(_object, create)),
    )


def _name(source: Source, kind: dict[str, Any], taken: Iterable[str], *, opaque: bool) -> str:
    """A name as agents give it: well-known, made of a verb and a noun, or meaningless."""
    taken = {name.lower() for name in taken}

    def generated() -> str:
        style = _style(source)
        if source.chance(0.25):
            name = source.choice(kind["names"])
        else:
            verb, noun = source.choice(kind["verbs"]), source.choice(kind["objects"])
            in_order = source.chance(0.85) or noun.startswith(("in_", "to_", "from_", "on_"))
            name = style(f"{verb}_{noun}" if in_order else f"{noun}_{verb}")
        if source.chance(0.2):
            prefix = f"{source.invented()}_" if source.chance(0.3) else source.choice(BANK.PREFIXES)
            name = prefix + name
        return name + source.choice(BANK.SUFFIXES) if source.chance(0.08) else name

    while True:
        if opaque:
            name = source.fresh(source.invented)
        else:
            is_known = source.chance(0.4)
            name = source.choice(kind["names"]) if is_known else source.fresh(generated)
        if name.lower() not in taken:
            return name


def _properties(source: Source, role: str, kind: dict[str, Any]) -> list[Property]:
    """All arguments, none of the same name, in the order of the schema."""
    style, told = _style(source), source.choice((0.0, 0.5, 1.0, 1.0, 1.0, 1.0))
    main = _main(source, role, kind, style, told)
    if role == "search":
        main += _search_folder(source, kind, style, told)
    fixed = _fixed(source, kind, style) if source.chance(0.25) else []
    n_extras = source.choice((0, 1, 2, 2, 3, 5))
    extras = [
        Property(style(name), _nullable(source, _schema(source, type_, about)), required=False)
        for name, type_, about in source.some(kind["extras"], 0, n_extras)
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
    source: Source, role: str, kind: dict[str, Any], style: Style, told: float
) -> list[Property]:
    """The arguments that hold what the user gives."""
    found: dict[str, Property] = {}
    known_names = source.choice(kind["slots"]).split("+")
    for slot, known in zip(BANK.SLOTS[role], known_names, strict=True):
        name = known if source.chance(0.5) else style(known)  # agents mix their styles
        opaque = source.chance(0.08)
        if opaque:
            name = source.fresh(source.invented)
        must_tell = opaque or known in _VAGUE
        about = source.choice(kind["about"][slot]) if must_tell or source.chance(told) else ""
        found[name] = Property(name, _schema(source, "string", about), _slot(slot))
    plain = list(found.values())
    return _other_shape(source, role, plain) or plain


def _search_folder(
    source: Source, kind: dict[str, Any], style: Style, told: float
) -> list[Property]:
    """Where to search: needed, left to the tool, or no argument at all."""
    if source.chance(0.3):
        return []
    about, name = source.choice(kind["about"]["path"]), source.choice(BANK.SEARCH_FOLDERS)
    if source.chance(0.5):
        schema = _schema(source, "string", about if source.chance(told) else "")
        return [Property(style(name), schema, _slot("path"))]
    return [Property(style(name), _schema(source, "string", about), required=False)]


def _fixed(source: Source, kind: dict[str, Any], style: Style) -> list[Property]:
    """Required arguments that the user says nothing about; each type has one right value."""
    drawn: list[Property] = []
    for what in source.some(("boolean", "number", "enum", "reason", "reason"), 1, 2):
        value: object
        if what == "boolean":
            name, value = source.choice(BANK.BOOLEANS), False
            schema = _schema(source, what, "Whether to do so" if source.chance(0.3) else "")
        elif what == "number":
            name, value = source.choice(BANK.NUMBERS), 1
            schema = _schema(source, source.choice(("number", "integer")), "")
            if source.chance(0.5):
                value = schema["default"] = source.choice((0, 2, 5, 10, 30, 60, 120, 1000))
        elif what == "enum":
            name, schema = source.choice(BANK.ENUMS), _schema(source, what, "")
            value = schema["enum"][0]
        else:
            name, value = source.choice(tuple(BANK.REASONS)), kind["reason"]
            schema = _schema(source, "string", source.choice(BANK.REASONS[name]))
        drawn.append(Property(style(name), schema, lambda _, value=value: value))
    return drawn


# --- tools that no branch ever needs


def draw_other(source: Source, taken: Iterable[str]) -> Tool:
    """Draw a tool that cannot do what a role does, with a name that is not taken yet."""
    taken = {name.lower() for name in taken}
    while True:
        tool = (_known if source.chance(0.55) else _invented)(source)
        if tool.name.lower() not in taken:
            return tool


def _known(source: Source) -> Tool:
    name, summary, spec = source.choice(BANK.KNOWN)
    style, properties, required = _style(source), dict[str, Schema](), list[str]()
    tells = source.chance(0.7)
    for word in spec.split():
        argument, _, kind = word.partition(":")
        about = f"{argument.strip('?').replace('_', ' ').capitalize()} {source.noun()}"
        key = style(argument.strip("?"))
        properties[key] = _schema(source, kind, about if tells and source.chance(0.6) else "")
        required += [] if argument.endswith("?") else [key]
    schema = _object_schema(source, properties, required)
    name = name if source.chance(0.5) else style(name)
    return Tool(name, _description(source, summary, long=0.1), schema)


def _invented(source: Source) -> Tool:
    verb, noun, style = source.choice(BANK.VERBS), source.choice(_NOUNS), _style(source)
    kind = source.rng.random()
    if kind < 0.8:
        prefix = "" if kind < 0.55 else f"{source.invented()}_"
        name = prefix + style(f"{verb}_{noun}")
    else:
        name = source.invented() + source.choice(("", "", "_api", "Client", f"_{verb}"))
    summary = source.choice(BANK.SUMMARIES).format(
        verb=verb, noun=noun, noun2=source.choice(_NOUNS), word=source.invented(),
        adj=source.adjective(), city=source.city(),
    )  # fmt: skip
    summary = summary[0].upper() + summary[1:]
    properties: dict[str, Schema] = {}
    for _ in range(source.choice((0, 1, 1, 2, 2, 3, 4, 6))):
        key = f"{source.code_word()}_{source.choice(_NOUNS)}"
        key = style(key if source.chance(0.5) else key.split("_")[source.chance(0.5)])
        properties[key] = _schema(source, _type(source), _about(source))
    required = [key for key in properties if source.chance(0.6)]
    if not properties and source.chance(0.4):
        return Tool(name, summary)
    schema = _object_schema(source, properties, required)
    return Tool(name, _description(source, summary, long=0.1), schema)
