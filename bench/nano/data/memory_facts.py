"""What people tell of themselves: how they say it, correct it, ask for it, and get it back."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.nano.data.extract_fields import BANK as EXTRACT
from bench.nano.data.extract_fields import clock_time
from bench.nano.data.source import Source
from bench.nano.phrases import banks

BANK = banks("memory")
WORDS = banks("words")


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact about the user: sentences that tell and correct it, questions, and their answer."""

    draw: Callable[[Source], str]
    told: tuple[str, ...]
    corrected: tuple[str, ...]
    asked: tuple[str, ...]
    answer: str


def _first_name(source: Source) -> str:
    def draw() -> str:
        kind = source.rng.randrange(10)
        if kind < 2:
            return source.choice(WORDS.FIRST_NAMES)
        return (source.token_word() if kind < 5 else source.invented()).capitalize()

    return source.fresh(draw)


def _rare_word(source: Source) -> str:
    return source.fresh(lambda: source.token_word() if source.chance(0.6) else source.invented())


def _known_or_rare(options: tuple[str, ...]) -> Callable[[Source], str]:
    return lambda source: source.choice(options) if source.chance(0.65) else _rare_word(source)


def _birthday(source: Source) -> str:
    return f"{source.choice(EXTRACT.MONTHS)} {source.rng.randint(1, 28)}"


def _number(source: Source) -> str:
    return str(source.rng.randrange(10 ** source.rng.randint(1, 5)))


_DRAWS: dict[str, Callable[[Source], str]] = {
    "city": Source.city, "secret": Source.secret, "identifier": Source.identifier,
    "number": _number, "rare_word": _rare_word, "birthday": _birthday, "first_name": _first_name,
    "clock_time": clock_time, "age": lambda s: str(s.rng.randint(5, 99)),
    "colors": _known_or_rare(BANK.COLORS), "foods": _known_or_rare(BANK.FOODS),
    "jobs": _known_or_rare(BANK.JOBS), "person": Source.person,
}  # fmt: skip


def _fact(kind: str, subject: str, draw: str, other: str) -> Fact:
    """Of a kind of banks.toml, about a subject; `other` is one more sentence that tells it."""
    fact = {
        name: tuple(text.replace("{subject}", subject) for text in texts)
        for name, texts in BANK.FACTS[kind].items()
        if name != "answer"
    }
    others = [] if other == "-" else [other]
    told = [t for text in fact["told"] for t in (others if text == "OTHERS" else [text])]
    answer = BANK.FACTS[kind]["answer"].replace("{subject}", subject)
    return Fact(_DRAWS[draw], tuple(told), fact["corrected"], fact["asked"], answer)


NAME = _fact("name", "", "person", "-")
OTHERS = tuple(_fact(*row) for row in BANK.OTHERS)
