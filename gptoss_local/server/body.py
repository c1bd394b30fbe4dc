"""Request bodies: read within bounds, decoded leniently, checked against a struct.

Large ones wait for a place. Values are bounded, too: 31 kB of gzip can hold ten million.
"""

import asyncio
import codecs
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from contextvars import ContextVar
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from gptoss_local.base.errors import (
    RequestTimeoutError,
    RequestTooLargeError,
    ServerBusyError,
    UnsupportedEncodingError,
    UsageError,
)
from gptoss_local.base.off_loop import SMALL_BYTES, run_off_loop
from gptoss_local.base.validation import in_words, lenient
from gptoss_local.server.access import current_caller
from gptoss_local.server.origin import is_loopback

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


MAX_VALUES = 2**18  # twice the token ids that fit into a context
MAX_NAMES = 2**16  # with objects and arrays; an agent's longest conversations have 20,000
_COUNTED_BYTES = 256 * 1024  # takes 1 ms


class ValueCount:
    """The values, names, objects and arrays of a text that comes in pieces."""

    def __init__(self) -> None:
        self._n_values = self._n_names = 0
        self._is_text = 0  # 1 inside a string
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Count the next piece. Raises RequestTooLargeError."""
        for begin in range(0, len(data), _COUNTED_BYTES):
            self._count(data[begin : begin + _COUNTED_BYTES])
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


Body = TypeVar("Body")
T = TypeVar("T")

_MAX_BYTES = 32 * 1024 * 1024  # the longest prompt that fits is below 1 MB
# Of each caller, so many bodies may be larger than so many bytes at the same time; an emoji makes
# every character of a text take four bytes in memory. All others are bounded by their connections.
_PLACES = {64 * 1024: 64, 1024 * 1024: 2}
_TIMEOUT_S = 60.0
_MAX_DEPTH = 100  # schemas and arguments are read by code that recurses
_VERBATIM = frozenset(("parameters", "arguments", "format", "schema", "input_schema", "input"))


_places: dict[object, asyncio.Semaphore] = {}
_n_inner: ContextVar[ValueCount | None] = ContextVar("n_inner", default=None)
"""Counts JSON inside the texts of the current request."""


async def read_body(
    request: Request,
    body_type: type[Body],
    fill_in: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> Body:
    """Read and decode a request's body; `fill_in` adds fields that the client did not set.

    Raises:
        RequestTooLargeError: it is longer than 32 MiB, compressed or not, or has too many values.
        RequestTimeoutError: it takes longer than a minute.
        ServerBusyError: its caller's other large bodies left it no place within a minute.
        UnsupportedEncodingError: it is compressed otherwise than with zstd or gzip.
        UsageError: it cannot be decompressed, or see `parse_body`.
    """
    return await _read(request, lambda data: parse_body(data, body_type, fill_in))


async def read_text(request: Request) -> str:
    """Read a request's body as text; UsageError if it is not UTF-8, others as `read_body`."""

    def decode(data: bytes) -> str:
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UsageError("the request body is not text") from error

    return await _read(request, decode, counts=False)


async def read_bytes(request: Request) -> bytes:
    """Read a request's body as it is; errors as `read_body`."""
    return await _read(request, bytes, counts=False)


async def _read(request: Request, make: Callable[[bytes], T], *, counts: bool = True) -> T:
    pieces = await _receive(request, ValueCount() if counts else None)
    n_bytes = request.state.n_body_bytes = sum(map(len, pieces))
    _n_inner.set(ValueCount())
    if n_bytes <= SMALL_BYTES:
        return make(b"".join(pieces))
    return await run_off_loop(lambda check: make(b"".join(pieces)), n_bytes)


async def translate(request: Request, work: Callable[[], T]) -> T:
    """Make something of a body that `read_body` has read, outside the event loop if it is large."""
    n_bytes = request.state.n_body_bytes
    with request.state.place:
        if n_bytes <= SMALL_BYTES:
            return work()
        return await run_off_loop(lambda check: work(), n_bytes)


async def _receive(request: Request, tally: ValueCount | None) -> list[bytes]:
    """Receive and decompress a body within a minute; a large one waits for a place.

    The place is given back when the body is translated, or else when the request ends.
    """
    encoding = request.headers.get("content-encoding", "")
    decoder = BodyDecoder(encoding, _MAX_BYTES)
    announced = request.headers.get("content-length", "")
    check_size(int(announced) if announced.isdecimal() else 0, _MAX_BYTES)
    place = request.state.place = ExitStack()
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    task.add_done_callback(lambda _: place.close())
    pieces, n_bytes, is_waiting = list[bytes](), 0, False
    try:
        async with asyncio.timeout(_TIMEOUT_S) as limit:
            async for arrived in request.stream():
                for piece in decoder.feed(arrived):
                    n_before, n_bytes = n_bytes, n_bytes + len(piece)
                    for n_free in _PLACES:
                        if n_before <= n_free < n_bytes:
                            is_waiting = True
                            await _take_place(request, n_free)
                            is_waiting = False
                            limit.reschedule(loop.time() + _TIMEOUT_S)
                    if tally is not None:
                        tally.feed(piece)
                    pieces.append(piece)
                    if encoding:
                        await asyncio.sleep(0)  # little that arrives may be much
    except TimeoutError as error:
        if is_waiting:
            raise ServerBusyError(
                "server busy, please try again: other large requests are being read",
                hint="Send fewer at the same time.",
            ) from error
        raise RequestTimeoutError(
            f"the request body did not arrive within {_TIMEOUT_S:.0f} s"
        ) from error
    except ClientDisconnect as error:  # no client reads this
        raise UsageError("the client left before its request was complete") from error
    decoder.finish()
    return pieces


async def _take_place(request: Request, n_free: int) -> None:
    """Wait for a place of an account, of this machine without one, or of all others."""
    host = request.client.host if request.client else ""
    whose = current_caller().account or is_loopback(host), n_free
    places = _places.setdefault(whose, asyncio.Semaphore(_PLACES[n_free]))
    await places.acquire()
    request.state.place.callback(places.release)


def parse_body(
    data: bytes,
    body_type: type[Body],
    fill_in: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> Body:
    """Decode as Ollama does: any content type, top-level names in any case, null is unset.

    A byte order mark is skipped. UsageError: empty, not JSON, too deep, or of wrong types.
    """
    data = data.removeprefix(codecs.BOM_UTF8)
    if not data or data.isspace():
        raise UsageError("missing request body")
    try:
        value = _decode(data)
        if isinstance(value, dict):
            value = {key.lower(): item for key, item in value.items()}
        value = _clean(value)
        if fill_in is not None and isinstance(value, dict):
            value = fill_in(value)
        return convert(value, body_type)
    except msgspec.DecodeError as error:
        raise UsageError(f"invalid request: {in_words(error)}") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"invalid request: {error}") from error


def convert(value: Any, body_type: type[Body]) -> Body:
    try:
        return msgspec.convert(value, body_type, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"invalid request: {in_words(error, value)}") from error


def parse_object(text: str, what: str) -> dict[str, Any]:
    """Decode JSON text inside a request; empty text is `{}`. UsageError: it is not an object."""
    try:
        data = text.encode() or b"{}"
        (_n_inner.get() or ValueCount()).feed_text(data)
        value: dict[str, Any] = msgspec.convert(_decode(data), dict[str, Any])
        _clean(value)
    except msgspec.DecodeError as error:
        raise UsageError(f"invalid {what}: {in_words(error)}") from error
    except RecursionError as error:
        raise UsageError(f"invalid {what}: {error}") from error
    return value


def _decode(data: bytes) -> Any:
    """Decode broken text, too: it stays in a conversation, which a refusal would end for good."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        mended = lenient(data)
        if mended == data:
            raise
        return msgspec.json.decode(mended)


def _clean(value: Any, depth: int = 0, *, keeps_nulls: bool = False) -> Any:
    """Check the depth and drop null fields, except inside schemas and arguments."""
    if depth > _MAX_DEPTH:
        raise UsageError(f"invalid request: nested deeper than {_MAX_DEPTH} levels")
    depth += 1
    if isinstance(value, list):
        return [_clean(item, depth, keeps_nulls=keeps_nulls) for item in value]
    if isinstance(value, dict):
        return {
            key: _clean(
                item,
                depth,
                keeps_nulls=keeps_nulls or (key in _VERBATIM and isinstance(item, dict)),
            )
            for key, item in value.items()
            if keeps_nulls or item is not None
        }
    return value
