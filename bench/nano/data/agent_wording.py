"""How a user of a coding agent puts a value into a sentence, so that its ends are clear.

Between marks a value may stand anywhere; without them it ends the message or has its own line.
Several lines stand in a code fence or are the rest of the message.
"""

import re
from dataclasses import dataclass

from bench.nano.data.source import Source
from bench.nano.data.wording import phrase

_MARKS = ("`", "`", "`", '"', '"', "'")
_LANGUAGES = ("", "", "", "", "bash", "text", "sh", "python", "js", "txt")
_WORD = re.compile(r"\w+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Bank:
    """Phrasings that mean the same; those of `asks` begin with a verb, `others` do not."""

    asks: tuple[str, ...]
    others: tuple[str, ...] = ()

    def draw(self, source: Source, **slots: str) -> str:
        """Draw a phrasing and fill it."""
        ask = bool(self.asks) and (not self.others or source.chance(0.6))
        return phrase(source, self.asks if ask else self.others, ask=ask, **slots)


class Wordings:
    """The phrasings of a role by the places where its main slot stands."""

    def __init__(self, bank: Bank, slot: str) -> None:
        mark = f"{{{slot}}}"
        self._slot = slot
        self._anywhere = bank
        self._last = _only(bank, "\0", mark)
        self._own_line = _only(bank, f"{mark}\n", f"\n{mark}")
        self._block = _only(bank, "\0", f"\n{mark}")

    def draw(self, source: Source, value: str, **slots: str) -> str:
        """Draw a phrasing and fill it; `slots` are the other ones, and clear already."""
        kind = source.rng.random()
        if "\n" in value:
            bare = kind < 0.3
            bank = self._block if bare else self._own_line
        elif kind < 0.5:
            bare, bank = False, self._anywhere
            return bank.draw(source, **{self._slot: marked(source, value)}, **slots)
        else:
            bare = kind < 0.85 and not _looks_marked(value)
            bank = self._last if bare else self._own_line
        return bank.draw(source, **{self._slot: value if bare else fenced(source, value)}, **slots)


def _looks_marked(value: str) -> bool:
    """Whether the value's own quotes would be taken for marks."""
    return value[0] in _MARKS or value[-1] in _MARKS


def _only(bank: Bank, start: str, end: str) -> Bank:
    def fits(template: str) -> bool:
        return template.endswith(end) or template.startswith(start)

    return Bank(tuple(filter(fits, bank.asks)), tuple(filter(fits, bank.others)))


def marked(source: Source, value: str) -> str:
    """Put a value of one line between marks that are not in it."""
    fitting = [mark for mark in _MARKS if mark not in value]
    if not fitting:
        return f"```\n{value}\n```"
    mark = source.choice(fitting)
    return f"{mark}{value}{mark}"


def marked_or_word(source: Source, value: str) -> str:
    """A value between marks; a single word now and then without them."""
    if _WORD.fullmatch(value) and source.chance(0.45):
        return value
    return marked(source, value)


def named(source: Source, path: str) -> str:
    """A path, which needs no marks if no space or full stop hides where it ends."""
    clear = " " not in path and (path[-1].isalnum() or (path.endswith("/") and len(path) > 2))
    return path if clear and source.chance(0.5) else marked(source, path)


def fenced(source: Source, value: str, languages: tuple[str, ...] = _LANGUAGES) -> str:
    """A value in a code fence that it does not close itself."""
    fence = "```"
    while fence in value:
        fence += "`"
    return f"{fence}{source.choice(languages)}\n{value}\n{fence}"
