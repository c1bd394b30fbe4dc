"""Names, descriptions and JSON schemas as agents write them, for tools of any role."""

from collections.abc import Callable
from typing import Any

from bench.nano.data.source import Source
from bench.nano.phrases import banks

BANK = banks("tools")
WORDS = banks("words")

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
    """A summary alone, or with up to 40 lines of advice.

    Args:
        long: How often it is as long as a page.
    """
    size = source.rng.random()
    if size < 0.5:
        return summary
    n = source.rng.randint(11, 36) if size > 1 - long else source.rng.choice((1, 1, 2, 2, 3, 4, 7))
    own = source.some(details, min(n, len(details)), min(n, len(details)))
    lines = own + source.some(BANK.GENERAL_DETAILS, n - len(own), n - len(own))
    filled = [_fill(source, line) for line in lines]
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


def _fill(source: Source, line: str) -> str:
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
    """The schema of one property.

    Args:
        kind: A type of JSON, or "strings", "numbers", "map", "enum", "enum=a/b", "object",
            "objects".
        about: Description, may be empty.
    """
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
