"""Request bodies that arrive compressed: made plain piece by piece, never beyond a bound.

It knows bytes only, not what they say.

Source: RFC 9110, section 8.4 (Content-Encoding); RFC 8878 (zstd) and RFC 1952 (gzip), of which both
let several frames follow each other.
"""

import sys
import zlib
from collections.abc import Callable
from typing import Any

from gptoss_local.errors import RequestTooLargeError, UnsupportedEncodingError, UsageError

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdDecompressor, ZstdError
else:
    from backports.zstd import ZstdDecompressor, ZstdError

_N_FRAMES_MAX = 1000  # empty ones cost time and add nothing, so bytes alone do not bound them


class BodyDecoder:
    """Collects the plain bytes of one body.

    Args:
        encoding: The header Content-Encoding; empty for none.
        max_bytes: Of the body, both as it arrives and as it is when plain.

    Raises:
        UnsupportedEncodingError: the encoding is none of zstd, gzip and identity.
    """

    def __init__(self, encoding: str, max_bytes: int) -> None:
        self._name = encoding.strip().lower() or "identity"
        if self._name not in _OPENERS:
            raise UnsupportedEncodingError(
                f"request bodies of content encoding '{encoding}' are not supported",
                hint="Use zstd, gzip, or none.",
            )
        self._max_bytes = max_bytes
        self._plain = bytearray()
        self._n_arrived = 0
        self._frame: Any = None  # the open one
        self._n_frames = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes that arrived.

        Raises:
            RequestTooLargeError: there is more than `max_bytes`. No more than that is ever made.
            UsageError: it is not what the encoding says.
        """
        self._n_arrived += len(data)
        self._check(self._n_arrived)
        opener = _OPENERS[self._name]
        if opener is None:
            self._plain += data
            return
        try:
            while data:
                data = self._decompress(data, opener)
        except (zlib.error, ZstdError, EOFError) as error:
            raise self._broken(str(error)) from error

    def finish(self) -> bytes:
        """Return the plain body. Raises UsageError if its end is missing."""
        if self._frame is not None:
            raise self._broken("it ends too early")
        return bytes(self._plain)

    def _decompress(self, data: bytes, opener: Callable[[], Any]) -> bytes:
        """Feed the open frame; return the bytes behind its end."""
        if self._frame is None:
            self._n_frames += 1
            if self._n_frames > _N_FRAMES_MAX:
                raise self._broken(f"it has more than {_N_FRAMES_MAX} frames")
            self._frame = opener()
        n_left = self._max_bytes - len(self._plain)
        self._plain += self._frame.decompress(data, n_left + 1)  # one more shows that it is more
        self._check(len(self._plain))
        if not self._frame.eof:
            return b""  # all of it was read, as the bound was not reached
        rest: bytes = self._frame.unused_data
        self._frame = None
        return rest

    def _check(self, n_bytes: int) -> None:
        if n_bytes > self._max_bytes:
            raise RequestTooLargeError(
                f"the request body is larger than {self._max_bytes // 1024**2} MiB",
                hint="Send text only, and no more of it than fits into the model's context.",
            )

    def _broken(self, why: str) -> UsageError:
        return UsageError(f"failed to decompress {self._name} body: {why}")


_OPENERS: dict[str, Callable[[], Any] | None] = {
    "identity": None,
    "zstd": ZstdDecompressor,
    "gzip": lambda: zlib.decompressobj(wbits=16 + zlib.MAX_WBITS),
}
