"""One schema while it is translated: what it becomes, and what its keywords need to be read."""

from collections.abc import Callable
from typing import Any, NoReturn, Protocol

from gptoss_local.errors import UsageError
from gptoss_local.harmony.pattern import PatternError, read_pattern, render
from gptoss_local.harmony.regex_algebra import Node
from gptoss_local.harmony.schema_document import Schema, Target, within
from gptoss_local.harmony.schema_keywords import ENFORCED, NOT_ENFORCED

_DEMANDING = ENFORCED | NOT_ENFORCED


class Translation(Protocol):
    """The services that a keyword may use beyond its own schema."""

    def read(self, schema: Any, place: str) -> Any:
        """Translate a schema within another."""

    def resolve(self, reference: str, schema: Schema) -> Target | None:
        """Follow a reference; None if it leads nowhere."""

    def refer_to(self, target: Target) -> str:
        """Return a reference to what another schema will become."""

    def name_language(self, expression: str, language: Node) -> None:
        """Keep what an expression matches."""

    def check_time(self) -> None:
        """Raise UsageError if this takes too long, or no client waits for it any more."""

    def refusal(self, problem: str) -> UsageError:
        """Return an error that says what cannot be enforced."""


class Reading:
    """A schema that is being translated.

    Attributes:
        schema: What the client sent.
        place: Where it is.
        out: What it becomes.
        also: What holds besides.
        is_nothing: Nothing satisfies it.
    """

    def __init__(self, translation: Translation, schema: Schema, place: str) -> None:
        self._translation = translation
        self.schema = schema
        self.place = place
        self.out: Schema = {}
        self.also: list[Any] = []
        self.is_nothing = False

    @property
    def types(self) -> set[str]:
        """Types that the schema names; empty if it names none."""
        named = self.schema.get("type", [])
        names = named if isinstance(named, list) else [named]
        return {name for name in names if isinstance(name, str)}

    def read(self, schema: Any, way: str) -> Any:
        """Translate a part of the schema."""
        return self._translation.read(schema, self.place + way)

    def resolve(self, reference: str) -> Target | None:
        return self._translation.resolve(reference, self.schema)

    def refer_to(self, target: Target) -> str:
        return self._translation.refer_to(target)

    def language(self, pattern: Any, way: str = "") -> Node:
        """Read a pattern that is here, or on a way from here."""
        if not isinstance(pattern, str):
            self.refuse("'pattern'", "must be text", way)
        try:
            return read_pattern(pattern)
        except PatternError as error:
            self.refuse("the pattern", str(error), way)

    def expression(self, language: Node, way: str = "") -> str:
        """Write an expression that llguidance matches."""
        try:
            text = f"^(?:{render(language, self._translation.check_time)})$"
        except PatternError as error:
            self.refuse("the pattern", str(error), way)
        self._translation.name_language(text, language)
        return text

    def refuse(self, what: str, why: str, way: str = "") -> NoReturn:
        """Raise UsageError: something that is here, or a way from here, is not as it should be."""
        raise self._translation.refusal(f"{what}{within(self.place + way)} {why}")

    def unsupported(self, keyword: str) -> NoReturn:
        self.refuse(f"'{keyword}'", "is not supported")

    def count(self, keyword: str, value: Any, most: int) -> int:
        """Return a number of items, characters or properties, of `most` at most."""
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            self.refuse(f"'{keyword}'", "must be a whole number, 0 or more")
        return min(value, most)


Reader = Callable[[Reading, str, Any], None]
"""Reads a keyword and its value."""


def exact(value: Any) -> Any:
    """Return a value as llguidance has it: 1.0 is written 1."""
    match value:
        case dict():
            return {key: exact(item) for key, item in value.items()}
        case list():
            return [exact(item) for item in value]
        case float() if value.is_integer():
            return int(value)
    return value


def is_anything(schema: Any) -> bool:
    """Return whether a schema plainly demands nothing."""
    if isinstance(schema, dict):
        return _DEMANDING.isdisjoint(schema) or (
            set(schema) == {"not"} and is_nothing(schema["not"])
        )
    return schema is True


def is_nothing(schema: Any) -> bool:
    """Return whether plainly nothing satisfies a schema."""
    if isinstance(schema, dict):
        return "not" in schema and is_anything(schema["not"])
    return schema is False


def short(value: Any) -> str:
    """Return a value as a message has it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
