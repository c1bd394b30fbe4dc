"""Turns an iterator of frames into an HTTP answer, and stops it when the client is gone."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gptoss_local.errors import GptOssError

_log = logging.getLogger("gptoss")

Frames = AsyncGenerator[msgspec.Struct, None]
Merge = Callable[[list[Any]], msgspec.Struct]
ErrorFrame = Callable[[GptOssError], msgspec.Struct]
_encode = msgspec.json.Encoder().encode


def json_response(value: object, status: int = 200) -> Response:
    """One JSON body, in Ollama's content type."""
    return Response(_encode(value), status, media_type="application/json; charset=utf-8")


def log_error(error: GptOssError) -> None:
    """Log what is the server's trouble; a client's own mistake is told to the client alone."""
    if error.http_status >= 500:
        _log.error("%s", error.message)


class FrameResponse(Response):
    """Sends frames as NDJSON, each at once, or merged into one JSON object.

    An error before the first byte gets its HTTP status; one after it becomes the last frame.
    While it works it watches the connection, and a client that leaves closes the frames, which
    stops the engine: also in a long prefill, when nothing is sent that could fail.

    Args:
        frames: The answer; the response closes it.
        stream: One line per frame, not one object.
        merge: Makes one object out of all frames.
        error_frame: The body of an error in the dialect of the frames.
    """

    media_type = "application/x-ndjson"

    def __init__(
        self, frames: Frames, *, stream: bool, merge: Merge, error_frame: ErrorFrame
    ) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._frames = frames
        self._stream = stream
        self._merge = merge
        self._error_frame = error_frame

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = asyncio.create_task(self._answer(scope, receive, send))
        gone = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            work.cancel()  # does nothing to an answer that is complete
        with suppress(asyncio.CancelledError):
            await work

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._frames) as frames:
            try:
                if self._stream:
                    first = await anext(frames)
                else:
                    merged = self._merge([frame async for frame in frames])
            except GptOssError as error:
                log_error(error)
                failed = json_response(self._error_frame(error), error.http_status)
                await failed(scope, receive, send)
                return
            if self._stream:
                await self._send_lines(first, frames, send)
            else:
                await json_response(merged)(scope, receive, send)

    async def _send_lines(self, first: msgspec.Struct, frames: Frames, send: Send) -> None:
        async def line(frame: msgspec.Struct) -> None:
            body = _encode(frame) + b"\n"
            await send({"type": "http.response.body", "body": body, "more_body": True})

        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        await line(first)
        try:
            async for frame in frames:
                await line(frame)
        except GptOssError as error:
            log_error(error)
            await line(self._error_frame(error))
        except Exception:
            _log.exception("internal error in a stream")
            await line(self._error_frame(GptOssError("internal error, see the server log")))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
