"""Serves the web page, without data of the user: for browsers at `/`, files below `/web/`."""

import asyncio
import functools
import gzip
import hashlib
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from gptoss_local.api.gptoss import Lan, PageLink, PageToken
from gptoss_local.api.models import JobStatus
from gptoss_local.base.errors import PathNotFoundError
from gptoss_local.server import web
from gptoss_local.server.access import Access
from gptoss_local.server.dialect import Endpoints
from gptoss_local.server.dialects.named_model import read_named
from gptoss_local.server.origin import is_own_origin
from gptoss_local.server.streaming import json_response

endpoints = Endpoints()
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; "
        "img-src 'self' data:; manifest-src 'self'; connect-src 'self'; frame-src 'self'; "
        "base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_INDEX, _PREVIEW_PAGE = web.FOLDER / "index.html", "preview.html"
_PREVIEW = {
    "Content-Security-Policy": (
        "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; "
        "style-src 'unsafe-inline'; img-src data: blob:; font-src data:; media-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'; "
        "require-trusted-types-for 'script'; trusted-types default"
    ),
    "Connection-Allowlist": "()",  # Chromium looks nothing up, and connects to nothing
    "X-DNS-Prefetch-Control": "off",
}
"""Isolates the document in which a model's HTML runs."""
_TYPES = {  # the system's types may make a script plain text
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}


class LinkBody(msgspec.Struct):
    link: str = ""


class LanBody(msgspec.Struct):
    scheme: Literal["https", "http"] = "https"


class _File(NamedTuple):
    content: bytes
    packed: bytes
    etag: str


@endpoints.for_all("GET", "/", "Says that a server is there, or is the page")
async def root(request: Request) -> Response:
    """Answer a browser with the page, and others with the words that clients look for."""
    headers = request.headers
    origin, is_browser = headers.get("origin", ""), "text/html" in headers.get("accept", "").lower()
    if not is_browser or (origin and not is_own_origin(origin, headers.get("host", ""))):
        return PlainTextResponse("Ollama is running", headers={"Vary": "Accept"})
    page = await asyncio.to_thread(_INDEX.read_text, encoding="utf-8")
    settings = request.app.state.manager.settings
    page = page.replace("@KEY@", "yes" if settings.api_key else "no")
    page_headers = _HEADERS | {"Cache-Control": "no-store", "Vary": "Accept"}
    return Response(page, headers=page_headers, media_type="text/html")


@endpoints.for_owner("POST", "/api/gptoss/links", "Make a link to the page", PageLink)
async def new_link(request: Request) -> Response:
    """Make an address that opens the page in one browser, which then keeps a token.

    Browsers never send the secret after `#`. The token is in the storage of this origin: a cookie
    would reach the servers of all ports of this machine, and they could replace it.
    """
    return json_response(PageLink(f"/#open={_access(request).new_link()}"))


@endpoints.for_owner("POST", "/api/gptoss/lan", "Let the local network in", Lan, LanBody)
async def open_lan(request: Request) -> Response:
    body, lan = await read_named(request, LanBody), request.app.state.lan
    await lan.open(body.scheme)
    link = _access(request).new_link(is_for_phone=True)
    return json_response(Lan(lan.urls, f"/#open={link}", lan.fingerprint))


@endpoints.for_owner("DELETE", "/api/gptoss/lan", "Let it in no longer", JobStatus)
async def close_lan(request: Request) -> Response:
    _access(request).end_phone_links()
    request.app.state.lan.close()
    return json_response(JobStatus("success"))


@endpoints.for_all(
    "POST",
    "/api/gptoss/open",
    "Get a browser's token, or a phone's key, for a link, once",
    PageToken,
    LinkBody,
)
async def open_link(request: Request) -> Response:
    body = await read_named(request, LinkBody)
    return json_response(_access(request).open_link(request, body.link))


@endpoints.for_all("GET", "/web/{path:path}", "A file of the page")
async def file(request: Request) -> Response:
    wanted = request.path_params["path"]
    found = await asyncio.to_thread(_find, wanted)
    if found is None:
        raise PathNotFoundError(f"there is no file /web/{wanted}")
    headers = _HEADERS | {
        "Cache-Control": "no-cache",
        "ETag": found.etag,
        "Vary": "Accept-Encoding",
    }
    if wanted == _PREVIEW_PAGE:
        headers |= _PREVIEW
    if request.headers.get("if-none-match") == found.etag:
        return Response(status_code=304, headers=headers)
    content = found.content
    if "gzip" in request.headers.get("accept-encoding", ""):
        content, headers["Content-Encoding"] = found.packed, "gzip"
    headers["Content-Type"] = _TYPES[Path(wanted).suffix]
    return Response(content, headers=headers)


def _access(request: Request) -> Access:
    access: Access = request.app.state.access
    return access


@functools.cache
def _paths() -> dict[str, Path]:
    """Return the only files that can be asked for, by their names in addresses."""
    found = (path for path in web.FOLDER.rglob("*") if path.suffix in _TYPES and path != _INDEX)
    return {path.relative_to(web.FOLDER).as_posix(): path for path in found}


def _find(wanted: str) -> _File | None:
    path = _paths().get(wanted)
    return None if path is None else _read(path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _read(path: Path, _changed_ns: int) -> _File:
    content = path.read_bytes()
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return _File(content, gzip.compress(content, mtime=0), etag)
