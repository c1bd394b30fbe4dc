"""Draws the values that conversations are about: names, paths, code, secrets, any token at all.

A value is held out of training if its crc32 is divisible by 16; a source for evaluation gives only
such values, a source for training never does.
"""

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
HELD_OUT_VALUES = 16  # one in so many
ESCAPED_SHARE = 1 / 6
_SIGNS = "()[]{}<>#;:,.!?+-*/=%&|~@$^_"


def is_held_out(value: str) -> bool:
    """Whether training must never use this value."""
    return zlib.crc32(value.encode()) % HELD_OUT_VALUES == 0


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


class Source:
    """Random values, reproducible from a seed."""

    def __init__(self, seed: int, *, held_out: bool = False) -> None:
        self.rng = random.Random(seed)
        self.held_out = held_out

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def choice(self, options: Sequence[T]) -> T:
        return self.rng.choice(options)

    def some(self, options: Sequence[T], low: int, high: int) -> list[T]:
        """Between `low` and `high` different options, in random order."""
        return self.rng.sample(options, min(len(options), self.rng.randint(low, high)))

    def fresh(self, draw: Callable[[], str]) -> str:
        """Draw until the value is on our side of the split."""
        for _ in range(2000):
            value = draw()
            if is_held_out(value) == self.held_out:
                return value
        raise ValueError(f"no value on this side of the split: {value!r}")

    def drawn(self, *draws: tuple[float, Callable[[], T]]) -> T:
        """Draw by one of these, each with the share up to which it is taken."""
        share = self.rng.random()
        return next(draw for limit, draw in draws if share < limit)()

    def invented(self, n_syllables: int = 0) -> str:
        """A word that does not exist, in lower case."""
        n = n_syllables or self.rng.choice((1, 1, 2, 2, 3))
        stem = "".join(self.rng.choice(WORDS.SYLLABLES) for _ in range(n))
        return stem + self.rng.choice(WORDS.ENDINGS)

    def noun(self) -> str:
        return self.rng.choice(WORDS.NOUNS)

    def number(self, below: int) -> str:
        return str(self.rng.randrange(below))

    def adjective(self) -> str:
        return self.rng.choice(WORDS.ADJECTIVES)

    def code_word(self) -> str:
        return self.rng.choice(WORDS.CODE_WORDS)

    def person(self) -> str:
        return self.fresh(self._person)

    def _person(self) -> str:
        first = self.choice(WORDS.FIRST_NAMES) if self.chance(0.3) else self.invented().capitalize()
        if self.chance(0.4):
            return first
        last = self.choice(WORDS.LAST_NAMES) if self.chance(0.3) else self.invented().capitalize()
        return f"{first} {last}"

    def city(self) -> str:
        return self.fresh(self._city)

    def _city(self) -> str:
        if self.chance(0.3):
            return self.choice(WORDS.CITIES)
        name = self.any_word().capitalize() if self.chance(0.4) else self.invented().capitalize()
        if self.chance(0.2):
            return f"{self.choice(('New', 'Port', 'San', 'East', 'Old', 'North'))} {name}"
        return (
            f"{name} {self.choice(('City', 'Falls', 'Bay', 'Hills'))}" if self.chance(0.1) else name
        )

    def token_word(self) -> str:
        """One alphabetic ASCII token of the vocabulary, stripped."""
        return self._alphabetic(_token_texts()[0])

    def any_word(self) -> str:
        """As `token_word`, but in any script."""
        return self._alphabetic(_token_texts()[self.chance(0.5)])

    def _alphabetic(self, tokens: list[str]) -> str:
        """The longer of two; for training the one of three that is hardest to spell without the
        space that it was read with."""
        while True:
            drawn = [self.choice(tokens).strip() for _ in range(2 if self.held_out else 3)]
            text = max(drawn, key=len if self.held_out else n_pieces)
            if text.isalpha():
                return text

    def tokens(self, n: int) -> str:
        """Text of about `n` tokens drawn from the whole vocabulary.

        Nothing but its own code tells that `="./` is `=\\"./` in JSON, so each of its kind
        must be met often enough to learn: for training one in six texts holds one.
        """
        ascii_only, others = _token_texts()
        share = self.choice((0.0, 0.1, 0.5, 1.0))
        gap = self.choice(("", "", " "))
        drawn = [self.choice(others if self.chance(share) else ascii_only) for _ in range(n)]
        if not self.held_out and self.chance(ESCAPED_SHARE):
            drawn[self.rng.randrange(n)] = self.choice(escaped_texts())
        return " ".join(gap.join(drawn).split()) or "-"

    def identifier(self) -> str:
        return self.fresh(self._identifier)

    def _identifier(self) -> str:
        parts = [self._part() for _ in range(self.rng.choice((1, 2, 2, 3)))]
        style = self.rng.randrange(5)
        if style <= 1:
            return "_".join(parts)
        if style == 2:
            return parts[0] + "".join(p.capitalize() for p in parts[1:])
        return "".join(p.capitalize() for p in parts) if style == 3 else "_".join(parts)

    def _part(self) -> str:
        kind = self.rng.random()
        if kind < 0.5:
            return self.choice(WORDS.CODE_WORDS)
        return self.invented() if kind < 0.8 else self.token_word().lower()

    def path(self) -> str:
        """A file's path, relative or absolute, now and then of Windows."""
        return self.fresh(self._path)

    def _path(self) -> str:
        folders = [
            self.choice(WORDS.FOLDERS) if self.chance(0.6) else self._part()
            for _ in range(self.rng.choice((0, 0, 1, 1, 2, 3, 4)))
        ]
        stem = self._part() if self.chance(0.6) else self._identifier()
        if self.chance(0.15):
            stem += f"{self.choice('-_.')}{self.rng.randrange(100)}"
        name = f"{stem}.{self.choice(WORDS.EXTENSIONS)}"
        kind = self.rng.random()
        if kind < 0.06:
            return "C:\\" + "\\".join([*folders, name])
        root = "/" if kind < 0.3 and folders else self.choice(("", "", "", "./"))
        return root + "/".join([*folders, name])

    def command(self) -> str:
        """A shell command of one line."""
        return self.fresh(self._command)

    def _command(self) -> str:
        slots = {
            "path": self._path(),
            "folder": self.choice(WORDS.FOLDERS),
            "word": self._part(),
            "name": self._identifier(),
            "n": self.rng.randrange(1, 1000),
            "text": self.sentence() if self.chance(0.5) else self.tokens(self.rng.randint(1, 6)),
        }
        first = self.choice(WORDS.COMMANDS).format(**slots)
        if self.chance(0.15):
            joint = self.choice((" && ", " | ", " ; ", " || "))
            return first + joint + self.choice(WORDS.COMMANDS).format(**slots)
        return first

    def sentence(self) -> str:
        """An English sentence about nothing in particular."""
        slots = {
            "adj": self.choice(WORDS.ADJECTIVES), "adj2": self.choice(WORDS.ADJECTIVES),
            "noun": self.noun(), "noun2": self.noun(), "noun3": self.noun(),
            "verb": self.choice(WORDS.VERBS), "prep": self.choice(WORDS.PREPOSITIONS),
            "n": self.rng.randrange(2, 1000), "name": self._person(), "city": self._city(),
        }  # fmt: skip
        return self.choice(WORDS.SENTENCES).format(**slots)

    def secret(self) -> str:
        """A passcode: digits, letters, words, or all of them."""
        return self.fresh(self._secret)

    def _secret(self) -> str:
        pick = self.rng.choice
        kind = self.rng.randrange(6)
        if kind == 0:
            return "".join(pick(string.digits) for _ in range(self.rng.randint(4, 10)))
        if kind == 1:
            return "".join(pick("0123456789abcdef") for _ in range(self.rng.randint(4, 16)))
        if kind == 2:
            return f"{pick(WORDS.ADJECTIVES)}-{self.noun()}-{self.rng.randrange(1000)}"
        if kind == 3:
            letters = string.ascii_uppercase + string.digits
            return "".join(pick(letters) for _ in range(self.rng.randint(4, 10)))
        if kind == 4:
            return f"{self.invented()}{self.rng.randrange(100)}"
        return "-".join(self.token_word() for _ in range(self.rng.randint(1, 4)))

    def line(self) -> str:
        """Any text of one line: what may be echoed, stored, sent or printed."""
        return self.fresh(self._line)

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
        lines: list[str] = []
        depth = 0
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
