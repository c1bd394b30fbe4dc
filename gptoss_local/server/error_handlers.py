"""Errors before an answer begins, in the shape of the dialect whose path was asked for."""

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from gptoss_local.errors import GptOssError
from gptoss_local.server import anthropic_frames, openai_parts
from gptoss_local.server.ollama_frames import error_frame
from gptoss_local.server.streaming import json_response, log_error


async def _on_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, GptOssError):
        raise error
    return error_response(request, error)


def error_response(request: Request, error: GptOssError) -> Response:
    """An error in the shape of the path's dialect."""
    log_error(error)
    return json_response(_body(request, error), error.http_status)


async def _on_exception(request: Request, error: Exception) -> Response:
    unexpected = GptOssError("internal error, see the server log")
    return json_response(_body(request, unexpected), 500)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """Unknown paths and verbs: in the plain words of Ollama's router, or in a dialect's shape."""
    if not isinstance(error, HTTPException):
        raise error
    status, path = error.status_code, request.url.path
    texts = {404: "404 page not found", 405: "405 method not allowed"}
    text = texts.get(status, error.detail)
    if not path.startswith("/v1/"):
        return PlainTextResponse(text, status, headers=error.headers)
    text = f"{text}: {request.method} {path}"
    dialect = anthropic_frames if path.startswith("/v1/messages") else openai_parts
    response = json_response(dialect.error_shape(text, status), status)
    response.headers.update(error.headers or {})
    return response


def _body(request: Request, error: GptOssError) -> object:
    path = request.url.path
    if path.startswith("/v1/messages"):
        return anthropic_frames.error_body(error)
    if path.startswith("/v1/"):
        return openai_parts.error_body(error)
    return error_frame(error)


HANDLERS: dict[Any, Callable[[Request, Exception], Awaitable[Response]]] = {
    GptOssError: _on_error,
    HTTPException: _on_http_exception,
    Exception: _on_exception,
}
