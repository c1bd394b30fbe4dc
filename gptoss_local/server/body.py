"""Request bodies: read within bounds, decoded as clients need it, checked against a struct."""

import asyncio
import codecs
import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from gptoss_local.errors import RequestTimeoutError, UsageError
from gptoss_local.server.content_encoding import BodyDecoder

Body = TypeVar("Body")

_MAX_BYTES = 32 * 1024 * 1024  # the longest prompt that fits is below 1 MB
_TIMEOUT_S = 60.0
_MAX_DEPTH = 100  # schemas and arguments are read by code that recurses
_VERBATIM = frozenset(("parameters", "arguments", "format", "schema", "input_schema", "input"))
_ESCAPE = re.compile(  # a whole character in two halves, a half without the other, any other
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


async def read_body(
    request: Request,
    body_type: type[Body],
    fill_in: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> Body:
    """Read and decode a request's body.

    Args:
        request: Whose body.
        body_type: A struct.
        fill_in: Adds fields that the client did not set, by their names on the wire.

    Raises:
        RequestTooLargeError: it is longer than 32 MiB, compressed or not.
        RequestTimeoutError: it takes longer than a minute.
        UnsupportedEncodingError: it is compressed otherwise than with zstd or gzip.
        UsageError: it cannot be decompressed, or see `parse_body`.
    """
    decoder = BodyDecoder(request.headers.get("content-encoding", ""), _MAX_BYTES)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            async for chunk in request.stream():
                decoder.feed(chunk)
    except TimeoutError as error:
        raise RequestTimeoutError(
            f"the request body did not arrive within {_TIMEOUT_S:.0f} s"
        ) from error
    except ClientDisconnect as error:  # nobody reads this
        raise UsageError("the client left before its request was complete") from error
    return parse_body(decoder.finish(), body_type, fill_in)


def parse_body(
    data: bytes,
    body_type: type[Body],
    fill_in: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> Body:
    """Decode as Ollama does: any content type, top-level names in any case, null is unset.

    A byte order mark at the beginning is skipped: editors on Windows write one into files.

    Arguments as those of `read_body`.

    Raises:
        UsageError: the body is empty, not JSON, nested too deep, or a field has the wrong type.
    """
    data = data.removeprefix(codecs.BOM_UTF8)
    if not data.strip():
        raise UsageError("missing request body")
    try:
        value = _decode(data)
        if isinstance(value, dict):
            value = {key.lower(): item for key, item in value.items()}
        value = _clean(value)
        if fill_in is not None and isinstance(value, dict):
            value = fill_in(value)
        return convert(value, body_type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"invalid request: {error}") from error


def convert(value: Any, body_type: type[Body]) -> Body:
    """Make a typed value of decoded JSON. Raises UsageError where a field has the wrong type."""
    try:
        return msgspec.convert(value, body_type, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"invalid request: {error}") from error


def parse_object(text: str, what: str) -> dict[str, Any]:
    """Decode JSON text inside a request, e.g. the arguments of a call; empty text is `{}`.

    Raises:
        UsageError: it is no JSON object, or nested too deep.
    """
    try:
        value: dict[str, Any] = msgspec.convert(_decode(text.encode() or b"{}"), dict[str, Any])
        _clean(value)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise UsageError(f"invalid {what}: {error}") from error
    return value


def _decode(data: bytes) -> Any:
    """Decode JSON, in which half a character is U+FFFD, as Go's decoder has it.

    JavaScript programs that cut a text in the middle of an emoji send one half of its surrogate
    pair; a refusal would end their conversation for good, as the text stays in it.
    """
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        mended = _ESCAPE.sub(lambda match: rb"\ufffd" if match["half"] else match[0], data)
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
