"""Decompresses request bodies within a bound. Source: RFC 9110, 8.4; RFC 8878; RFC 1952."""

import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from gptoss_local.errors import RequestTooLargeError, UnsupportedEncodingError, UsageError

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdDecompressor, ZstdError
else:
    from backports.zstd import ZstdDecompressor, ZstdError

_PIECE_BYTES = 256 * 1024
_N_FRAMES_MAX = 1000  # empty ones cost time and add nothing, so bytes alone do not bound them


def check_size(n_bytes: int, max_bytes: int) -> None:
    if n_bytes > max_bytes:
        raise RequestTooLargeError(
            f"the request body is larger than {max_bytes // 1024**2} MiB",
            hint="Send text only, and no more of it than fits into the model's context.",
        )


class BodyDecoder:
    """Decompresses a body; `max_bytes` bounds both forms. Raises UnsupportedEncodingError."""

    def __init__(self, encoding: str, max_bytes: int) -> None:
        self._name = encoding.strip().lower() or "identity"
        if self._name not in _OPENERS:
            raise UnsupportedEncodingError(
                f"request bodies of content encoding '{encoding}' are not supported",
                hint="Use zstd, gzip, or none.",
            )
        self._max_bytes = max_bytes
        self._n_plain = 0
        self._n_arrived = 0
        self._frame: Any = None  # the open one
        self._n_frames = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield plain bytes in pieces of 256 KiB at most.

        Raises RequestTooLargeError before more than `max_bytes` are made, UsageError for bad data.
        """
        self._n_arrived += len(data)
        check_size(self._n_arrived, self._max_bytes)
        opener = _OPENERS[self._name]
        if opener is None:
            yield data
            return
        try:
            is_full = False  # there may be more without more input
            while data or is_full:
                data, plain = self._decompress(data, opener)
                is_full = self._frame is not None and len(plain) == _PIECE_BYTES
                self._n_plain += len(plain)
                check_size(self._n_plain, self._max_bytes)
                yield plain
        except (zlib.error, ZstdError, EOFError) as error:
            raise self._broken(str(error)) from error

    def finish(self) -> None:
        """Raise UsageError if the end of the body is missing."""
        if self._frame is not None:
            raise self._broken("it ends too early")

    def _decompress(self, data: bytes, opener: Callable[[], Any]) -> tuple[bytes, bytes]:
        if self._frame is None:
            self._n_frames += 1
            if self._n_frames > _N_FRAMES_MAX:
                raise self._broken(f"it has more than {_N_FRAMES_MAX} frames")
            self._frame = opener()
        plain: bytes = self._frame.decompress(data, _PIECE_BYTES)
        if self._frame.eof:
            rest: bytes = self._frame.unused_data
            self._frame = None
        else:
            rest = getattr(self._frame, "unconsumed_tail", b"")  # zstd keeps unread bytes itself
        return rest, plain

    def _broken(self, why: str) -> UsageError:
        return UsageError(f"failed to decompress {self._name} body: {why}")


_OPENERS: dict[str, Callable[[], Any] | None] = {
    "identity": None,
    "zstd": ZstdDecompressor,
    "gzip": lambda: zlib.decompressobj(wbits=16 + zlib.MAX_WBITS),
}
