"""Texts -> pieces that openai-harmony's tokenizer can take.

It first splits a text into words, and words of many characters (dots, spaces, letters without a
space) cost it the square of their length, with Python's lock held: 100,000 characters 5 s, 300,000
of them 40 s, and with a million it panics.
"""

import itertools
import re
from collections.abc import Iterator

_MAX = 1000  # characters of a word: 0.5 ms
_LONG = re.compile(rf"(?<![^\s\d])[^\s\d]{{{_MAX},}}|(?<!\s)\s{{{_MAX},}}")
# Where o200k begins a new word in any case; apostrophes go with the word before them.
_BORDER = re.compile(r"(?<=[^\W\d_])[.,;:!?()\[\]{}<>=+*/\\|&%$#@\"、。，；：！？（）「」]")


def split_text(text: str) -> list[str]:
    """Split a text so that no word is too long, between words where that is possible.

    The pieces' tokens are those of the text but where a word had to be cut; its characters are the
    same in any case.
    """
    cuts = [0, *_cuts(text), len(text)] if len(text) > _MAX else [0, len(text)]
    return [text[begin:end] for begin, end in itertools.pairwise(cuts)]


def _cuts(text: str) -> Iterator[int]:
    for run in _LONG.finditer(text):
        at = run.start()
        while run.end() - at > _MAX:
            limit = at + _MAX
            borders = [border.start() for border in _BORDER.finditer(text, at + 1, limit)]
            at = borders[-1] if borders else limit
            yield at
