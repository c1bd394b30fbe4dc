"""Tools that agents declare next to those of `agent_names`; no branch ever needs one of them."""

from collections.abc import Iterable
from typing import Any

from bench.nano.data.agent_schema import (
    draw_about,
    draw_description,
    draw_style,
    draw_type,
    object_schema,
    schema_of,
)
from bench.nano.data.source import Source
from bench.nano.phrases import banks
from gptoss_local.harmony.message import Tool

BANK = banks("tools")
WORDS = banks("words")

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
