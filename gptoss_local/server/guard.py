"""Keeps web pages and other machines away from a server that is meant for this machine.

A browser sends Origin with every cross-site request; a page that rebinds its DNS name to
loopback sends its own name as Host. Both get 403, as in Ollama (routes.go:allowedHostsMiddleware).
Pages that are allowed get the CORS headers that their browser asks for. A server that other
machines can reach wants an API key instead of a Host of this machine. Keys of a file are for other
users: each has limits of its own, and where there is an API key as well, the saved chats, changes
of models and the end of the server are its owner's alone.

What belongs to our own page is for no other one, not even of this machine: its endpoints want our
own origin, and a token that only a page of this server can know.
"""

import ipaddress
import re
import secrets
import socket
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gptoss_local.errors import GptOssError, StaleTokenError, UnauthorizedError, UsageError
from gptoss_local.server.error_handlers import error_response
from gptoss_local.server.limits import Limits
from gptoss_local.server.origin import is_allowed_origin, is_own_origin
from gptoss_local.settings import Settings

_LOCAL_NAMES = frozenset(("", "localhost", socket.gethostname().lower()))
_LOCAL_SUFFIXES = (".localhost", ".local", ".internal")
_OPEN_PATHS = re.compile(r"/|/health|/web/.*")  # hold nothing of the user's
_OWN_PATHS = re.compile(r"/api/gptoss/(chats|presets)(/.*)?|/web/.*")  # of our page alone
_OWNERS_PATHS = re.compile(r"/api/(pull|push|create|copy|delete|blobs/.*)|/api/gptoss/shutdown")

_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS",
    "Access-Control-Max-Age": "43200",
}
_HEADERS = (
    "Authorization, Content-Type, User-Agent, Accept, X-Requested-With, OpenAI-Beta, x-api-key, "
    "anthropic-version, anthropic-beta"
)


class Guard:
    """ASGI middleware that lets local clients through, and others with the key.

    Args:
        app: What it guards.
        settings: With the key, and the address that the server listens to.
        token: What our page must send.
        limits: Of the keys in a file, if there is one.
    """

    def __init__(
        self, app: ASGIApp, settings: Settings, token: str, limits: Limits | None = None
    ) -> None:
        self._app = app
        self._token = token.encode()
        self._limits = limits
        self._key = settings.api_key.encode()
        self._checks_host = is_loopback(settings.host)
        self._origins = tuple(o.strip().lower() for o in settings.origins.split(",") if o.strip())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, path = Headers(scope=scope), scope["path"]
        host, origin = headers.get("host", ""), headers.get("origin", "")
        is_ours = _OWN_PATHS.fullmatch(path) is not None
        is_host = not self._checks_host or is_local_host(host)
        if is_ours:
            is_origin = not origin or is_own_origin(origin, host)
        else:
            is_origin = is_allowed_origin(origin, host) or self._is_listed(origin)
        if not (is_host and is_origin) or _is_hidden(headers, scope["method"]):
            await PlainTextResponse("", 403)(scope, receive, send)
        elif origin and not is_ours and scope["method"] == "OPTIONS":
            await _preflight(headers)(scope, receive, send)
        else:
            answering = _with_origin(send, origin) if origin and not is_ours else send
            try:
                self._admit(scope["method"], path, headers)
            except GptOssError as error:
                await error_response(Request(scope), error)(scope, receive, answering)
            else:
                await self._app(scope, receive, answering)

    def _admit(self, method: str, path: str, headers: Headers) -> None:
        """Refuse a request for want of a key or a token, or beyond the limits of its key.

        Raises:
            UnauthorizedError, StaleTokenError, RateLimitError: it may not be served.
        """
        if _OPEN_PATHS.fullmatch(path):
            return
        sent, name = _sent_keys(headers), ""
        if self._key and any(secrets.compare_digest(key, self._key) for key in sent):
            return
        is_ours = _OWN_PATHS.fullmatch(path) is not None
        if self._key or self._limits:
            names = map(self._limits.name_of, sent) if self._limits else ()
            name = next(filter(None, names), "")
            if not name:
                key = "your key" if self._limits else "the server's GPTOSS_API_KEY"
                raise UnauthorizedError(
                    "the API key is missing or wrong",
                    hint=f"Send {key} as 'Authorization: Bearer KEY'.",
                )
            if self._key and (is_ours or _OWNERS_PATHS.fullmatch(path)):
                what = "the saved chats are" if is_ours else "this is"
                raise UnauthorizedError(
                    f"{what} for the owner of the server",
                    hint="It wants the GPTOSS_API_KEY; other keys are for answers.",
                )
        sent_token = headers.get("x-gptoss-token", "").encode()
        if is_ours and not secrets.compare_digest(sent_token, self._token):
            raise StaleTokenError(
                "these endpoints are for the page of this server, which sends its token",
                hint="Load the page again; programs can send the API key of a server with one.",
            )
        if self._limits:
            self._limits.admit(name, method, path)

    def _is_listed(self, origin: str) -> bool:
        """Return whether the settings name an origin; `*` stands for anything, also within one."""
        return any(fnmatchcase(origin.lower(), listed) for listed in self._origins)


def _sent_keys(headers: Headers) -> list[bytes]:
    """Return what a client sent as its key."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    bearer = token.strip() if scheme.lower() == "bearer" else ""
    return [key.encode() for key in (bearer, headers.get("x-api-key", "")) if key]


def check_access(settings: Settings) -> None:
    """Refuse to serve other machines without a key.

    Raises:
        UsageError: the address is not loopback, and there is neither a key nor a waiver.
    """
    has_keys = bool(settings.api_key or settings.api_keys_file)
    if not (is_loopback(settings.host) or has_keys or settings.insecure):
        raise UsageError(
            f"{settings.host} can be reached from other machines, and there is no API key",
            hint="Set GPTOSS_API_KEY, or GPTOSS_INSECURE=1 to let everybody in.",
        )


def is_loopback(host: str) -> bool:
    """Return whether a server bound to `host` can be reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_local_host(host: str) -> bool:
    """Return whether a Host header names this machine or an address of a private network."""
    if "@" in host:  # a name before it is of no header Host
        return False
    try:
        name = (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return False
    if name in _LOCAL_NAMES or name.endswith(_LOCAL_SUFFIXES):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or address.is_private or address.is_unspecified


def _is_hidden(headers: Headers, method: str) -> bool:
    """Return whether a page of another site has something done without saying which page it is.

    Source: "Fetch Metadata Request Headers" (W3C); browsers send Origin with every such request.
    """
    is_foreign = headers.get("sec-fetch-site") == "cross-site" and "origin" not in headers
    return is_foreign and method not in ("GET", "HEAD", "OPTIONS")


def _preflight(headers: Headers) -> Response:
    """Allow a page what it asks for: once it may call, any headers are harmless."""
    wanted = headers.get("access-control-request-headers", "")
    is_plain = re.fullmatch(r"[A-Za-z0-9_, -]{0,1000}", wanted)
    return Response(
        status_code=204,
        headers=_PREFLIGHT
        | {
            "Access-Control-Allow-Origin": headers["origin"],
            "Access-Control-Allow-Headers": wanted if wanted and is_plain else _HEADERS,
            "Vary": "Origin",
        },
    )


def _with_origin(send: Send, origin: str) -> Send:
    async def answering(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["Access-Control-Allow-Origin"] = origin
            headers.add_vary_header("Origin")
        await send(message)

    return answering
