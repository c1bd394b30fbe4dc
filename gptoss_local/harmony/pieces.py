"""Splits texts for tiktoken: a run of a million spaces overflows its stack."""

import re
from collections.abc import Iterator

# Characters: 10 ms. A multiple of three, as o200k takes three digits a token.
_MAX_PIECE = 3 * 2**14
_NEAR = 1000  # characters: where a border is looked for first
# Where o200k begins a new word in any case: before a space, and after a letter (apostrophes go
# with the word before them).
_BORDER = re.compile(
    r"(?<=\S) |(?<=[^\W\d_])[\s.,;:!?()\[\]{}<>=+*/\\|&%$#@\"、。，；：！？（）「」]"
    r"|(?<=[A-Za-z])[0-9]|(?<=[0-9])[A-Za-z]"
)


def split_text(text: str) -> Iterator[str]:
    """Split a text into one or more pieces; tokens stay the same unless a word is cut."""
    begin = 0
    while len(text) - begin > _MAX_PIECE:
        end = _end(text, begin)
        yield text[begin:end]
        begin = end
    yield text[begin:]


def _end(text: str, begin: int) -> int:
    end = begin + _MAX_PIECE
    for start in (max(begin + 1, end - _NEAR), begin + 1):
        borders = [border.start() for border in _BORDER.finditer(text, start, end)]
        if borders:
            return borders[-1]
    return end
