"""Makes the terminal's input safe before Textual parses it.

Textual ends the app at a byte that is not UTF-8, and reads the text after an ESC in a paste as
keys: a BEL there opened the editor, and an Enter would have sent the message.
"""

import codecs
import importlib
import sys
from typing import Any

from gptoss_local.talk.history.plain import plain_text

_START, _END = "\x1b[200~", "\x1b[201~"  # of a bracketed paste


class InputDecoder(codecs.IncrementalDecoder):
    """Decodes bytes in pieces of any size; pastes keep no controls but tab and newline."""

    def __init__(self, errors: str = "replace") -> None:
        super().__init__(errors)
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors)
        self._is_paste = False
        self._held = ""  # of a paste: perhaps the beginning of its end
        self._last = ""  # outside of one: perhaps the beginning of its start

    def decode(self, data: Any, final: bool = False) -> str:
        text, decoded = self._utf8.decode(data, final), ""
        while text:
            piece, text = self._of_paste(text) if self._is_paste else self._of_keys(text)
            decoded += piece
        return decoded

    def _of_keys(self, text: str) -> tuple[str, str]:
        seen = self._last + text
        start = seen.find(_START)
        if start < 0:
            self._last = seen[1 - len(_START) :]
            return text, ""
        end = start + len(_START) - len(self._last)
        self._is_paste, self._last = True, ""
        return text[:end], text[end:]

    def _of_paste(self, text: str) -> tuple[str, str]:
        pasted, end, rest = (self._held + text).partition(_END)
        self._is_paste, self._held = not end, ""
        if not end:
            self._held = _held_of(pasted)
            pasted = pasted.removesuffix(self._held)
        lines = pasted.replace("\r\n", "\n").replace("\r", "\n")
        return plain_text(lines) + end, rest


def _held_of(pasted: str) -> str:
    """Return the longest end of a text that may be cut in a line end or in `_END`."""
    beginnings = [_END[:n] for n in range(len(_END) - 1, 0, -1)]
    return next((held for held in (*beginnings, "\r") if pasted.endswith(held)), "")


def guard_input() -> None:
    """Make Textual's driver decode so, without a setting for it; on Windows it reads no bytes."""
    if sys.platform != "win32":
        driver: Any = importlib.import_module("textual.drivers.linux_driver")
        driver.getincrementaldecoder = lambda _encoding: InputDecoder
