"""Makes text from a file, a server or a model safe to print: nothing in it drives a terminal."""

import io
import re
import sys
import unicodedata
from typing import TextIO

_CONTROL = r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and newline, DEL, C1
_DIRECTION = r"\u202a-\u202e\u2066-\u2069"  # with which code is read in another order
_UNSAFE = re.compile(f"[{_CONTROL}{_DIRECTION}]")
_CR_OR_UNSAFE = re.compile(rf"\r(?=\n)|({_UNSAFE.pattern})")
_BLANK = re.compile(  # letters, marks and symbols of which nothing is drawn
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U0001d159\U000e0100-\U000e01ef]"
)
_RIGHT_TO_LEFT = re.compile(  # the blocks of letters and digits of such scripts
    "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefe\U00010800-\U00010fff\U0001e800-\U0001efff]+"
)
_UNSHOWN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # categories of characters that no name has
_MOST_MARKS = 2
_OVERLAY = 1  # the combining class of marks through the middle of a letter
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
_BREAKS = str.maketrans(_SHORT)


def is_segment(text: str) -> bool:
    """Return whether every reader of a path sees the text as one and the same segment."""
    is_shown = not any(c in "/\\" or unicodedata.category(c) in _UNSHOWN for c in text)
    return is_shown and text not in ("", ".", "..")


def printable(text: str) -> str:
    """Drop control characters, but not line ends and tabs. Works on any piece of a stream."""
    return _UNSAFE.sub("", text)


def shown(text: str) -> str:
    r"""Write control characters as `\u001b`, which means the same character in JSON."""
    return _CR_OR_UNSAFE.sub(lambda found: _escaped(found[1]) if found[1] else "", text)


def on_one_line(text: str) -> str:
    r"""Write line ends and tabs as `\n` and `\t`, too, so that a name fits in a table's row."""
    return shown(text).translate(_BREAKS)


def visible(text: str) -> str:
    r"""Write invisible characters, and marks that draw over others, as `\n`, `\u200b`, `\u0338`."""
    written = []
    n_free = 0  # marks that may follow
    for char in text:
        kind = unicodedata.category(char)
        is_fine = char == " " or (kind[0] not in "CZ" and not _BLANK.match(char))
        if kind in ("Mn", "Me"):
            n_free -= 1
            is_over = kind == "Me" or unicodedata.combining(char) == _OVERLAY
            is_fine = is_fine and n_free >= 0 and not is_over
        else:
            n_free = _MOST_MARKS if kind[0] in "LM" else 0
        written.append(char if is_fine else _SHORT.get(char, _escaped(char)))
    return "".join(written)


def in_order(text: str) -> str:
    """Keep right-to-left words from swapping places. Source: Unicode Technical Standard 55."""
    return _RIGHT_TO_LEFT.sub("\u200e\\g<0>\u200e", text)


def _escaped(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x1_0000 else f"\\U{ord(char):08x}"


class CleanStream(io.TextIOWrapper):
    """A text stream that shows control characters; `write_raw` is for our own styles."""

    _source: io.TextIOWrapper

    @classmethod
    def over(cls, stream: io.TextIOWrapper) -> "CleanStream":
        """Return a clean stream over another one, which stays usable."""
        stream.flush()
        clean = cls(
            stream.buffer,
            encoding=stream.encoding,
            errors=stream.errors,
            newline=None if stream.isatty() else "\n",  # as in `ready_streams`
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        clean._source = stream  # which closes the buffer when nothing refers to it
        return clean

    def write(self, text: str) -> int:
        return super().write(shown(text))

    def write_raw(self, text: str) -> int:
        return super().write(text)


def clean_streams() -> None:
    """Clean output to a terminal, and stderr, which may be a log; piped stdout stays as it is."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and (name == "stderr" or stream.isatty()):
            setattr(sys, name, CleanStream.over(stream))


def write_style(stream: TextIO, sequence: str) -> None:
    (stream.write_raw if isinstance(stream, CleanStream) else stream.write)(sequence)
