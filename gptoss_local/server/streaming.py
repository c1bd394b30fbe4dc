"""Turns an iterator of frames into an HTTP answer, and stops it when the client is gone."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Send

from gptoss_local.errors import GptOssError

_log = logging.getLogger("gptoss")

Frames = AsyncGenerator[msgspec.Struct, None]
Merge = Callable[[list[Any]], msgspec.Struct]
ErrorFrame = Callable[[GptOssError], msgspec.Struct]
_encode = msgspec.json.Encoder().encode


class NDJSONResponse(StreamingResponse):
    """One JSON object and a newline per frame, each sent at once.

    Starlette cancels the stream when the client disconnects; closing the frames here, not at
    garbage collection, is what stops the engine at once. An error becomes the last frame.
    """

    media_type = "application/x-ndjson"

    def __init__(self, first: msgspec.Struct, frames: Frames, error_frame: ErrorFrame) -> None:
        super().__init__(self._lines(first, frames, error_frame))
        self._frames = frames

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self._frames):
            await super().stream_response(send)

    @staticmethod
    async def _lines(
        first: msgspec.Struct, frames: Frames, error_frame: ErrorFrame
    ) -> AsyncIterator[bytes]:
        yield _encode(first) + b"\n"
        try:
            async for frame in frames:
                yield _encode(frame) + b"\n"
        except GptOssError as error:
            yield _encode(error_frame(error)) + b"\n"
        except Exception:
            _log.exception("internal error in a stream")
            yield _encode(error_frame(GptOssError("internal error, see the server log"))) + b"\n"


async def respond(
    request: Request,
    frames: Frames,
    *,
    stream: bool,
    merge: Merge,
    error_frame: ErrorFrame,
) -> Response:
    """Send `frames` as NDJSON, or merged into one JSON object.

    An error before the first frame is raised, so that it gets its HTTP status; one after it
    becomes the last frame.

    Raises:
        GptOssError: whatever the frames raise before anything was sent.
    """
    if not stream:
        merged = await _until_disconnect(request, _merged(frames, merge))
        return json_response(merged) if merged is not None else Response(status_code=499)
    first = await _until_disconnect(request, _next(frames))
    if first is None:
        return Response(status_code=499)
    return NDJSONResponse(first, frames, error_frame)


def json_response(value: object, status: int = 200) -> Response:
    """One JSON body, in Ollama's content type."""
    return Response(_encode(value), status, media_type="application/json; charset=utf-8")


async def _merged(frames: Frames, merge: Merge) -> msgspec.Struct:
    async with aclosing(frames):
        return merge([frame async for frame in frames])


async def _next(frames: Frames) -> msgspec.Struct:
    return await anext(frames)


async def _until_disconnect(
    request: Request, work: Coroutine[Any, Any, msgspec.Struct]
) -> msgspec.Struct | None:
    """Await `work`, or cancel it and return None when the client goes away first."""
    task = asyncio.create_task(work)
    gone = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        return await task if task.done() else None
    finally:
        gone.cancel()
        task.cancel()
        await asyncio.gather(gone, task, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
