"""Makes what the terminal sends safe before Textual parses it. Knows no widgets.

Textual ends the app at a byte that is not UTF-8, and takes what follows an ESC in a paste for keys:
a BEL there opened the editor, and an Enter would have sent the message.
"""

import codecs
import importlib
import sys
from typing import Any

from gptoss_local.talk.history.plain import plain_text

_START, _END = "\x1b[200~", "\x1b[201~"  # of a bracketed paste


class InputDecoder(codecs.IncrementalDecoder):
    """Turns bytes into text, in pieces of any size; pastes keep no controls but tab and newline."""

    def __init__(self, errors: str = "replace") -> None:
        super().__init__(errors)
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors)
        self._is_paste = False
        self._held = ""  # of a paste: what may be the beginning of its end
        self._last = ""  # outside of one: what may have been the beginning of its start

    def decode(self, data: Any, final: bool = False) -> str:
        """Decode a piece; `final` if none follows."""
        text, decoded = self._utf8.decode(data, final), ""
        while text:
            piece, text = self._of_paste(text) if self._is_paste else self._of_keys(text)
            decoded += piece
        return decoded

    def _of_keys(self, text: str) -> tuple[str, str]:
        """Keys as they are, up to a paste; and what follows."""
        seen = self._last + text
        start = seen.find(_START)
        if start < 0:
            self._last = seen[1 - len(_START) :]
            return text, ""
        end = start + len(_START) - len(self._last)
        self._is_paste, self._last = True, ""
        return text[:end], text[end:]

    def _of_paste(self, text: str) -> tuple[str, str]:
        """A paste, up to its end; and what follows."""
        pasted, end, rest = (self._held + text).partition(_END)
        self._is_paste, self._held = not end, ""
        if not end:
            self._held = _held_of(pasted)
            pasted = pasted.removesuffix(self._held)
        lines = pasted.replace("\r\n", "\n").replace("\r", "\n")
        return plain_text(lines) + end, rest


def _held_of(pasted: str) -> str:
    """The longest end of a text that the next piece may make an end of line or of the paste."""
    beginnings = [_END[:n] for n in range(len(_END) - 1, 0, -1)]
    return next((held for held in (*beginnings, "\r") if pasted.endswith(held)), "")


def guard_input() -> None:
    """Let Textual's driver decode so, which has no setting for it; on Windows it reads no bytes."""
    if sys.platform != "win32":
        driver: Any = importlib.import_module("textual.drivers.linux_driver")
        driver.getincrementaldecoder = lambda _encoding: InputDecoder
