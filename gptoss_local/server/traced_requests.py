"""A span for every request, with its HTTP attributes; `tracing` has the inner spans."""

import re
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gptoss_local.server.dialects.registry import DIALECTS
from gptoss_local.server.tracing import Tracing, fail

_UNTRACED = re.compile(r"/|/health|/metrics|/web/.*")  # asked for all the time, and no work


class TraceRequests:
    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        self._app = app
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _UNTRACED.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        span = self._tracing.begin_request(scope["method"], headers)
        status = 500  # of exceptions: no answer passes here then

        async def answering(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, answering)
        finally:
            span.set_attributes(_attributes_of(scope, headers, status))
            if route := scope.get("route"):
                span.update_name(f"{scope['method']} {route.path}")
            if status >= 500:
                fail(span)
            span.end()


def _attributes_of(scope: Scope, headers: Headers, status: int) -> dict[str, Any]:
    dialect = next(d.name for d in DIALECTS if d.is_spoken(scope["path"], headers))
    attributes = {
        "http.request.method": scope["method"],
        "http.response.status_code": status,
        "http.response.header.request-id": [scope["state"]["request_id"]],
        "url.path": scope["path"],
        "url.scheme": scope["scheme"],
        "gptoss.dialect": dialect,
    }
    if route := scope.get("route"):
        attributes["http.route"] = route.path
    if status >= 500:
        attributes["error.type"] = str(status)
    return attributes
