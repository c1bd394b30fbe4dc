"""The functions that every API's documentation shows: names, arguments, and values for them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from bench.nano.data.functions_values import DRAWS, Schema
from bench.nano.data.source import Source
from bench.nano.phrases import banks

BANK = banks("functions")


class Argument(NamedTuple):
    """One argument of a family's functions.

    Attributes:
        slot: What phrasings call it.
        draw: A value as the user writes it, which the schema can take.
        is_free: Any text, which needs quotes within a sentence.
    """

    slot: str
    names: str
    descriptions: str
    draw: Callable[[Source, Schema], object]
    schemas: tuple[Schema, ...] = ({"type": "string"},)
    is_free: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """Functions with one purpose. `|` separates variants.

    Attributes:
        thing: What the user wants, as a noun phrase with slots of short values only.
    """

    role: str
    names: str
    descriptions: str
    thing: str
    arguments: tuple[Argument, ...]


def _argument(given: dict[str, Any]) -> Argument:
    """An argument as banks.toml has it, where a draw is a name and `one_of` options."""
    options, draw = given.pop("one_of", None), given.pop("draw", "")
    if isinstance(options, str):
        options = getattr(BANK, options)
    drawn = (lambda source, _: source.choice(options)) if options else DRAWS[draw]
    return Argument(draw=drawn, **given)


FAMILIES = tuple(
    Family(**family | {"arguments": tuple(map(_argument, family["arguments"]))})
    for family in BANK.FAMILIES
)
