"""Serves the web page: for browsers at `/`, and its files below `/web/`.

Nothing in it is of the user. What it may load comes from here, and nothing runs but its own files.
"""

import asyncio
import functools
import gzip
import hashlib
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from gptoss_local import web
from gptoss_local.errors import PathNotFoundError
from gptoss_local.server.origin import is_own_origin

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "font-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_TYPES = {  # not those of the system, which may say that a script is plain text
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
_PACKED = (".woff2",)  # which gzip makes no smaller


class _File(NamedTuple):
    """`packed` is its content as gzip; empty where that is no smaller."""

    content: bytes
    packed: bytes
    etag: str


async def root(request: Request) -> Response:
    """Answer a browser with the page, and all others with what clients look for, word for word."""
    headers = request.headers
    origin, is_browser = headers.get("origin", ""), "text/html" in headers.get("accept", "").lower()
    if not is_browser or (origin and not is_own_origin(origin, headers.get("host", ""))):
        return PlainTextResponse("Ollama is running", headers={"Vary": "Accept"})
    page = await asyncio.to_thread((web.FOLDER / "index.html").read_text, encoding="utf-8")
    page = page.replace("@TOKEN@", request.app.state.token)
    page = page.replace("@KEY@", "yes" if request.app.state.manager.settings.api_key else "no")
    page_headers = _HEADERS | {"Cache-Control": "no-store", "Vary": "Accept"}
    return Response(page, headers=page_headers, media_type="text/html")


async def file(request: Request) -> Response:
    """One of the page's files; a browser that has it is told so."""
    wanted = request.path_params["path"]
    found = await asyncio.to_thread(_find, wanted)
    if found is None:
        raise PathNotFoundError(f"there is no file /web/{wanted}")
    headers = _HEADERS | {
        "Cache-Control": "no-cache",
        "ETag": found.etag,
        "Vary": "Accept-Encoding",
    }
    if request.headers.get("if-none-match") == found.etag:
        return Response(status_code=304, headers=headers)
    content = found.content
    if found.packed and "gzip" in request.headers.get("accept-encoding", ""):
        content, headers["Content-Encoding"] = found.packed, "gzip"
    headers["Content-Type"] = _TYPES[Path(wanted).suffix]
    return Response(content, headers=headers)


def _find(wanted: str) -> _File | None:
    """Return a file of the page; only what is in its folder is looked at."""
    for path in web.FOLDER.rglob("*"):
        if path.relative_to(web.FOLDER).as_posix() == wanted and path.suffix in _TYPES:
            return _read(path, path.stat().st_mtime_ns)
    return None


@functools.lru_cache(maxsize=256)
def _read(path: Path, _changed_ns: int) -> _File:
    content = path.read_bytes()
    packed = b"" if path.suffix in _PACKED else gzip.compress(content, mtime=0)
    return _File(content, packed, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
