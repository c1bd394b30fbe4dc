"""Draws the values that conversations are about: names, paths, code, secrets, any token at all."""

import functools
import random
import string
import zlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from bench.nano.data.respell import n_pieces
from bench.nano.phrases import banks
from gptoss_local.models.nano.ranks import load_ranks

WORDS = banks("words")

T = TypeVar("T")
ESCAPED_SHARE = 1 / 6
_SIGNS = "()[]{}<>#;:,.!?+-*/=%&|~@$^_"


def is_held_out(value: str) -> bool:
    """Whether training never uses this value, one in sixteen."""
    return zlib.crc32(value.encode()) % 16 == 0


@functools.cache
def _token_texts() -> tuple[list[str], list[str]]:
    ascii_only: list[str] = []
    others: list[str] = []
    for token in load_ranks():
        try:
            text = token.decode()
        except UnicodeDecodeError:
            continue
        if text.isprintable() and text.strip():
            (ascii_only if text.isascii() else others).append(text)
    return ascii_only, others


@functools.cache
def escaped_texts() -> list[str]:
    """The tokens that JSON spells with others, for a quote or a backslash in them: some 990."""
    return [text for texts in _token_texts() for text in texts if '"' in text or "\\" in text]


def _kept(draw: Callable[["Source"], str]) -> Callable[["Source"], str]:
    return lambda source: source.fresh(lambda: draw(source))


class Source:
    """Random values, reproducible from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.choice = self.rng.choice

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def some(self, options: Sequence[T], low: int, high: int) -> list[T]:
        """Between `low` and `high` different options, in random order."""
        return self.rng.sample(options, min(len(options), self.rng.randint(low, high)))

    def fresh(self, draw: Callable[[], str]) -> str:
        """Draw until the value is not held out."""
        while is_held_out(value := draw()):
            pass
        return value

    def drawn(self, *draws: tuple[float, Callable[[], T]]) -> T:
        """Draw by one of these, each with the share up to which it is taken."""
        share = self.rng.random()
        return next(draw for limit, draw in draws if share < limit)()

    def invented(self) -> str:
        """A word that does not exist, in lower case."""
        n = self.choice((1, 1, 2, 2, 3))
        stem = "".join(self.choice(WORDS.SYLLABLES) for _ in range(n))
        return stem + self.choice(WORDS.ENDINGS)

    def noun(self) -> str:
        return self.choice(WORDS.NOUNS)

    def adjective(self) -> str:
        return self.choice(WORDS.ADJECTIVES)

    def code_word(self) -> str:
        return self.choice(WORDS.CODE_WORDS)

    def number(self, below: int) -> str:
        return str(self.rng.randrange(below))

    def _person(self) -> str:
        first = self.choice(WORDS.FIRST_NAMES) if self.chance(0.3) else self.invented().capitalize()
        if self.chance(0.4):
            return first
        last = self.choice(WORDS.LAST_NAMES) if self.chance(0.3) else self.invented().capitalize()
        return f"{first} {last}"

    def _city(self) -> str:
        if self.chance(0.3):
            return self.choice(WORDS.CITIES)
        name = self.any_word().capitalize() if self.chance(0.4) else self.invented().capitalize()
        if self.chance(0.2):
            return f"{self.choice(('New', 'Port', 'San', 'East', 'Old', 'North'))} {name}"
        tails = (" City", " Falls", " Bay", " Hills")
        return name + self.choice(tails) if self.chance(0.1) else name

    def token_word(self) -> str:
        """One alphabetic ASCII token of the vocabulary, stripped."""
        return self._alphabetic(_token_texts()[0])

    def any_word(self) -> str:
        """As `token_word`, but in any script."""
        return self._alphabetic(_token_texts()[self.chance(0.5)])

    def _alphabetic(self, tokens: list[str]) -> str:
        """Of three, the one that is hardest to spell without the space that it was read with."""
        text = ""
        while not text.isalpha():
            text = max([self.choice(tokens).strip() for _ in range(3)], key=n_pieces)
        return text

    def tokens(self, n: int) -> str:
        """Text of about `n` tokens drawn from the whole vocabulary.

        Nothing but its own code tells that `="./` is `=\\"./` in JSON, so each of its kind
        must be met often enough to learn: one in six texts holds one.
        """
        ascii_only, others = _token_texts()
        share, gap = self.choice((0.0, 0.1, 0.5, 1.0)), self.choice(("", "", " "))
        drawn = [self.choice(others if self.chance(share) else ascii_only) for _ in range(n)]
        if self.chance(1 / 6):
            drawn[self.rng.randrange(n)] = self.choice(escaped_texts())
        return " ".join(gap.join(drawn).split()) or "-"

    def _identifier(self) -> str:
        first, *rest = (self._part() for _ in range(self.choice((1, 2, 2, 3))))
        style = self.rng.randrange(5)
        if style not in (2, 3):
            return "_".join([first, *rest])
        return "".join(
            [first if style == 2 else first.capitalize(), *(p.capitalize() for p in rest)]
        )

    def _part(self) -> str:
        return self.drawn(
            (0.5, self.code_word), (0.8, self.invented), (1, lambda: self.token_word().lower())
        )

    def _path(self) -> str:
        folders = [
            self.choice(WORDS.FOLDERS) if self.chance(0.6) else self._part()
            for _ in range(self.choice((0, 0, 1, 1, 2, 3, 4)))
        ]
        stem = self._part() if self.chance(0.6) else self._identifier()
        if self.chance(0.15):
            stem += f"{self.choice('-_.')}{self.rng.randrange(100)}"
        name, kind = f"{stem}.{self.choice(WORDS.EXTENSIONS)}", self.rng.random()
        if kind < 0.06:
            return "C:\\" + "\\".join([*folders, name])
        root = "/" if kind < 0.3 and folders else self.choice(("", "", "", "./"))
        return root + "/".join([*folders, name])

    def _command(self) -> str:
        slots = {
            "path": self._path(), "folder": self.choice(WORDS.FOLDERS), "word": self._part(),
            "name": self._identifier(), "n": self.rng.randrange(1, 1000),
            "text": self.sentence() if self.chance(0.5) else self.tokens(self.rng.randint(1, 6)),
        }  # fmt: skip
        first = self.choice(WORDS.COMMANDS).format(**slots)
        if self.chance(0.15):
            joint = self.choice((" && ", " | ", " ; ", " || "))
            return first + joint + self.choice(WORDS.COMMANDS).format(**slots)
        return first

    def sentence(self) -> str:
        """An English sentence about nothing in particular."""
        slots = {
            "adj": self.adjective(), "adj2": self.adjective(), "noun": self.noun(),
            "noun2": self.noun(), "noun3": self.noun(), "verb": self.choice(WORDS.VERBS),
            "prep": self.choice(WORDS.PREPOSITIONS), "n": self.rng.randrange(2, 1000),
            "name": self._person(), "city": self._city(),
        }  # fmt: skip
        return self.choice(WORDS.SENTENCES).format(**slots)

    def _secret(self) -> str:
        kind = self.rng.randrange(6)
        if kind in (0, 1, 3):
            signs = {0: string.digits, 1: "0123456789abcdef"}
            some = signs.get(kind, string.ascii_uppercase + string.digits)
            n = self.rng.randint(4, 16 if kind == 1 else 10)
            return "".join(self.choice(some) for _ in range(n))
        if kind == 2:
            return f"{self.adjective()}-{self.noun()}-{self.rng.randrange(1000)}"
        if kind == 4:
            return f"{self.invented()}{self.rng.randrange(100)}"
        return "-".join(self.token_word() for _ in range(self.rng.randint(1, 4)))

    def _line(self) -> str:
        draws: tuple[Callable[[], str], ...] = (
            self._secret, self._path, self._identifier, self._command, self.sentence, self._person,
            self._city, self.invented, self.token_word, self._code_line, self._number,
            lambda: self.tokens(self.rng.randint(1, 24)),
            lambda: self.tokens(self.rng.randint(1, 8)),
            lambda: " ".join(self.any_word() for _ in range(self.rng.randint(1, 8))),
            self._signed, self._quoting,
        )  # fmt: skip
        return self.choice(draws)()

    def _signed(self) -> str:
        """Text that ends in signs, which many tokens join with a newline behind them."""
        text = self._code_line() if self.chance(0.3) else self.tokens(self.rng.randint(1, 8))
        gap = " " if self.chance(0.3) else ""
        return text + gap + "".join(self.choice(_SIGNS) for _ in range(self.rng.randint(1, 3)))

    def _quoting(self) -> str:
        a, b = (self.any_word() if self.chance(0.5) else self._identifier() for _ in range(2))
        return self.choice(WORDS.QUOTING).format(a=a, b=b, n=self.rng.randrange(100))

    def _number(self) -> str:
        pick = self.rng.randrange
        whole = pick(10 ** self.rng.randint(1, 12))
        return self.choice((str(whole), f"{pick(1000)}.{pick(100):02d}", f"-{whole}", f"{whole:,}"))

    def _code_line(self) -> str:
        names = {name: self._identifier() for name in ("a", "b", "c")}
        text = self.tokens(2).replace('"', "")
        return self.choice(WORDS.CODE_LINES).format(**names, n=self.rng.randrange(1000), text=text)

    def code(self, n_lines: int) -> str:
        """A file of code, lines drawn freely with plausible indentation, no final newline."""
        lines, depth = list[str](), 0
        while len(lines) < n_lines:
            if lines and lines[-1] and self.chance(0.12):
                lines.append("")
                depth = 0 if self.chance(0.5) else depth
                continue
            line = self._code_line()
            lines.append("    " * depth + line)
            if line.endswith((":", "{")):
                depth = min(depth + 1, 4)
            elif self.chance(0.25):
                depth = max(depth - 1, 0)
        return "\n".join(lines).rstrip()

    person, city, identifier, path = map(_kept, (_person, _city, _identifier, _path))
    command, secret, line = map(_kept, (_command, _secret, _line))
