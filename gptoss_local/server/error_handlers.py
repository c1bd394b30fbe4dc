"""Errors before an answer begins, in the shape of the path's dialect."""

import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from gptoss_local.base.errors import (
    GptOssError,
    MethodNotAllowedError,
    PathNotFoundError,
    RateLimitError,
    UsageError,
)
from gptoss_local.server.dialects.registry import DIALECTS
from gptoss_local.server.request_id import add_request_id, request_id_of
from gptoss_local.server.streaming import json_response, log_error

_PREFIXES = ("/v1", "", "/api")  # with which our paths begin
_N_PARTS_MAX = 8  # that a base URL has too many; every one costs a look at all routes


async def _on_error(request: Request, error: GptOssError) -> Response:
    return error_response(request, error)


def error_response(request: Request, error: GptOssError) -> Response:
    log_error(error)
    response = json_response(_body(request, request.url.path, error), error.http_status)
    if isinstance(error, RateLimitError):
        response.headers["Retry-After"] = str(error.retry_after_s)
    return response


async def _on_exception(request: Request, error: Exception) -> Response:
    unexpected = GptOssError("internal error, see the server log")
    response = json_response(_body(request, request.url.path, unexpected), 500)
    add_request_id(response.headers, request_id_of(request))  # no middleware sees this answer
    return response


async def _on_http_exception(request: Request, error: HTTPException) -> Response:
    """Answer for unknown paths and methods: in Ollama's plain words, or in a dialect's shape."""
    path, headers = request.url.path, dict(error.headers or {})
    kind: type[UsageError]
    match error.status_code:
        case 404:
            text, kind = "404 page not found", PathNotFoundError
        case 405:
            text, kind = "405 method not allowed", MethodNotAllowedError
            headers["Allow"] = ", ".join(sorted(_methods(request, path)))
        case status:
            return PlainTextResponse(error.detail, status, headers=headers)
    served = next(_meant(request), "") if kind is PathNotFoundError else ""
    if not (served or path.startswith("/v1/")):
        return PlainTextResponse(text, error.status_code, headers=headers)
    advice = f". {_advice(path, served)}" if served else ""  # Ollama's clients show no hint
    told = kind(f"{text}: {request.method} {path}{advice}")
    response = json_response(_body(request, served or path, told), told.http_status)
    response.headers.update(headers)
    return response


def _methods(request: Request, path: str) -> set[str]:
    routes = (route for route in request.app.routes if isinstance(route, Route))
    found = (route.methods or set() for route in routes if route.path_regex.match(path))
    return set().union(*found)


def _meant(request: Request) -> Iterator[str]:
    """Yield served paths that a base URL with too much or too little makes of this one."""
    parts = request.url.path.split("/")[1:]
    for n, prefix in itertools.product(range(min(len(parts), _N_PARTS_MAX)), _PREFIXES):
        path = f"{prefix}/{'/'.join(parts[n:])}"
        if request.method in _methods(request, path):
            yield path


def _advice(path: str, served: str) -> str:
    """Say how to change a base URL so that the client asks for `served`, and not `path`."""
    if served.endswith(path):
        change = f"add {served.removesuffix(path)} to"
    elif path.endswith(served):
        change = f"take {path.removesuffix(served)} off"
    else:
        change = "correct"
    return f"This server has {served}: {change} the base URL of the client."


def _body(request: Request, path: str, error: GptOssError) -> object:
    dialect = next(d for d in DIALECTS if d.is_spoken(path, request.headers))
    return dialect.error_body(error, request)


HANDLERS: dict[Any, Callable[[Request, Any], Awaitable[Response]]] = {
    GptOssError: _on_error,
    HTTPException: _on_http_exception,
    Exception: _on_exception,
}
