"""Keeps web pages and other machines away from a server that is meant for this machine.

A browser sends Origin with every cross-site request; a page that rebinds its DNS name to
loopback sends its own name as Host. Both get 403, as in Ollama (routes.go:allowedHostsMiddleware).
"""

import ipaddress
import re
import socket
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_LOCAL_NAMES = frozenset(("", "localhost", socket.gethostname().lower()))
_LOCAL_SUFFIXES = (".localhost", ".local", ".internal")
_APP_SCHEMES = frozenset(("app", "file", "tauri", "vscode-webview", "vscode-file"))
_LOCAL_ORIGIN = re.compile(r"https?://(localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\])(:\d+)?")


class Guard:
    """ASGI middleware that lets local clients through."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            host, origin = headers.get("host", ""), headers.get("origin", "")
            if not is_local_host(host) or not is_allowed_origin(origin, host):
                await PlainTextResponse("", status_code=403)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def is_local_host(host: str) -> bool:
    """Whether a Host header names this machine or an address of a private network."""
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


def is_allowed_origin(origin: str, host: str) -> bool:
    """Whether an Origin header is absent, local, of a desktop app, or the server's own."""
    if not origin or _LOCAL_ORIGIN.fullmatch(origin):
        return True
    scheme, _, rest = origin.partition("://")
    return scheme in _APP_SCHEMES or (scheme in ("http", "https") and rest == host)
