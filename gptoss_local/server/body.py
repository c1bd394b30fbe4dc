"""Request bodies: read within bounds, decoded leniently, checked against a struct.

Large ones wait for a place. Values are bounded, too: 31 kB of gzip can hold ten million.
"""

import asyncio
import codecs
import sys
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
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

Body = TypeVar("Body")
T = TypeVar("T")

_MAX_BYTES = 32 * 1024 * 1024  # the longest prompt that fits is below 1 MB
# Of each caller, so many bodies may be larger than so many bytes at the same time; an emoji makes
# every character of a text take four bytes in memory. All others are bounded by their connections.
_PLACES = {64 * 1024: 64, 1024 * 1024: 2}
_TIMEOUT_S = 60.0
_MAX_DEPTH = 100  # schemas and arguments are read by code that recurses
_VERBATIM = frozenset(("parameters", "arguments", "format", "schema", "input_schema", "input"))
MAX_VALUES = 2**18  # twice the token ids that fit into a context
MAX_NAMES = 2**16  # with objects and arrays; an agent's longest conversations have 20,000
_PIECE_BYTES = 256 * 1024  # takes 1 ms to count
_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    "zstd": ZstdDecompressor,
    "gzip": lambda: zlib.decompressobj(wbits=16 + zlib.MAX_WBITS),
}

_places: dict[object, asyncio.Semaphore] = {}


async def read_body(
    request: Request,
    body_type: type[Body],
    fill_in: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> Body:
    """Read and decode a request's body; `fill_in` adds fields that the client did not set."""
    return await _read(request, lambda data: parse_body(data, body_type, fill_in))


async def read_bytes(request: Request) -> bytes:
    return await _read(request, bytes)


async def _read(request: Request, make: Callable[[bytes], T]) -> T:
    data = await _receive(request)
    request.state.n_body_bytes = len(data)
    if len(data) <= SMALL_BYTES:
        return make(data)
    return await run_off_loop(lambda check: make(data), len(data))


async def translate(request: Request, work: Callable[[], T]) -> T:
    """Make something of a body that `read_body` has read, outside the event loop if it is large."""
    n_bytes = request.state.n_body_bytes
    with request.state.place:
        if n_bytes <= SMALL_BYTES:
            return work()
        return await run_off_loop(lambda check: work(), n_bytes)


async def _receive(request: Request) -> bytes:
    """Receive and decompress a body within a minute; a large one waits for a place.

    The place is given back when the body is translated, or else when the request ends.
    """
    announced = request.headers.get("content-length", "")
    _check_size(int(announced) if announced.isdecimal() else 0)
    place = request.state.place = ExitStack()
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    task.add_done_callback(lambda _: place.close())
    body = bytearray()
    try:
        async with asyncio.timeout(_TIMEOUT_S) as limit:
            async for piece in _plain_pieces(request):
                n_before = len(body)
                body += piece
                _check_size(len(body))
                for n_free in _PLACES:
                    if n_before <= n_free < len(body):
                        limit.reschedule(None)
                        await _take_place(request, n_free)
                        limit.reschedule(loop.time() + _TIMEOUT_S)
    except TimeoutError as error:
        raise RequestTimeoutError(
            f"the request body did not arrive within {_TIMEOUT_S:.0f} s"
        ) from error
    except ClientDisconnect as error:  # no client reads this
        raise UsageError("the client left before its request was complete") from error
    return bytes(body)


async def _plain_pieces(request: Request) -> AsyncIterator[bytes]:
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity"):
        async for data in request.stream():
            yield data
        return
    if encoding not in _DECOMPRESSORS:
        raise UnsupportedEncodingError(
            f"request bodies of content encoding '{encoding}' are not supported",
            hint="Use zstd, gzip, or none.",
        )
    frame, broken = _DECOMPRESSORS[encoding](), f"failed to decompress {encoding} body"
    try:
        async for data in request.stream():
            is_full = False  # there may be more without more input
            while data or is_full:
                plain = frame.decompress(data, _PIECE_BYTES)
                data = getattr(frame, "unconsumed_tail", b"")  # zstd keeps unread bytes itself
                is_full = len(plain) == _PIECE_BYTES and not frame.eof
                yield plain
                await asyncio.sleep(0)  # little that arrives may be much
    except (zlib.error, ZstdError, EOFError) as error:
        raise UsageError(f"{broken}: {error}") from error
    if not frame.eof or frame.unused_data:
        raise UsageError(
            f"{broken}: it {'has bytes after its end' if frame.eof else 'ends too early'}"
        )


async def _take_place(request: Request, n_free: int) -> None:
    """Wait for a place of an account, of this machine without one, or of all others."""
    host = request.client.host if request.client else ""
    whose = current_caller().account or is_loopback(host), n_free
    places = _places.setdefault(whose, asyncio.Semaphore(_PLACES[n_free]))
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            await places.acquire()
    except TimeoutError as error:
        raise ServerBusyError(
            "server busy, please try again: other large requests are being read",
            hint="Send fewer at the same time.",
        ) from error
    request.state.place.callback(places.release)


def _check_size(n_bytes: int) -> None:
    if n_bytes > _MAX_BYTES:
        raise RequestTooLargeError(
            f"the request body is larger than {_MAX_BYTES // 1024**2} MiB",
            hint="Send text only, and no more of it than fits into the model's context.",
        )


def check_values(data: bytes) -> None:
    """Raise RequestTooLargeError for too many values, counted outside of strings."""
    n_values = n_names = is_text = 0
    rest = b""
    for begin in range(0, len(data), _PIECE_BYTES):
        piece = (rest + data[begin : begin + _PIECE_BYTES]).replace(rb"\\", b"")
        # A single one at the end escapes the first character of the next piece.
        rest = b"\\" if piece.endswith(b"\\") else b""
        parts = piece.replace(rb"\"", b"").split(b'"')
        plain = b"".join(parts[is_text::2])
        is_text ^= 1 - len(parts) % 2
        n_values += plain.count(b",")
        n_names += sum(map(plain.count, (b":", b"[", b"{")))
        for n, most, what in (
            (n_values, MAX_VALUES, "values"),
            (n_names, MAX_NAMES, "names, objects and arrays"),
        ):
            if n > most:
                raise RequestTooLargeError(
                    f"the request body has more than {most:,} {what}",
                    hint="Send long data as text: a string counts once, whatever its length.",
                )


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
    check_values(data)
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


def convert(value: Any, body_type: type[Body], place: str = "") -> Body:
    try:
        return msgspec.convert(value, body_type, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"invalid request: {place}{in_words(error, value)}") from error


def parse_object(text: str, what: str) -> dict[str, Any]:
    """Decode JSON text inside a request; empty text is `{}`. UsageError: it is not an object."""
    try:
        data = text.encode() or b"{}"
        check_values(data)
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
