"""Describe a dialect to the server: its package states it in one value."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gptoss_local.base.errors import GptOssError
from gptoss_local.server.access import OWN_ORIGIN, Access, Level
from gptoss_local.server.origin import preflight
from gptoss_local.server.streaming import Framing


class Endpoint(NamedTuple):
    """One method of one path: how it is served, and its entry in the OpenAPI document.

    Attributes:
        answer: Struct of the body of a 200; None: text, or nothing.
        body: Struct of the request's body; `bytes` for a file.
        stream: Framing of the streamed answer; None: it is never streamed.
        required: Fields without which a request is refused; the structs have defaults, so that
            the refusal is in our words.
        queries: JSON schemas of the parameters after the `?`.
        is_refused: It only refuses clearly.
        access: Who may use it. `open`: everybody, as it holds nothing of the user's; `key`: each
            API key, and everybody where there are none; `models`: the owner, and everybody where
            there are no keys, as in Ollama; `chat`: the owner, our page and phones; `page`:
            the owner and our page; `owner`: the owner.
        is_metered: A request counts against the limits of its key.
    """

    method: str
    path: str
    serve: Callable[[Request], Awaitable[Response]]
    summary: str
    answer: type | None = None
    body: type | None = None
    stream: Framing | None = None
    required: tuple[str, ...] = ()
    queries: Mapping[str, dict[str, Any]] = {}
    is_refused: bool = False
    access: Level = "owner"
    is_metered: bool = False

    @property
    def route(self) -> Route:
        return _Route(self)


for_all = partial(Endpoint, access="open")
for_keys = partial(Endpoint, access="key")
for_owner_or_all = partial(Endpoint, access="models")
for_chat = partial(Endpoint, access="chat")
for_page = partial(Endpoint, access="page")


class _Route(Route):
    def __init__(self, stated: Endpoint) -> None:
        super().__init__(stated.path, stated.serve, methods=[stated.method])
        self._stated = stated
        self.is_shared = stated.access not in OWN_ORIGIN  # with pages of other origins

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        access: Access = scope["app"].state.access
        request = Request(scope)
        if request.method == "OPTIONS" and self.is_shared:
            await preflight(request.headers)(scope, receive, send)
            return
        is_metered = self._stated.is_metered and request.method == self._stated.method
        with access.admitted(request, self._stated.access, is_metered=is_metered):
            await super().handle(scope, receive, send)
            if connection := getattr(request.state, "connection", None):
                await connection.flow.drain()  # what is not sent may still be taken back


class Dialect(NamedTuple):
    """The language of the clients of one API.

    Attributes:
        name: As traces have it.
        is_spoken: Whether an error at a path, with lower-case headers, is in this dialect; the
            first dialect that says so counts.
        error_body: The body of an error before an answer begins.
        error: Struct of that body.
    """

    name: str
    is_spoken: Callable[[str, Mapping[str, str]], bool]
    endpoints: tuple[Endpoint, ...]
    error_body: Callable[[GptOssError, Request], object]
    error: type
