"""Counts a body's values before it is decoded, which takes time and memory for each.

Source: RFC 8259; invalid text has some count, and decoding will refuse it.
"""

from gptoss_local.errors import RequestTooLargeError

MAX_VALUES = 2**18  # twice the token ids that fit into a context
MAX_NAMES = 2**16  # with objects and arrays; an agent's longest conversations have 20,000
_PIECE_BYTES = 256 * 1024  # takes 1 ms


class ValueCount:
    """The values, names, objects and arrays of a text that comes in pieces."""

    def __init__(self) -> None:
        self._n_values = self._n_names = 0
        self._is_text = 0  # 1 inside a string
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Count the next piece. Raises RequestTooLargeError."""
        for begin in range(0, len(data), _PIECE_BYTES):
            self._count(data[begin : begin + _PIECE_BYTES])
            if self._n_values > MAX_VALUES:
                raise _too_large(f"{MAX_VALUES:,} values")
            if self._n_names > MAX_NAMES:
                raise _too_large(f"{MAX_NAMES:,} names, objects and arrays")

    def feed_text(self, data: bytes) -> None:
        """Count a separate text, even if the one before it was incomplete."""
        self._is_text, self._rest = 0, b""
        self.feed(data)

    def _count(self, piece: bytes) -> None:
        piece = (self._rest + piece).replace(rb"\\", b"")
        # A single one at the end escapes the first character of the next piece.
        self._rest = b"\\" if piece.endswith(b"\\") else b""
        parts = piece.replace(rb"\"", b"").split(b'"')
        plain = b"".join(parts[self._is_text :: 2])
        self._is_text ^= 1 - len(parts) % 2
        self._n_values += plain.count(b",")
        self._n_names += sum(map(plain.count, (b":", b"[", b"{")))


def _too_large(what: str) -> RequestTooLargeError:
    return RequestTooLargeError(
        f"the request body has more than {what}",
        hint="Send long data as text: a string counts once, whatever its length.",
    )
