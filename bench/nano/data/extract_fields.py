"""The fields that `extract` asks for: how keys are spelled, values drawn, and facts stated.

A statement makes clear where its value ends: by quotes, by the end of the sentence or of the line.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.nano.data.echo import QUOTES
from bench.nano.data.source import Source
from bench.nano.phrases import banks

BANK = banks("extract")
WORDS = banks("words")

Draw = Callable[[Source], Any]


@dataclass(frozen=True, slots=True)
class Field:
    """What may be read from a text.

    Attributes:
        keys: Its names in JSON; the first one also names the field among the others.
        hint: What it is, in words.
        patterns: Sentences with the value as `{v}`; of a boolean, those that say yes.
        negative: Sentences that say no.
        group: Of fields with the same group, a text states only one.
        is_quoted: The value stands in quotes within a sentence.
    """

    keys: tuple[str, ...]
    hint: str
    schema: dict[str, Any]
    draw: Draw
    patterns: tuple[str, ...]
    negative: tuple[str, ...] = ()
    group: str = ""
    is_quoted: bool = False

    def state(self, source: Source, value: Any) -> str:
        """Say in one sentence what the value is."""
        if self.negative and not value:
            return source.choice(self.negative)
        return source.choice(self.patterns).format(v=self._shown(source, value))

    def state_in_form(self, source: Source, key: str, value: Any) -> str:
        """Say in one line, as in a form, what the value is."""
        label = "".join(f" {c.lower()}" if c.isupper() else c for c in key).replace("_", " ")
        label = label if source.chance(0.3) else label.capitalize()
        if isinstance(value, bool):
            return f"{label}: {'yes' if value else 'no'}"
        text = _plain(source, value)
        shown = text if text[0] not in QUOTES else self._shown(source, value)
        return f"{label}: {shown}"

    def _shown(self, source: Source, value: Any) -> str:
        text = _plain(source, value)
        if not self.is_quoted:
            return text
        pairs = [pair for pair in ('""', "``", "“”", "«»") if not set(pair) & set(text)]
        before, after = source.choice(pairs or ["“”"])
        return before + text + after


def _plain(source: Source, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return f"{value['street']}, {value['city']}, {value['zip']}"
    if isinstance(value, list):
        shown = [_item(v) if isinstance(v, dict) else str(v) for v in value]
        joint = source.choice((" and ", ", "))
        return ", ".join(shown[:-1]) + (joint if len(shown) > 1 else "") + shown[-1]
    return json.dumps(value)


def _item(item: dict[str, Any]) -> str:
    price = f" at {json.dumps(item['price'])} each" if "price" in item else ""
    return f"{item['quantity']} x {item['name']}{price}"


STRING: dict[str, Any] = {"type": "string"}
INTEGER: dict[str, Any] = {"type": "integer"}
NUMBER: dict[str, Any] = {"type": "number"}
BOOLEAN: dict[str, Any] = {"type": "boolean"}
STRINGS: dict[str, Any] = {"type": "array", "items": STRING}


def object_schema(properties: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Describe an object that has all these properties."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def items_schema(*, priced: bool) -> dict[str, Any]:
    """Describe a list of ordered things."""
    price = {"price": NUMBER} if priced else {}
    entry = object_schema({"name": STRING, "quantity": INTEGER, **price})
    return {"type": "array", "items": entry}


ADDRESS = object_schema({"street": STRING, "city": STRING, "zip": STRING})


def any_words(source: Source) -> str:
    """Draw a short name of anything, often of rare tokens, with no mark that ends a value."""

    def draw() -> str:
        kind = source.rng.randrange(5)
        if kind <= 1:
            drop = dict.fromkeys(map(ord, '"`“”«»\\'))
            return source.tokens(source.rng.randint(1, 5)).translate(drop).strip()
        if kind == 2:
            return f"{source.choice(WORDS.ADJECTIVES)} {source.noun()}"
        return source.noun() if kind == 3 else f"{source.invented().capitalize()} {source.noun()}"

    return source.fresh(lambda: draw() or "thing")


def company(source: Source) -> str:
    def draw() -> str:
        name = source.token_word() if source.chance(0.4) else source.invented()
        return name.capitalize() + source.choice(
            ("", "", " GmbH", " Ltd", " Labs", " Group", " AG")
        )

    return source.fresh(draw)


def country(source: Source) -> str:
    real = (
        "Norway", "Japan", "Brazil", "Kenya", "Canada", "France", "India", "Chile", "Egypt",
        "Poland", "Spain", "Peru", "Ghana", "Iceland", "Vietnam", "Mexico", "Greece", "Finland",
    )  # fmt: skip
    if source.chance(0.5):
        return source.choice(real)
    name = source.token_word() if source.chance(0.5) else source.invented()
    return name.capitalize()


def email(source: Source) -> str:
    def draw() -> str:
        user = source.token_word().lower() if source.chance(0.4) else source.invented()
        joint = source.choice(("", ".", "_"))
        host = source.choice(("example.com", "mail.org", f"{source.invented()}.com", "post.net"))
        return f"{user}{joint}{source.invented()}@{host}"

    return source.fresh(draw)


def phone(source: Source) -> str:
    def draw() -> str:
        pick = source.rng.randrange
        forms = (
            f"+{pick(1, 99)} {pick(100, 999)} {pick(1000000, 9999999)}",
            f"555-{pick(1000, 9999)}", f"0{pick(100, 999)} {pick(100000, 9999999)}",
            f"({pick(100, 999)}) {pick(100, 999)}-{pick(1000, 9999)}",
        )  # fmt: skip
        return source.choice(forms)

    return source.fresh(draw)


def date(source: Source) -> str:
    pick = source.rng.randint
    month = source.choice(BANK.MONTHS)
    return source.choice((
        f"{pick(1950, 2035)}-{pick(1, 12):02d}-{pick(1, 28):02d}", f"{month} {pick(1, 28)}",
        f"{pick(1, 28)} {month} {pick(1950, 2035)}",
        f"{pick(1, 12)}/{pick(1, 28)}/{pick(1990, 2035)}",
    ))  # fmt: skip


def clock_time(source: Source) -> str:
    hour, minute = source.rng.randrange(24), source.rng.choice((0, 15, 30, 45, 5, 20, 52))
    return source.choice((f"{hour:02d}:{minute:02d}", f"{hour % 12 + 1}:{minute:02d} pm"))


def reference(source: Source) -> str:
    def draw() -> str:
        letters = source.token_word().upper() if source.chance(0.4) else source.choice("ABCXZ")
        return f"{letters}-{source.rng.randrange(10 ** source.rng.randint(2, 7))}"

    return source.fresh(draw)


def website(source: Source) -> str:
    name = source.token_word().lower() if source.chance(0.4) else source.invented()
    tail = source.choice(("", f"/{source.noun()}", f"/{source.invented()}"))
    ending = source.choice(("com", "org", "net", "dev"))
    return f"https://{name}.{ending}{tail}"


def some_words(options: tuple[str, ...]) -> Draw:
    """Draw lists of one to four words, now and then unknown ones."""

    def draw(source: Source) -> list[str]:
        known = source.some(options, 1, 4)
        return list(
            dict.fromkeys(source.token_word() if source.chance(0.3) else word for word in known)
        )

    return draw


def items(priced: bool) -> Draw:
    def draw(source: Source) -> list[dict[str, Any]]:
        drawn: list[dict[str, Any]] = []
        for noun in source.some(WORDS.NOUNS, 1, 3):
            name = source.token_word() if source.chance(0.4) else f"{noun}s"
            item: dict[str, Any] = {"name": name, "quantity": source.rng.randint(1, 40)}
            drawn.append(item | {"price": price(source)} if priced else item)
        return drawn

    return draw


def price(source: Source) -> float | int:
    whole = source.rng.randrange(1, 10 ** source.rng.randint(1, 5))
    cents = source.rng.choice((25, 5, 99, 49, source.rng.randrange(1, 100)))
    return whole if source.chance(0.4) else float(f"{whole}.{cents:02d}")


def decimal(low: int, high: int) -> Draw:
    return lambda source: float(f"{source.rng.randint(low, high)}.{source.rng.randrange(10)}")


def whole(low: int, high: int) -> Draw:
    return lambda source: source.rng.randint(low, high)


def address(source: Source) -> dict[str, Any]:
    name = source.token_word() if source.chance(0.4) else source.invented()
    kind = source.choice(("Street", "Road", "Lane", "Avenue"))
    street = f"{source.rng.randint(1, 299)} {name.capitalize()} {kind}"
    return {"street": street, "city": source.city(), "zip": f"{source.rng.randrange(1, 99999):05d}"}


def coin(source: Source) -> bool:
    return source.chance(0.5)
