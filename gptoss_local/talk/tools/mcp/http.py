"""A server at an address, over streamable HTTP or the older SSE."""

import json
import math
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ErrorData, JSONRPCError, JSONRPCResponse
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from gptoss_local.base.bounded_answers import UNCOMPRESSED, bound
from gptoss_local.talk.tools.mcp import messages
from gptoss_local.talk.tools.mcp.config import Launch
from gptoss_local.talk.tools.mcp.messages import (
    NO_MCP,
    NOT_MCP,
    NOT_RUN,
    REFUSED,
    Inbox,
    ServerLog,
    quoted,
)

_LOCAL = ("localhost", "127.0.0.1", "::1")
_ONCE = ("tools/call", "ping")  # requests whose errors tell whether the session is lost
_MAY_HAVE_RUN = (502, 504)  # of a proxy, which does not know
_JSON, _EVENTS = "application/json", "text/event-stream"


@asynccontextmanager
async def reach(
    launch: Launch, *, is_sse: bool, log: ServerLog, inbox: Inbox
) -> AsyncGenerator[Any, None]:
    client, most = _Client(launch, log, inbox, is_sse=is_sse), messages.MAX_MESSAGE_BYTES
    if is_sse:
        transport = sse_client(launch.url, httpx_client_factory=cast("Any", lambda **_: client))
    else:
        transport = streamable_http_client(launch.url, http_client=client, max_sse_event_size=most)
    async with aclosing(client), transport as streams:
        yield streams


class _Client(httpx2.AsyncClient):
    """Bounds and repairs answers, and logs those with an error status."""

    def __init__(self, launch: Launch, log: ServerLog, inbox: Inbox, *, is_sse: bool) -> None:
        super().__init__(
            headers=UNCOMPRESSED | launch.headers,
            timeout=httpx2.Timeout(30, read=300),  # as the SDK's own client
            trust_env=urlsplit(launch.url).hostname not in _LOCAL,  # no proxy reaches these
        )
        self._log, self._inbox, self._is_sse = log, inbox, is_sse

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request; begin a refused session again with older versions of the protocol."""
        sent = json.loads(request.content) if request.method == "POST" else {}
        response = await self._answered(request, sent, options)
        versions = list(HANDSHAKE_PROTOCOL_VERSIONS[:-1]) * (sent.get("method") == "initialize")
        while versions and await _is_refused(response):
            sent["params"]["protocolVersion"] = versions.pop()
            del request.headers["content-length"]
            request = self.build_request("POST", request.url, headers=request.headers, json=sent)
            response = await self._answered(request, sent, options)
        return response

    async def _answered(
        self, request: httpx2.Request, sent: dict[str, Any], options: dict[str, Any]
    ) -> httpx2.Response:
        response = await super().send(request, **options)
        status, kind = response.status_code, response.headers.get("content-type", "").lower()
        said = f"answered {status} {response.reason_phrase}"
        if status >= 400:
            self._log.write(said)
            if self._is_sse and sent:
                self._inbox.end(said)  # the SDK would wait for an answer
        is_stream = status == 200 and kind.startswith(_EVENTS)
        bound(response, math.inf if is_stream else messages.MAX_MESSAGE_BYTES)
        stream = cast("httpx2.AsyncByteStream", response.stream)
        if is_stream:
            response.stream = _Pieces(stream, self._events(response, stream))
        elif "id" in sent and (
            kind.startswith(_JSON) if status == 200 else status >= 400 and sent["method"] in _ONCE
        ):
            is_sure = "mcp-session-id" in request.headers and status not in _MAY_HAVE_RUN
            refused, code = said * (status != 200), NOT_RUN if is_sure else NOT_MCP
            response.stream = _Pieces(stream, self._answer(stream, sent["id"], refused, code))
            response.headers["content-type"] = _JSON
            response.status_code = 200  # else the SDK would not look at it
        return response

    async def _events(
        self, response: httpx2.Response, stream: httpx2.AsyncByteStream
    ) -> AsyncIterator[bytes]:
        headers, most = response.headers, messages.MAX_MESSAGE_BYTES
        inner = httpx2.Response(200, headers=headers, stream=stream, request=response.request)
        async for event in httpx2.EventSource(inner, max_event_size=most):
            head = f"id: {event.id}\n" * bool(event.id) + f"event: {event.event}\n"
            if event.retry is not None:
                head += f"retry: {event.retry}\n"
            data = event.data.encode(errors="replace")
            found = [data]
            if event.event == "message" and data:
                found = [_json(message) for message in self._inbox.read(data)]
            for each in found:
                yield head.encode() + b"data: " + each + b"\n\n"
        if self._is_sse:
            self._inbox.end("")

    async def _answer(
        self, stream: httpx2.AsyncByteStream, id_: Any, refused: str, code: int
    ) -> AsyncIterator[bytes]:
        body = b"".join([piece async for piece in stream])
        found = [m for m in self._inbox.read(body) if isinstance(m, JSONRPCError | JSONRPCResponse)]
        own = next((each for each in found if str(each.id) == str(id_)), None)
        if own is None:
            words = next((m.error.message for m in found if isinstance(m, JSONRPCError)), "")
            said = f"{refused or NO_MCP}: {words or quoted(body)}".rstrip(": ")
            error = ErrorData(code=code if refused or words else NOT_MCP, message=said)
            own = JSONRPCError(jsonrpc="2.0", id=id_, error=error)
        elif refused and isinstance(own, JSONRPCError):
            own.error.code = REFUSED
        yield _json(own)


class _Pieces(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, pieces: AsyncIterator[bytes]) -> None:
        self._stream, self._pieces = stream, pieces

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._pieces

    async def aclose(self) -> None:
        await self._stream.aclose()


def _json(message: Any) -> bytes:
    text: str = message.model_dump_json(by_alias=True, exclude_unset=True)
    return text.encode()


async def _is_refused(response: httpx2.Response) -> bool:
    """Return whether an older version of the protocol may do; a 400 may give no reason."""
    if response.headers.get("content-type", "").startswith(_EVENTS):
        return False
    body = await response.aread()
    return response.status_code == 400 or b'"error":' in body
