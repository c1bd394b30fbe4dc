"""Fills patterns with words of one prompt, quickly: a long prompt has thousands of sentences."""

import re
from collections.abc import Callable, Sequence

from bench.nano.data import words
from bench.nano.data.agent_prompt_rules import RULES
from bench.nano.data.agent_prompt_text import (
    HEADINGS,
    IDENTITIES,
    LOGS,
    QUESTIONS,
    REPLIES,
    SMALL,
    TOOL_PROSE,
    TOOL_WORDS,
)
from bench.nano.data.source import Source

Pattern = tuple["str | Slot | tuple[Pattern, ...]", ...]
_LANGUAGES = ("Python", "Rust", "Go", "TypeScript", "JavaScript", "Java", "Kotlin", "C++", "Ruby",
              "Swift", "PHP", "Lua", "SQL", "Haskell", "Elixir", "Zig", "Bash")  # fmt: skip
_WORDS: dict[str, Sequence[str]] = {
    "noun": words.NOUNS, "adj": words.ADJECTIVES, "verb": words.VERBS, "prep": words.PREPOSITIONS,
    "lang": _LANGUAGES, "d": "123456789",
}  # fmt: skip
_TOOLS = tuple(TOOL_WORDS.split())


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


def compile_lines(text: str) -> tuple[Pattern, ...]:
    """Compile patterns that stand one per line."""
    return tuple(map(_compile, text.strip().splitlines()))


RULE_PATTERNS = compile_lines(RULES)
SMALL_PATTERNS = compile_lines(SMALL)
IDENTITY_PATTERNS = compile_lines(IDENTITIES)
HEADING_PATTERNS = tuple(map(_compile, HEADINGS.strip().replace("\n", "").split("|")))
TOOL_PATTERNS = compile_lines(TOOL_PROSE)
QUESTION_PATTERNS = compile_lines(QUESTIONS)
REPLY_PATTERNS = compile_lines(REPLIES)
LOG_PATTERNS = compile_lines(LOGS)
PROSE_PATTERNS = tuple(
    _compile(re.sub(r"\{(adj|noun)\d\}", r"{\1}", s).replace("{name}", "{person}"))
    for s in words.SENTENCES
)
CODE_PATTERNS = tuple(
    _compile(re.sub(r"\{[abc]\}", "{ident}", s).replace("{text}", "{word} {noun}"))
    for s in words.CODE_LINES
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
            self.source.choice(words.FOLDERS) if self.random() < 0.6 else self.source.invented()
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
