"""Judge the Origin header, by which a browser names the asking page, and answer preflights."""

import ipaddress
import re

from starlette.datastructures import Headers
from starlette.responses import Response

_APP_SCHEMES = frozenset(("app", "file", "tauri", "vscode-webview", "vscode-file"))
_LOCAL_ORIGIN = re.compile(r"https?://(localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\])(:\d+)?")
_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS",
    "Access-Control-Max-Age": "43200",
    "Vary": "Origin",
}


def is_own_origin(origin: str, host: str) -> bool:
    scheme, _, rest = origin.partition("://")
    return scheme in ("http", "https") and rest == host


def is_allowed_origin(origin: str, host: str) -> bool:
    if not origin or _LOCAL_ORIGIN.fullmatch(origin):
        return True
    scheme, separator, _ = origin.partition("://")
    return (bool(separator) and scheme in _APP_SCHEMES) or is_own_origin(origin, host)


def is_loopback(host: str) -> bool:
    """Return whether a server bound to `host` can be reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def preflight(headers: Headers) -> Response:
    """Allow a page any headers it asks for: once it may call, they are harmless."""
    wanted = headers.get("access-control-request-headers", "")
    return Response(status_code=204, headers=_PREFLIGHT | {"Access-Control-Allow-Headers": wanted})
