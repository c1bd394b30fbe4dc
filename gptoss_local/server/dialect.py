"""Describe a dialect to the server: its package states it in one value."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from gptoss_local.base.errors import GptOssError, UsageError
from gptoss_local.server.access import OWN_ORIGIN, Access, Level
from gptoss_local.server.origin import preflight
from gptoss_local.server.streaming import Framing

Serve = Callable[[Request], Awaitable[Response]]


class Endpoint(NamedTuple):
    """One method of one path: how it is served, and its entry in the OpenAPI document.

    Attributes:
        answer: Struct of the body of a 200; None: text, or nothing.
        body: Struct of the request's body; `bytes` for a file. Its fields have defaults, so that a
            refusal is in our words; `REQUIRED` names those without which there is one.
        stream: Framing of the streamed answer; None: it is never streamed.
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
    serve: Serve
    summary: str
    answer: type | None = None
    body: type | None = None
    stream: Framing | None = None
    queries: Mapping[str, dict[str, Any]] = {}
    is_refused: bool = False
    access: Level = "owner"
    is_metered: bool = False

    @property
    def route(self) -> Route:
        return _Route(self)


class Endpoints(list[Endpoint]):
    """The endpoints of a module; its decorators add the functions that serve them."""

    def __init__(self) -> None:
        super().__init__()
        self.for_all = partial(self.add, access="open")
        self.for_keys = partial(self.add, access="key")
        self.metered = partial(self.add, "POST", access="key", is_metered=True)
        self.for_owner_or_all = partial(self.add, access="models")
        self.for_chat = partial(self.add, access="chat")
        self.for_page = partial(self.add, access="page")
        self.for_owner = partial(self.add, access="owner")

    def refuse(self, method: str, path: str, why: str, instead: str) -> None:
        """Answer for what other servers have at a path: a 404 would suggest a wrong address."""

        async def refuse(_request: Request) -> Response:
            raise UsageError(why, hint=instead)

        self.for_keys(method, path, "Refused", is_refused=True)(refuse)

    def add(
        self,
        method: str,
        path: str,
        summary: str,
        answer: type | None = None,
        body: type | None = None,
        **more: Any,
    ) -> Callable[[Serve], Serve]:
        def keep(serve: Serve) -> Serve:
            self.append(Endpoint(method, path, serve, summary, answer, body, **more))
            return serve

        return keep


class _Route(Route):
    """Serves an endpoint; one below /v1 also without that, as llama-server does."""

    def __init__(self, stated: Endpoint) -> None:
        super().__init__(stated.path, stated.serve, methods=[stated.method])
        self.path_regex = re.compile(self.path_regex.pattern.replace("^/v1/", "^(?:/v1)?/"))
        self._stated = stated
        self.is_shared = stated.access not in OWN_ORIGIN  # with pages of other origins

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, found = super().matches(scope)
        if found and self.path.startswith("/v1/"):  # whose errors are in another dialect
            found["path"] = f"/v1{scope['path'].removeprefix('/v1')}"
        return match, found

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
    """The language of the clients of one API."""

    name: str  # as traces have it
    is_spoken: Callable[[str, Mapping[str, str]], bool]  # at a path, with headers; the first counts
    endpoints: Sequence[Endpoint]
    error_body: Callable[[GptOssError, Request], object]  # of an error before an answer begins
    error: type  # struct of that body
