"""Texts -> pieces that openai-harmony's tokenizer can take.

It first splits a text into words, and words of many characters (dots, spaces, letters without a
space) cost it the square of their length: 100,000 characters 5 s, 300,000 of them 40 s, and with a
million it panics. It holds Python's lock all the time, so a piece is also short as a whole.
"""

import re
from collections.abc import Iterator

MAX_WORD = 1000  # characters: 0.5 ms
_MAX_PIECE = 3 * 4096  # characters: 3 ms; a multiple of three, as o200k takes three digits a token
_LONG = re.compile(rf"(?<![^\s\d])[^\s\d]{{{MAX_WORD},}}|(?<!\s)\s{{{MAX_WORD},}}")
# Where o200k begins a new word in any case: before a space, and after a letter (apostrophes go
# with the word before them).
_BORDER = re.compile(
    r"(?<=\S) |(?<=[^\W\d_])[\s.,;:!?()\[\]{}<>=+*/\\|&%$#@\"、。，；：！？（）「」]"
    r"|(?<=[A-Za-z])[0-9]|(?<=[0-9])[A-Za-z]"
)


def split_text(text: str) -> Iterator[str]:
    """Split a text into short pieces of short words, between words where that is possible.

    The pieces have the text's tokens but where a word had to be cut; its characters are the
    same in any case. There is at least one piece.
    """
    begin = 0
    while True:
        piece = text[begin : begin + _MAX_PIECE]
        if len(piece) > MAX_WORD:
            piece = piece[: _end(piece, is_last=begin + _MAX_PIECE >= len(text))]
        yield piece
        begin += len(piece)
        if begin >= len(text):
            return


def _end(window: str, *, is_last: bool) -> int:
    """Return where the first piece of a window ends."""
    run = _LONG.search(window)
    if run is None and is_last:
        return len(window)
    end = len(window) if run is None else min(run.start() + MAX_WORD, len(window))
    for begin in (end // 2, 1):  # the last border, which is rarely far from the end
        borders = [border.start() for border in _BORDER.finditer(window, begin, end)]
        if borders:
            return borders[-1]
    return end
