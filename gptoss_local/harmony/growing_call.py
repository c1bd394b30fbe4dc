"""The arguments of a call while the model writes it, as far as they are certain."""

from typing import Any

import msgspec

from gptoss_local.events import CallDelta
from gptoss_local.harmony.calls import fits_so_far
from gptoss_local.harmony.message import Tool

_N_SHORT = 64  # characters up to which a call is not worth it
_MIN_STEP = 16  # characters between two readings of the text
_STEP_SHARE = 256  # and this part of it, so that a long text is not read too often
_CLOSERS = {"{": "}", "[": "]"}


class GrowingCall:
    """Passes on the beginning of a call's arguments, in the very characters they will have.

    Only the inside of a string is certain: elsewhere the next character may be an error, and its
    repair change earlier text. Text that does not fit the function waits, as it may be an envelope.
    """

    def __init__(self, index: int, call_id: str, tool: Tool) -> None:
        self.id = call_id
        self._index = index
        self._tool = tool
        self._text = ""
        self._open: list[str] = []  # the ends of open objects and lists
        self._in_string = self._is_escaped = False
        self._n_read = 0
        self._sent = ""

    @property
    def has_begun(self) -> bool:
        return bool(self._sent)

    def is_beginning_of(self, arguments: dict[str, Any]) -> bool:
        return msgspec.json.encode(arguments).decode().startswith(self._sent)

    def feed(self, text: str) -> list[CallDelta]:
        """Take a piece of the body and return the arguments' text that it made certain."""
        self._text += text
        for character in text:
            self._scan(character)
        step = max(_MIN_STEP, self._n_read // _STEP_SHARE)
        is_due = len(self._text) >= max(_N_SHORT, self._n_read + step)
        return self.rest() if is_due else []

    def rest(self) -> list[CallDelta]:
        if not self._in_string or self._is_escaped or not self._open:
            return []
        self._n_read = len(self._text)
        closing = '"' + "".join(reversed(self._open))
        try:  # half an escape, or a key, is not valid JSON yet
            arguments = msgspec.json.decode(self._text + closing)
        except (msgspec.DecodeError, RecursionError):
            return []
        if not fits_so_far(arguments, self._tool):
            return []
        certain = msgspec.json.encode(arguments).decode().removesuffix(closing)
        if not certain.startswith(self._sent):  # such as a key that comes twice
            return []
        new, self._sent = certain[len(self._sent) :], certain
        return [CallDelta(self._index, self.id, self._tool.name, new)] if new else []

    def _scan(self, character: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif self._in_string:
            self._is_escaped = character == "\\"
            self._in_string = character != '"'
        elif character == '"':
            self._in_string = True
        elif character in _CLOSERS:
            self._open.append(_CLOSERS[character])
        elif self._open and character == self._open[-1]:
            self._open.pop()
