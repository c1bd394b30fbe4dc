"""An id for every request, in the headers that Anthropic's and OpenAI's SDKs read."""

import secrets

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADERS = ("request-id", "x-request-id")


class RequestIds:
    """ASGI middleware that gives every request an id and sends it back with the answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = f"req_{secrets.token_hex(12)}"
        scope["state"] = {**scope.get("state", {}), "request_id": request_id}

        async def answering(message: Message) -> None:
            if message["type"] == "http.response.start":
                add_request_id(MutableHeaders(scope=message), request_id)
            await send(message)

        await self._app(scope, receive, answering)


def add_request_id(headers: MutableHeaders, request_id: str) -> None:
    """Put the id of a request into the headers of its answer."""
    for name in _HEADERS:
        headers[name] = request_id


def request_id_of(request: Request) -> str:
    """Return the id that the answer to a request has in its headers."""
    request_id: str = request.state.request_id
    return request_id
