"""Functions that nobody has seen: invented names, purposes and arguments of all JSON types."""

import json
from collections.abc import Mapping

from bench.nano.data.functions_request import (
    FunctionAbility,
    Request,
    add_extra,
    parameters_schema,
    quoted,
)
from bench.nano.data.functions_values import Schema, free_text
from bench.nano.data.source import Source
from bench.nano.data.wording import phrase
from bench.nano.phrases import banks
from gptoss_local.harmony.message import Tool

BANK = banks("functions")
WORDS = banks("words")

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
    wanted = {name: _draw_schema(source) for name in (_argument(source) for _ in range(n))}
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
        return _ask(source, tool.name, deed if has_deed else "", given, in_pair=in_pair)

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


def _argument(source: Source) -> str:
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
        names = [_argument(source) for _ in range(source.rng.randint(1, 3))]
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


def _ask(
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
