"""All the fields of `extract_fields`, each with its keys and sentences."""

from typing import Any

from bench.nano.data import extract_fields as f
from bench.nano.data.extract_fields import INTEGER, STRING, Field
from bench.nano.data.source import Source
from bench.nano.phrases import banks

BANK = banks("extract")
WORDS = banks("words")


def _draw_of(kind: str, *arguments: Any) -> f.Draw:
    """How banks.toml says that a field is drawn."""
    if kind == "choice":
        options = getattr(BANK, arguments[0]) if isinstance(arguments[0], str) else arguments[0]
        return lambda source: source.choice(options)
    if kind == "some_words":
        return f.some_words(getattr(BANK, arguments[0], WORDS.ADJECTIVES))
    if arguments:
        return getattr(f, kind)(*arguments)
    return getattr(f, kind, None) or getattr(Source, kind)


FIELDS = tuple(
    Field(**field | {"draw": _draw_of(*field["draw"])}) for field in BANK.FIELDS.values()
)


def custom_field(source: Source) -> Field:
    """Make up a field that nobody has seen."""
    first = source.choice(WORDS.NOUNS) if source.chance(0.5) else source.token_word().lower()
    second = source.choice(("code", "id", "kind", "value", "level", "count", "mode", "index"))
    keys = (f"{first}_{second}", f"{first}{second.capitalize()}")
    patterns = tuple(pattern.replace("LABEL", f"{first} {second}") for pattern in BANK.STATEMENTS)
    schema: dict[str, Any] = INTEGER if second in ("count", "level", "index") else STRING
    draw = f.whole(0, 9999) if schema is INTEGER else f.any_words
    hint = f"the {first} {second}"
    return Field(keys, hint, schema, draw, patterns, is_quoted=schema is STRING)


# Short requests as people type them: keys and text in one line, two facts in a sentence.
