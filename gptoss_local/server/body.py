"""Request bodies: read within bounds, decoded as clients need it, checked against a struct.

Large ones are decoded outside the event loop. How many names and values a body may have is bounded
as well as its bytes: 31 kB of gzip can hold ten million of them. So are the bytes of all large ones
together: a body that has no room next to the others waits.
"""

import asyncio
import codecs
import itertools
from collections.abc import AsyncGenerator, Callable
from contextvars import ContextVar
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from gptoss_local.errors import (
    RequestTimeoutError,
    RequestTooLargeError,
    ServerBusyError,
    UsageError,
)
from gptoss_local.off_loop import SMALL_BYTES, Check, run_off_loop
from gptoss_local.server.body_limits import Room, RoomShare, ValueCount
from gptoss_local.server.content_encoding import BodyDecoder, check_size
from gptoss_local.validation import in_words, lenient

Body = TypeVar("Body")
T = TypeVar("T")

_MAX_BYTES = 32 * 1024 * 1024  # the longest prompt that fits is below 1 MB
# Bodies are decoded one at a time, so more of them would only wait in memory. An emoji makes every
# character of its text take four bytes there, so this can be 0.5 GB.
_ROOM_BYTES = 4 * _MAX_BYTES
# Bodies up to this size need no room, so clients that stall with large ones do not keep others from
# asking; the number of connections bounds them.
_FREE_BYTES = 1024 * 1024
_TIMEOUT_S = 60.0
_MAX_DEPTH = 100  # schemas and arguments are read by code that recurses
_VERBATIM = frozenset(("parameters", "arguments", "format", "schema", "input_schema", "input"))


_room = Room(_ROOM_BYTES)
_n_inner: ContextVar[ValueCount | None] = ContextVar("n_inner", default=None)
"""Counts JSON inside the texts of the request at hand, all of it together."""


async def read_body(
    request: Request,
    body_type: type[Body],
    fill_in: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> Body:
    """Read and decode a request's body.

    `fill_in` adds fields that the client did not set, by their names on the wire.

    Raises:
        RequestTooLargeError: it is longer than 32 MiB, compressed or not, or has too many values.
        RequestTimeoutError: it takes longer than a minute.
        ServerBusyError: there was no room for it within a minute.
        UnsupportedEncodingError: it is compressed otherwise than with zstd or gzip.
        UsageError: it cannot be decompressed, or see `parse_body`.
    """
    return await _read(request, lambda data: parse_body(data, body_type, fill_in))


async def read_text(request: Request) -> str:
    """Read a request's body as it is.

    Raises:
        As `read_body`; UsageError if it is not UTF-8.
    """

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
    """Receive a body and make something of it, off the loop if it is large; errors as `read_body`.

    `counts` bounds its names and values, too.
    """
    encoding = request.headers.get("content-encoding", "")
    BodyDecoder(encoding, 0)  # raises before anything is read
    request.state.place = None
    arrived = await _receive(request)
    n_bytes = sum(map(len, arrived))
    _n_inner.set(ValueCount())

    def parse(check: Check) -> T:
        max_bytes = _MAX_BYTES if request.state.place else _FREE_BYTES
        decoder, tally, pieces = BodyDecoder(encoding, max_bytes), ValueCount(), list[bytes]()
        for piece in itertools.chain.from_iterable(map(decoder.feed, arrived)):
            check()
            if counts:
                tally.feed(piece)
            pieces.append(piece)
        decoder.finish()
        data = b"".join(pieces)
        request.state.n_body_bytes = len(data)
        return make(data)

    if n_bytes <= SMALL_BYTES and not encoding:
        return parse(lambda: None)
    n_bytes = max(n_bytes, SMALL_BYTES + 1)
    try:
        body = await run_off_loop(parse, n_bytes)
    except RequestTooLargeError:
        if not encoding or request.state.place is not None:
            raise
        await _take_place(request, _MAX_BYTES)  # decompressed, it may be a large one
        body = await run_off_loop(parse, n_bytes)
    place: RoomShare | None = request.state.place
    if place is not None:
        place.shrink(request.state.n_body_bytes)
        # Not every body is translated: a pull may last for hours, and needs a name only.
        asyncio.get_running_loop().call_later(_TIMEOUT_S, place.leave)
    return body


async def translate(request: Request, work: Callable[[], T]) -> T:
    """Make something of a body that `read_body` has read, outside the event loop if it is large."""
    n_bytes, place = request.state.n_body_bytes, request.state.place
    try:
        if n_bytes <= SMALL_BYTES:
            return work()
        return await run_off_loop(lambda check: work(), n_bytes)
    finally:
        if place is not None:
            place.leave()


async def _receive(request: Request) -> list[bytes]:
    """Receive a body as it is sent; a large one takes its place in the room first.

    How large a body gets is not known if it comes in chunks, so it needs the most.
    """
    announced = request.headers.get("content-length", "")
    n_announced = int(announced) if announced.isdecimal() else 0
    check_size(n_announced, _MAX_BYTES)
    pieces: list[bytes] = []
    stream = request.stream()
    await _receive_more(stream, pieces, _FREE_BYTES)
    if sum(map(len, pieces)) > _FREE_BYTES:
        is_plain = "content-encoding" not in request.headers
        await _take_place(request, n_announced if n_announced and is_plain else _MAX_BYTES)
        await _receive_more(stream, pieces, _MAX_BYTES)
    return pieces


async def _receive_more(
    stream: AsyncGenerator[bytes, None], pieces: list[bytes], n_enough: int
) -> None:
    """Add to the pieces of a body until it ends or has more than enough bytes, within a minute."""
    n_bytes = sum(map(len, pieces))
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            async for piece in stream:
                n_bytes += len(piece)
                check_size(n_bytes, _MAX_BYTES)
                pieces.append(piece)
                if n_bytes > n_enough:
                    return
    except TimeoutError as error:
        raise RequestTimeoutError(
            f"the request body did not arrive within {_TIMEOUT_S:.0f} s"
        ) from error
    except ClientDisconnect as error:  # no client reads this
        raise UsageError("the client left before its request was complete") from error


async def _take_place(request: Request, n_bytes: int) -> None:
    """Wait for room as long as a body may take to arrive; a request that ends leaves its place.

    So a client that stalls with a place loses it before those give up that came after it.
    """
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            place = request.state.place = await _room.take(n_bytes)
    except TimeoutError as error:
        raise ServerBusyError(
            "server busy, please try again: other large requests are being read",
            hint=f"Together they may take {_ROOM_BYTES // 1024**2} MiB.",
        ) from error
    task = asyncio.current_task()
    assert task is not None
    task.add_done_callback(lambda _: place.leave())


def parse_body(
    data: bytes,
    body_type: type[Body],
    fill_in: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> Body:
    """Decode as Ollama does: any content type, top-level names in any case, null is unset.

    A byte order mark at the beginning is skipped: editors on Windows write one into files.

    Takes the same arguments as `read_body`.

    Raises:
        UsageError: the body is empty, not JSON, nested too deep, or a field has the wrong type.
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
    """Make a typed value of decoded JSON. Raises UsageError where a field has the wrong type."""
    try:
        return msgspec.convert(value, body_type, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"invalid request: {in_words(error, value)}") from error


def parse_object(text: str, what: str) -> dict[str, Any]:
    """Decode JSON text inside a request, e.g. the arguments of a call; empty text is `{}`.

    Raises:
        RequestTooLargeError: it has too many names and values.
        UsageError: it is not a JSON object, or nested too deep.
    """
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
    """Decode JSON; a refusal would end a conversation for good, as the text stays in it."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        mended = lenient(data)
        if mended == data:
            raise
        return msgspec.json.decode(mended)


def _clean(value: Any, depth: int = 0, *, keeps_nulls: bool = False) -> Any:
    """Check the depth and drop null fields where they mean `unset`.

    That is everywhere but inside schemas and arguments.
    """
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
