"""Turns a bank of phrasings into one sentence, as different people would type it.

A phrasing is a text with `{slots}`. Training never uses some phrasings of every bank, so that
an evaluation may. Noise (case, typos, politeness) touches the words around the slots
and never what is put into them.
"""

import functools
import re
import zlib
from collections.abc import Sequence
from string import Formatter

from bench.nano.data.source import Source
from bench.nano.phrases import banks

BANK = banks("wording")


_LONG_WORD = re.compile(r"(?<![\w'])[A-Za-z]{4,}(?![\w'])")
_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_NEAR_KEYS = {key: row[max(0, i - 1) : i] + row[i + 1 : i + 2] for row in _ROWS
              for i, key in enumerate(row)}  # fmt: skip


def phrase(source: Source, bank: Sequence[str], *, ask: bool = True, **slots: object) -> str:
    """Draw a phrasing, dress it and fill its slots."""
    template = source.choice(_allowed(tuple(bank)))
    # what is rare is missed most, so that training has more typos and capitals than is measured
    lower, typo, upper = 0.12, 0.27, 0.35
    style = source.rng.random()
    pieces = [(text, name) for text, name, _, _ in Formatter().parse(template)]
    if style < lower:
        pieces = [(text.lower(), name) for text, name in pieces]
    elif style < typo:
        pieces = [(_typo(source, text), name) for text, name in pieces]
    elif style < upper:
        pieces = [(text.upper(), name) for text, name in pieces]
    filled = "".join(text + (str(slots[name]) if name else "") for text, name in pieces)
    return _decorate(source, filled, template, ask=ask)


@functools.cache
def _allowed(bank: tuple[str, ...]) -> list[str]:
    """The part of a bank that is not held out: seven in eight."""
    held = {t for t in bank if zlib.crc32(t.encode()) % 8 == 0} or {bank[-1]}
    return [t for t in bank if t not in held] or list(bank)


def _decorate(source: Source, text: str, template: str, *, ask: bool) -> str:
    if ask and source.chance(0.2):
        opener = source.choice(BANK.OPENERS)
        starts_with_word = template[0].isalpha()
        text = opener + (text[0].lower() + text[1:] if starts_with_word else text)
    if template[-1] in ".?!" and source.chance(0.15):
        text = text[:-1]
    if template[-1] not in "}:\n`\"'" and source.chance(0.08):
        text = text.rstrip(".?!") + source.choice(BANK.CLOSERS)
    return text


def _typo(source: Source, text: str) -> str:
    spans = [match.span() for match in _LONG_WORD.finditer(text)]
    for start, end in sorted(source.some(spans, 1, 2), reverse=True):
        text = text[:start] + _mistyped(source, text[start:end]) + text[end:]
    return text


def _mistyped(source: Source, word: str) -> str:
    at = source.rng.randrange(1, len(word) - 1)
    kind = source.rng.randrange(7)
    if kind <= 1:
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    if kind <= 3:
        return word[:at] + word[at + 1 :]
    if kind <= 5:
        return word[:at] + word[at] + word[at:]
    near = _NEAR_KEYS.get(word[at].lower(), word[at])
    return word[:at] + source.choice(near) + word[at + 1 :]
