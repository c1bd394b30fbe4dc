"""Values for the arguments of functions, each as a user writes it."""

from collections.abc import Callable
from typing import Any

from bench.nano.data.source import Source
from bench.nano.phrases import banks

BANK = banks("functions")
WORDS = banks("words")

Schema = dict[str, Any]


def free_text(source: Source, _: Schema) -> str:
    """Any text of one line, half of it English."""
    kind = source.rng.random()
    if kind < 0.25:
        return source.fresh(source.sentence)
    if kind < 0.4:
        return source.fresh(lambda: source.sentence()[:-1].lower())
    return source.line()


def short_text(source: Source, _: Schema) -> str:
    kind = source.rng.random()
    if kind < 0.3:
        return source.fresh(lambda: f"{source.choice(WORDS.ADJECTIVES)} {source.noun()}")
    if kind < 0.5:
        return source.fresh(lambda: source.tokens(source.rng.randint(1, 5)))
    if kind < 0.7:
        return source.fresh(lambda: " ".join(source.token_word() for _ in range(3)))
    return source.fresh(source.invented) if kind < 0.8 else source.line()


def draw_city(source: Source, _: Schema) -> str:
    city = source.city()
    return f"{city}, {source.choice(_COUNTRIES)}" if source.chance(0.08) else city


def draw_symbol(source: Source, _: Schema) -> str:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    n = source.rng.randint(2, 5)
    return source.fresh(lambda: "".join(source.choice(letters) for _ in range(n)))


def draw_amount(source: Source, schema: Schema) -> int | float:
    if schema["type"] == "number" and source.chance(0.3):
        return source.rng.randrange(1, 100000) / 100
    return source.rng.randrange(1, source.choice((10, 100, 1000, 100000)))


def draw_currency(source: Source, schema: Schema) -> str:
    return source.choice(BANK.CURRENCIES) if source.chance(0.7) else draw_symbol(source, schema)[:3]


def draw_email_address(source: Source, _: Schema) -> str:
    def draw() -> str:
        host = source.invented() + source.choice((".com", ".org", ".net", ".io", ".example"))
        name = source.person().lower().replace(" ", source.choice("._-"))
        return f"{name if source.chance(0.6) else source.token_word().lower()}@{host}"

    return source.fresh(draw)


def draw_time(source: Source, _: Schema) -> str:
    hour, minute = source.rng.randrange(24), source.rng.randrange(60)
    if source.chance(0.7):
        return f"{hour:02d}:{minute:02d}" if source.chance(0.8) else f"{hour}:{minute:02d}"
    half = source.choice(("am", "pm", "AM", "PM"))
    clock = f"{hour % 12 + 1}:{minute:02d}" if source.chance(0.5) else str(hour % 12 + 1)
    return f"{clock}{source.choice((' ', ' ', ''))}{half}"


def draw_date(source: Source, _: Schema) -> str:
    year, month = source.rng.randrange(2020, 2040), source.rng.randrange(12)
    day = source.rng.randrange(1, 29)
    kind = source.rng.randrange(5)
    if kind <= 1:
        return f"{year}-{month + 1:02d}-{day:02d}"
    if kind == 2:
        return f"{BANK.MONTHS[month]} {day}"
    return (
        f"{day} {BANK.MONTHS[month]} {year}" if kind == 3 else f"{BANK.MONTHS[month]} {day}, {year}"
    )


def draw_expression(source: Source, _: Schema) -> str:
    def number() -> str:
        whole = source.rng.randrange(1, source.choice((10, 100, 10000)))
        return f"{whole}.{source.rng.randrange(10)}" if source.chance(0.1) else str(whole)

    gap = source.choice((" ", " ", ""))
    text = number()
    for _ in range(source.rng.randint(1, 4)):
        text += gap + source.choice("+-*/") + gap
        text += f"({number()}{gap}{source.choice('+-')}{gap}{number()})" \
            if source.chance(0.2) else number()  # fmt: skip
    return f"sqrt({text})" if source.chance(0.05) else text


def draw_word(source: Source, _: Schema) -> str:
    draws = (source.noun, source.invented, source.token_word, source.token_word)
    draw = source.choice(draws)
    return source.fresh(lambda: draw().lower())


def draw_record_id(source: Source, schema: Schema) -> str | int:
    if schema["type"] == "integer":
        return source.rng.randrange(1, 10 ** source.rng.randint(1, 7))
    return source.fresh(lambda: source.secret().replace(" ", "-"))


def draw_artist(source: Source, _: Schema) -> str:
    return source.person() if source.chance(0.6) else source.fresh(
        lambda: f"The {source.invented().capitalize()} {source.noun().capitalize()}s"
    )  # fmt: skip


def draw_device(source: Source, _: Schema) -> str:
    thing = source.choice(BANK.DEVICES) if source.chance(0.7) else source.fresh(source.invented)
    return f"{source.choice(_ROOMS)} {thing}" if source.chance(0.6) else thing


_COUNTRIES = ("FR", "France", "Germany", "Japan", "USA", "UK", "Canada", "CA", "Texas", "Spain")
_ROOMS = ("kitchen", "bedroom", "bathroom", "office", "hall", "garage", "garden", "living room")
DRAWS: dict[str, Callable[[Source, Schema], object]] = {
    "city": draw_city, "symbol": draw_symbol, "amount": draw_amount, "currency": draw_currency,
    "email_address": draw_email_address, "time": draw_time, "date": draw_date,
    "expression": draw_expression, "word": draw_word, "record_id": draw_record_id,
    "artist": draw_artist, "device": draw_device, "free_text": free_text, "short_text": short_text,
    "person": lambda source, _: source.person(),
    "minutes": lambda source, _: source.rng.randrange(1, 600),
}  # fmt: skip
