"""Fills patterns with words of one prompt, quickly: a long prompt has thousands of sentences."""

import re
from collections.abc import Callable, Sequence

from bench.nano.data.source import Source
from bench.nano.phrases import banks

BANK = banks("prompts")
WORDS = banks("words")

Pattern = tuple["str | Slot | tuple[Pattern, ...]", ...]
_WORDS: dict[str, Sequence[str]] = {
    "noun": WORDS.NOUNS, "adj": WORDS.ADJECTIVES, "verb": WORDS.VERBS, "prep": WORDS.PREPOSITIONS,
    "lang": BANK.LANGUAGES, "d": "123456789",
}  # fmt: skip
_TOOLS = BANK.TOOL_WORDS


class Slot(str):
    """The kind of value that stands in a place of a pattern."""


def _compile(text: str) -> Pattern:
    pieces: list[str | Slot | tuple[Pattern, ...]] = []
    for piece in re.split(r"(\{\w+\}|\[[^\]\[]*\|[^\]\[]*\])", text):
        if piece.startswith("{") and piece.endswith("}"):
            pieces.append(Slot(piece[1:-1]))
        elif piece.startswith("[") and "|" in piece:
            pieces.append(tuple(_compile(option) for option in piece[1:-1].split("|")))
        elif piece:
            pieces.append(piece)
    return tuple(pieces)


RULE_PATTERNS = tuple(map(_compile, BANK.RULES))
SMALL_PATTERNS = tuple(map(_compile, BANK.SMALL))
IDENTITY_PATTERNS = tuple(map(_compile, BANK.IDENTITIES))
HEADING_PATTERNS = tuple(map(_compile, BANK.HEADINGS))
TOOL_PATTERNS = tuple(map(_compile, BANK.TOOL_PROSE))
QUESTION_PATTERNS = tuple(map(_compile, BANK.QUESTIONS))
REPLY_PATTERNS = tuple(map(_compile, BANK.REPLIES))
LOG_PATTERNS = tuple(map(_compile, BANK.LOGS))
PROSE_PATTERNS = tuple(
    _compile(re.sub(r"\{(adj|noun)\d\}", r"{\1}", s).replace("{name}", "{person}"))
    for s in WORDS.SENTENCES
)
CODE_PATTERNS = tuple(
    _compile(re.sub(r"\{[abc]\}", "{ident}", s).replace("{text}", "{word} {noun}"))
    for s in WORDS.CODE_LINES
    if "{{" not in s and "}}" not in s and "[" not in s
)


class Filler:
    """Fills patterns; draws the values of a prompt when they are first needed.

    Args:
        n_values: How many different values of a kind there are.
    """

    def __init__(self, source: Source, n_values: int) -> None:
        self.source = source
        self.random = source.rng.random
        self._n_values = n_values
        self._values: dict[str, Sequence[str]] = {}

    def fill(self, pattern: Pattern) -> str:
        """Choose variants and values."""
        parts: list[str] = []
        self._append(parts, pattern)
        return "".join(parts)

    def one(self, patterns: tuple[Pattern, ...]) -> str:
        """Fill any of some patterns."""
        return self.fill(patterns[int(self.random() * len(patterns))])

    def value(self, kind: str) -> str:
        """A value of a kind."""
        values = self._values.get(kind)
        if values is None:
            values = self._values[kind] = _WORDS.get(kind) or self._draw(kind)
        return values[int(self.random() * len(values))]

    def _append(self, parts: list[str], pattern: Pattern) -> None:
        for piece in pattern:
            if type(piece) is str:
                parts.append(piece)
            elif type(piece) is Slot:
                parts.append(self.value(piece))
            else:
                self._append(parts, piece[int(self.random() * len(piece))])  # type: ignore[arg-type]

    def _draw(self, kind: str) -> list[str]:
        source = self.source
        draws: dict[str, Callable[[], str]] = {
            "path": source.path, "ident": source.identifier, "cmd": source.command,
            "person": source.person, "city": source.city, "tool": self._tool, "dir": self._folder,
            "word": self._word, "n": self._number, "product": self._product,
        }  # fmt: skip
        draw = draws[kind]
        return [draw() for _ in range(self._n_values)]

    def _tool(self) -> str:
        return self.source.choice(_TOOLS) if self.random() < 0.6 else self.source.identifier()

    def _folder(self) -> str:
        n = self.source.rng.randint(1, 3)
        folders = [
            self.source.choice(WORDS.FOLDERS) if self.random() < 0.6 else self.source.invented()
            for _ in range(n)
        ]
        return self.source.choice(("/", "/", "", "./", "~/", "/home/")) + "/".join(folders)

    def _word(self) -> str:
        draw = self.source.invented if self.random() < 0.5 else self.source.token_word
        return self.source.fresh(draw)

    def _number(self) -> str:
        return str(self.source.rng.randrange(1, 10 ** self.source.rng.randint(1, 4)))

    def _product(self) -> str:
        name = self.source.fresh(lambda: self.source.invented().capitalize())
        return name + self.source.choice(("", "", "", "Code", " AI", "Hub", "Desk", " CLI", "ly"))
