"""Turns the events of an answer into an HTTP response, and stops them when the client is gone."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gptoss_local.base.errors import GptOssError, ServerUnavailableError, UsageError
from gptoss_local.harmony import Started

_log = logging.getLogger("gptoss")

_JSON = "application/json; charset=utf-8"
_HEADERS_S = 4.0  # until then, an error has its own status
_HEARTBEAT_S = 10.0  # some clients give up when no event has arrived for 30 s
_encode_json = msgspec.json.Encoder().encode
_LINE_BREAKS = {c.encode(): f"\\u{ord(c):04x}".encode() for c in "\x85\u2028\u2029"}


def _encode(value: object) -> bytes:
    """Return JSON on one line, also as `str.splitlines` and so every Python SDK splits it."""
    data = _encode_json(value)
    for character, escape in _LINE_BREAKS.items():
        if character in data:
            data = data.replace(character, escape)
    return data


class SseEvent(msgspec.Struct, frozen=True):
    """One server-sent event, maybe without a `name`; without data, a comment that clients skip."""

    data: Any
    name: str = ""


@dataclass(frozen=True, slots=True)
class Framing:
    media_type: str
    encode: Callable[[Any], bytes]


def _encode_sse(event: SseEvent) -> bytes:
    if event.data is None:
        return b": keepalive\n\n"
    name = f"event: {event.name}\n".encode() if event.name else b""
    return name + b"data: " + _encode(event.data) + b"\n\n"


NDJSON = Framing("application/x-ndjson", lambda frame: _encode(frame) + b"\n")
SSE = Framing("text/event-stream", _encode_sse)

T = TypeVar("T")
EventT = TypeVar("EventT")
EventIn = TypeVar("EventIn", contravariant=True)


class AnswerWriter(Protocol[EventIn]):
    """One answer in the words of a dialect, as it streams in and as a whole.

    `feed` takes every event and returns completed frames, after `Done` or `failed` the last ones.
    """

    framing: Framing

    def feed(self, event: EventIn) -> Iterable[Any]: ...

    def keepalive(self) -> Iterable[Any]:
        """Return frames without content that clients count as events, unlike SSE's comments."""

    def whole(self) -> Any:
        """Return the answer as one JSON body, after `Done`."""

    def failed(self, error: GptOssError) -> Iterable[Any]: ...


def json_response(value: object, status: int = 200) -> Response:
    """Return one JSON body, in Ollama's content type."""
    return Response(_encode(value), status, media_type=_JSON)


def log_error(error: GptOssError) -> None:
    """Log a fault of the server; the client alone learns of its own, or that the server is busy."""
    if error.http_status >= 500 and not isinstance(error, ServerUnavailableError):
        _log.error("%s", error.message)


class AnswerResponse(Response, Generic[EventT]):
    """Sends an answer frame by frame, each immediately, or as one JSON object.

    An error before the first byte has its HTTP status; a later one, or the server's end, becomes
    the last frames. A client that leaves, even in a prefill, stops the engine.
    """

    def __init__(
        self, events: AsyncGenerator[EventT, None], writer: AnswerWriter[EventT], *, stream: bool
    ) -> None:
        is_sse = stream and writer.framing is SSE
        super().__init__(
            headers={"Cache-Control": "no-cache"} if is_sse else None,
            media_type=writer.framing.media_type if stream else _JSON,
        )
        del self.headers["content-length"]
        if stream:
            self.headers["X-Accel-Buffering"] = "no"  # else nginx may hold frames back
        self._events = events
        self._writer = writer
        self._stream = stream
        self._has_started = False
        self._sent_s = time.monotonic()  # when the client last got something

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = asyncio.create_task(self._answer(send))
        gone = asyncio.create_task(disconnected(receive))
        ending = asyncio.create_task(scope["app"].state.ending.wait())
        pulse = asyncio.create_task(self._beat(send))
        try:
            await asyncio.wait((work, gone, ending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_cut = ending.done() and not (work.done() or gone.done())
            for task in (gone, ending, pulse, work):
                task.cancel()  # does nothing to an answer that is complete
        with suppress(asyncio.CancelledError):
            await work
        if is_cut:
            error = ServerUnavailableError("the server is shutting down")
            if not self._has_started:
                raise error
            await self._fail(error, send)

    async def _answer(self, send: Send) -> None:
        async with aclosing(self._events) as events:
            try:
                async for event in events:
                    if isinstance(event, Started) and event.n_left_out:
                        _log.warning("%d messages did not fit and were left out", event.n_left_out)
                        self.headers["X-Messages-Left-Out"] = str(event.n_left_out)
                    frames = self._writer.feed(event)
                    if self._stream:
                        await self._send_frames(frames, send)
            except Exception as error:
                if not self._has_started:
                    raise
                if isinstance(error, GptOssError):
                    log_error(error)
                else:
                    _log.exception("internal error in a stream")
                    error = GptOssError("internal error, see the server log")
                await self._fail(error, send)
                return
        body = b""
        if not self._stream:
            body = _encode(self._writer.whole())
            self.headers["content-length"] = str(len(body))
        await self._start(send)
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _fail(self, error: GptOssError, send: Send) -> None:
        await self._send_frames(self._writer.failed(error), send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_frames(self, frames: Iterable[Any], send: Send) -> None:
        body = b"".join(map(self._writer.framing.encode, frames))
        if body:
            await self._start(send)
            await send({"type": "http.response.body", "body": body, "more_body": True})
            self._sent_s = time.monotonic()

    async def _start(self, send: Send) -> None:
        if not self._has_started:
            self._has_started = True
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})

    async def _beat(self, send: Send) -> None:
        """Send headers and signs of life to a client that waits long, e.g. for a model."""
        if self._stream:
            await asyncio.sleep(min(_HEADERS_S, _HEARTBEAT_S))
            await self._start(send)
        while self._stream:
            silent_s = time.monotonic() - self._sent_s
            if silent_s >= _HEARTBEAT_S:
                await self._send_frames(self._writer.keepalive(), send)
                silent_s = 0.0
            await asyncio.sleep(_HEARTBEAT_S - silent_s)


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of work; if the client leaves, cancel it and raise UsageError."""
    tasks = doing, _ = asyncio.create_task(work), asyncio.create_task(disconnected(request.receive))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise UsageError("the client left before its answer was complete")
        return doing.result()
    finally:
        for task in tasks:
            task.cancel()


async def disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
