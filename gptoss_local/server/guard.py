"""Keeps web pages and other machines away, before anything else looks at a request.

Foreign Origins, and foreign Hosts of rebound names, get 403, as in Ollama
(routes.go:allowedHostsMiddleware). `access` decides later who may use an endpoint.
"""

import ipaddress
import re
import socket
from fnmatch import fnmatchcase
from urllib.parse import unquote_to_bytes, urlsplit

import psutil
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gptoss_local.base.errors import UsageError
from gptoss_local.base.printable import is_segment
from gptoss_local.base.settings import Settings
from gptoss_local.server.error_handlers import error_response
from gptoss_local.server.origin import is_allowed_origin, is_loopback


class Guard:
    """ASGI middleware that refuses mangled paths, foreign names of the server, and foreign pages.

    It serves `//api/chat` and `/api/tags/`: few clients follow Ollama's redirect of a POST.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._checks_host = is_loopback(settings.host)
        self._hosts = {
            "",
            "localhost",
            socket.gethostname().lower(),
            *_listed(settings.allowed_hosts),
        }
        self._origins = _listed(settings.origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin", "")
        if not is_plain_path(scope["raw_path"]):
            error = UsageError(
                "the path has a control character, an encoded slash, or a segment of dots",
                hint="Names in a path are percent-encoded UTF-8 without slashes.",
            )
            await error_response(Request(scope), error)(scope, receive, send)
        elif self._checks_host and not self._is_our_name(host):
            text = "This server does not answer to that name. GPTOSS_ALLOWED_HOSTS adds names.\n"
            await PlainTextResponse(text, 403)(scope, receive, send)
        elif _is_hidden(headers, scope["method"]) or not (
            is_allowed_origin(origin, host) or self._is_listed(origin)
        ):
            await PlainTextResponse("", 403)(scope, receive, send)
        else:
            path = re.sub(r"/{2,}", "/", scope["path"])
            clean = {**scope, "path": path.rstrip("/") or "/"}
            await self._app(clean, receive, _with_origin(clean, send) if origin else send)

    def _is_listed(self, origin: str) -> bool:
        """Return whether the settings name an origin; `*` stands for anything, also within one."""
        return any(fnmatchcase(origin.lower(), listed) for listed in self._origins)

    def _is_our_name(self, host: str) -> bool:
        """Return whether a Host header names this machine, or is allowed by the settings."""
        if "@" in host:  # a name before it is of no header Host
            return False
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        return name in self._hosts or _is_own_address(name)


def is_plain_path(raw_path: bytes) -> bool:
    """Return whether all readers of a path see the same segments in it."""
    if models := re.match(rb"(?:/v1)?/models/", raw_path):
        # OpenAI's SDK encodes the slash of openai/gpt-oss-20b.
        name = re.sub(rb"(?<=[^/])%2[fF](?=[^/])", b"/", raw_path[models.end() :])
        raw_path = models[0] + name
    try:
        segments = {unquote_to_bytes(part).decode() for part in set(raw_path.split(b"/"))}
    except UnicodeDecodeError:
        return False
    return all(is_segment(segment) for segment in segments if segment)


def check_access(settings: Settings) -> None:
    """Raise UsageError if other machines could reach the server without a key, unless waived."""
    has_keys = bool(settings.api_key or settings.api_keys_file)
    if not (is_loopback(settings.host) or has_keys or settings.insecure):
        raise UsageError(
            f"{settings.host} can be reached from other machines, and there is no API key",
            hint="Set GPTOSS_API_KEY, or GPTOSS_INSECURE=1 to let everybody in.",
        )


def _listed(names: str) -> tuple[str, ...]:
    return tuple(name.strip().lower() for name in names.split(",") if name.strip())


def _is_own_address(name: str) -> bool:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    if address.is_loopback or address.is_unspecified:
        return True
    own = (each.address for addresses in psutil.net_if_addrs().values() for each in addresses)
    return str(address) in {each.partition("%")[0] for each in own}


def _is_hidden(headers: Headers, method: str) -> bool:
    """Return whether another site's page changes something without an Origin.

    Source: "Fetch Metadata Request Headers" (W3C); browsers send Origin with every such request.
    """
    is_foreign = headers.get("sec-fetch-site") == "cross-site" and "origin" not in headers
    return is_foreign and method not in ("GET", "HEAD", "OPTIONS")


def _with_origin(scope: Scope, send: Send) -> Send:
    """Tell the browser that its page may read the answer, unless the endpoint forbids it."""

    async def answering(message: Message) -> None:
        is_shared = getattr(scope.get("route"), "is_shared", True)
        if message["type"] == "http.response.start" and is_shared:
            headers = MutableHeaders(scope=message)
            headers["Access-Control-Allow-Origin"] = Headers(scope=scope)["origin"]
            headers.add_vary_header("Origin")
        await send(message)

    return answering
