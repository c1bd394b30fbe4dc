"""Judge the Origin header, by which a browser says whose page asks."""

import re

_APP_SCHEMES = frozenset(("app", "file", "tauri", "vscode-webview", "vscode-file"))
_LOCAL_ORIGIN = re.compile(r"https?://(localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\])(:\d+)?")


def is_own_origin(origin: str, host: str) -> bool:
    """Return whether an Origin header is that of the server's own page."""
    scheme, _, rest = origin.partition("://")
    return scheme in ("http", "https") and rest == host


def is_allowed_origin(origin: str, host: str) -> bool:
    """Return whether an Origin header is absent, local, of a desktop app, or the server's own."""
    if not origin or _LOCAL_ORIGIN.fullmatch(origin):
        return True
    return origin.partition("://")[0] in _APP_SCHEMES or is_own_origin(origin, host)
