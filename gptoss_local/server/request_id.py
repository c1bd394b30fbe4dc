"""Adds headers to every answer: the request's id, which SDKs read, and the ignored fields."""

import re
import secrets
from contextvars import ContextVar
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADERS = ("request-id", "x-request-id")
_UNFIT = re.compile(r"[^\x20-\x7e]")  # names in a warning are the client's
_MAX_HEADER = 1000

_current: ContextVar[dict[str, Any]] = ContextVar("request")
"""The state of the request that a task works for; tasks that it starts share it."""


class RequestIds:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state, request_id = scope.setdefault("state", {}), f"req_{secrets.token_hex(12)}"
        state["request_id"] = request_id
        _current.set(state)

        async def answering(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                add_request_id(headers, request_id)
                if warning := state.get("warning"):
                    headers["X-Gptoss-Warning"] = _UNFIT.sub("?", warning[:_MAX_HEADER])
            await send(message)

        await self._app(scope, receive, answering)
        # Tasks that outlive it are not part of it: a model's keep-alive, an answer of the page.
        # After an exception the id stays, for uvicorn logs that one.
        del state["request_id"]


def add_request_id(headers: MutableHeaders, request_id: str) -> None:
    for name in _HEADERS:
        headers[name] = request_id


def request_id_of(request: Request) -> str:
    request_id: str = request.state.request_id
    return request_id


def current_request_id() -> str:
    """Return the id of the request that this task or thread works for; empty without one."""
    request_id: str = _current.get({}).get("request_id", "")
    return request_id
