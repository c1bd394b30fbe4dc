"""The arguments of a call while they are written."""

import secrets
import string
from collections import deque
from typing import Any

import msgspec

from gptoss_local.base.events import CallDelta
from gptoss_local.harmony.calls import fits_so_far, text_argument
from gptoss_local.harmony.message import Tool

_N_SHORT = 64  # characters up to which a call is not worth it
_MIN_STEP = 16  # characters between two readings of the text
_STEP_SHARE = 256  # and this part of it, so that a long text is not read too often
_N_ESCAPE = 12  # characters of the longest one, a pair of surrogates
_CLOSERS = {"{": "}", "[": "]"}


_ID_ALPHABET = string.ascii_lowercase + string.digits


def new_call_id() -> str:
    return "call_" + "".join(secrets.choice(_ID_ALPHABET) for _ in range(8))


class GrowingCall:
    """The beginning of a call's arguments, in the very characters that the whole will have.

    Only the inside of a string is certain: elsewhere the next character may be an error, and its
    repair change earlier text. Text that does not fit the function waits, as it may be an envelope.
    """

    def __init__(self, index: int, tool: Tool) -> None:
        self.id = new_call_id()
        self._index = index
        self._tool = tool
        self._text_name = text_argument(tool)
        self._text = ""
        self._open: list[str] = []  # the ends of open objects and lists
        self._in_string = self._is_escaped = False
        self._strings = deque[tuple[int, str]](maxlen=2)  # where the last ones end, and how
        self._n_scanned = self._n_read = 0
        self.certain = ""

    def is_beginning_of(self, arguments: dict[str, Any]) -> bool:
        return msgspec.json.encode(arguments).decode().startswith(self.certain)

    def feed(self, text: str) -> list[CallDelta]:
        """Take a piece of the body and return the arguments' text that it made certain."""
        for character in text:
            self._scan(character)
            self._n_scanned += 1
        self._text += text
        step = max(_MIN_STEP, self._n_read // _STEP_SHARE)
        is_due = len(self._text) >= max(_N_SHORT, self._n_read + step)
        if not is_due or not self._in_string or self._text_name:
            return []
        self._n_read = len(self._text)
        return self._pieces(self._until(self._n_read, self._closing))

    def cut(self, *, is_known: bool) -> list[CallDelta]:
        """Return all that is certain of a call that the limit cut, or the rest if `is_known`."""
        places = [(self._n_scanned - n, self._closing) for n in range(_N_ESCAPE * self._in_string)]
        places += reversed(self._strings)
        text = next((found for place in places if (found := self._until(*place))), "")
        if self._text_name and not text:
            text = msgspec.json.encode({self._text_name: self._text}).decode().removesuffix('"}')
        n_known = len(self.certain) if is_known else 0
        self._pieces(text)
        rest = self.certain[n_known:]
        return [self._delta(rest)] if rest or not n_known else []

    @property
    def _closing(self) -> str:
        return '"' + "".join(reversed(self._open))

    def _until(self, end: int, closing: str) -> str:
        """Return the arguments up to a place inside a string; empty if that is a key."""
        try:  # half an escape is not valid JSON, either
            arguments = msgspec.json.decode(self._text[:end] + closing)
        except (msgspec.DecodeError, RecursionError):
            return ""
        if not fits_so_far(arguments, self._tool):
            return ""
        return msgspec.json.encode(arguments).decode().removesuffix(closing)

    def _pieces(self, text: str) -> list[CallDelta]:
        new = text.removeprefix(self.certain)
        if len(new) + len(self.certain) != len(text) or not new:  # such as a key that comes twice
            return []
        self.certain = text
        return [self._delta(new)]

    def _delta(self, text: str) -> CallDelta:
        return CallDelta(self._index, self.id, self._tool.name, text)

    def _scan(self, character: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif self._in_string:
            self._is_escaped = character == "\\"
            self._in_string = character != '"'
            if not self._in_string:
                self._strings.append((self._n_scanned, self._closing))
        elif character == '"':
            self._in_string = True
        elif character in _CLOSERS:
            self._open.append(_CLOSERS[character])
        elif self._open and character == self._open[-1]:
            self._open.pop()
