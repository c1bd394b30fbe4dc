"""Keeps web pages and other machines away from a server that is meant for this machine.

A browser sends Origin with every cross-site request; a page that rebinds its DNS name to
loopback sends its own name as Host. Both get 403, as in Ollama (routes.go:allowedHostsMiddleware).
Pages that are allowed get the CORS headers that their browser asks for. A server that other
machines can reach wants an API key instead of a Host of this machine.
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

from gptoss_local.errors import UnauthorizedError, UsageError
from gptoss_local.server.error_handlers import error_response
from gptoss_local.settings import Settings

_LOCAL_NAMES = frozenset(("", "localhost", socket.gethostname().lower()))
_LOCAL_SUFFIXES = (".localhost", ".local", ".internal")
_APP_SCHEMES = frozenset(("app", "file", "tauri", "vscode-webview", "vscode-file"))
_LOCAL_ORIGIN = re.compile(r"https?://(localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\])(:\d+)?")
_OPEN_PATHS = frozenset(("/", "/health"))  # say that a server is there, and nothing else

_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS",
    "Access-Control-Max-Age": "43200",
}
_HEADERS = (
    "Authorization, Content-Type, User-Agent, Accept, X-Requested-With, OpenAI-Beta, x-api-key, "
    "anthropic-version, anthropic-beta"
)


class Guard:
    """ASGI middleware that lets local clients through, and others with the key."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._key = settings.api_key.encode()
        self._checks_host = is_loopback(settings.host)
        self._origins = tuple(o.strip().lower() for o in settings.origins.split(",") if o.strip())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin", "")
        is_host = not self._checks_host or is_local_host(host)
        is_origin = is_allowed_origin(origin, host) or self._is_listed(origin)
        if not (is_host and is_origin) or _is_hidden(headers, scope["method"]):
            await PlainTextResponse("", 403)(scope, receive, send)
        elif origin and scope["method"] == "OPTIONS":
            await _preflight(headers)(scope, receive, send)
        else:
            answering = _with_origin(send, origin) if origin else send
            if not self._has_key(headers) and scope["path"] not in _OPEN_PATHS:
                error = UnauthorizedError(
                    "the API key is missing or wrong",
                    hint="Send the server's GPTOSS_API_KEY as 'Authorization: Bearer KEY'.",
                )
                await error_response(Request(scope), error)(scope, receive, answering)
            else:
                await self._app(scope, receive, answering)

    def _is_listed(self, origin: str) -> bool:
        """Return whether the settings name an origin; `*` stands for anything, also within one."""
        return any(fnmatchcase(origin.lower(), listed) for listed in self._origins)

    def _has_key(self, headers: Headers) -> bool:
        if not self._key:
            return True
        scheme, _, token = headers.get("authorization", "").partition(" ")
        bearer = token.strip() if scheme.lower() == "bearer" else ""
        sent = (bearer, headers.get("x-api-key", ""))
        return any(secrets.compare_digest(key.encode(), self._key) for key in sent)


def check_access(settings: Settings) -> None:
    """Refuse to serve other machines without a key.

    Raises:
        UsageError: the address is not loopback, and there is neither a key nor a waiver.
    """
    if not (is_loopback(settings.host) or settings.api_key or settings.insecure):
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


def is_allowed_origin(origin: str, host: str) -> bool:
    """Return whether an Origin header is absent, local, of a desktop app, or the server's own."""
    if not origin or _LOCAL_ORIGIN.fullmatch(origin):
        return True
    scheme, _, rest = origin.partition("://")
    return scheme in _APP_SCHEMES or (scheme in ("http", "https") and rest == host)


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
