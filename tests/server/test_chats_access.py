"""Who gets the page, and who may use its endpoints: our own page, and nobody else's."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gptoss_local.server import web
from gptoss_local.server.openapi import ENDPOINTS
from tests.conftest import RunningServer, run_server
from tests.server.page_client import Page

HTML = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
OWN = [
    (e.method, e.path.replace("{chat_id:int}", "1").replace("{name:path}", "x"))
    for e in ENDPOINTS
    if e.path.startswith(("/api/gptoss/chats", "/api/gptoss/presets", "/api/gptoss/mcp"))
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, nano_home: Path) -> Iterator[RunningServer]:
    home = tmp_path_factory.mktemp("access")
    (home / "cache").symlink_to(nano_home / "cache")
    with run_server(home) as server:
        yield server


@pytest.fixture(scope="module")
def http(served: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=30, trust_env=False) as client:
        yield client


def test_a_browser_gets_the_page_and_all_others_what_they_look_for(http: httpx.Client) -> None:
    page = http.get("/", headers=HTML)
    assert page.text.startswith("<!doctype html>")
    assert "@" not in page.text  # nothing was left to fill in
    assert '<meta name="gptoss-key" content="no">' in page.text
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["cache-control"] == "no-store"
    for headers in ({}, {"accept": "*/*"}, {"accept": "application/json"}):
        plain = http.get("/", headers=headers)
        assert plain.text == "Ollama is running"
        assert "accept" in plain.headers["vary"].lower()
    assert http.head("/").status_code == 200


@pytest.mark.parametrize("origin", ["http://localhost:3000", "app://x", "tauri://localhost"])
def test_pages_of_other_programs_do_not_get_it(http: httpx.Client, origin: str) -> None:
    reply = http.get("/", headers=HTML | {"origin": origin})
    assert reply.text == "Ollama is running"


def test_files_of_the_page(http: httpx.Client) -> None:
    reply = http.get("/web/theme.js", headers={"accept-encoding": "gzip"})
    assert reply.headers["content-type"] == "text/javascript; charset=utf-8"
    assert reply.headers["content-encoding"] == "gzip"
    assert reply.content == (web.FOLDER / "theme.js").read_bytes()
    plain = http.get("/web/theme.js", headers={"accept-encoding": "identity"})
    assert plain.content == reply.content
    assert "content-encoding" not in plain.headers
    assert "default-src 'none'" in plain.headers["content-security-policy"]
    again = http.get("/web/theme.js", headers={"if-none-match": plain.headers["etag"]})
    assert again.status_code == 304
    assert not again.content


@pytest.mark.parametrize(
    "path",
    [
        "__init__.py",
        "index.html",
        "nope.js",
        "",
        "..%2f__init__.py",
        "%2e%2e/errors.py",
        "..%5c..%5cpyproject.toml",
        "vendor",
        "theme.js%00",
    ],
)
def test_nothing_else_is_a_file_of_the_page(http: httpx.Client, path: str) -> None:
    assert http.get(f"/web/{path}").status_code in (400, 404)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:3000"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "vscode-webview://x"},
        {"sec-fetch-site": "cross-site"},
        {"host": "evil.example", "origin": "http://evil.example"},  # a rebound name
    ],
)
def test_other_origins_do_no_harm(served: RunningServer, headers: dict[str, str]) -> None:
    """Even where such a page has got hold of the token, and also by a form, which asks nobody."""
    with (
        Page(served) as page,
        httpx.Client(base_url=served.url, trust_env=False, timeout=30) as http,
    ):
        chat_id = page.new()
        for extra in ({}, {"x-gptoss-token": page.token}):
            sent = headers | extra | {"content-type": "application/x-www-form-urlencoded"}
            for method, path in OWN:
                if method == "GET" and "sec-fetch-site" in headers:
                    continue  # what it gets, no page can read
                path = path.replace("/1", f"/{chat_id}")
                reply = http.request(method, path, headers=sent, content=b"title=gone")
                assert reply.status_code == 403, (method, path)
                assert "access-control-allow-origin" not in reply.headers
            asked = headers | {
                "access-control-request-method": "DELETE",
                "access-control-request-headers": "x-gptoss-token",
            }
            reply = http.options(f"/api/gptoss/chats/{chat_id}", headers=asked)
            assert reply.status_code in (401, 403)
            assert "access-control-allow-origin" not in reply.headers
        assert page.tree(chat_id) == []


def test_the_page_itself_may(served: RunningServer) -> None:
    with Page(served) as page, Page(served) as other:
        chat_id = page.new()
        reply = page.http.get(f"/api/gptoss/chats/{chat_id}")
        assert reply.status_code == 200
        assert "access-control-allow-origin" not in reply.headers
        assert other.token == page.token


def test_a_server_with_a_key_knows_its_owner_by_it(served: RunningServer) -> None:
    with (
        run_server(served.home, api_key="s3cret") as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=30) as http,
    ):
        assert '<meta name="gptoss-key" content="yes">' in http.get("/", headers=HTML).text
        assert http.get("/web/theme.js").status_code == 200
        with Page(served) as other:  # of another server
            stale = {"x-gptoss-token": other.token}
        for headers in ({}, stale, {"authorization": "Bearer wrong"}):
            reply = http.get("/api/gptoss/chats", headers=headers)
            assert reply.status_code == 401
            assert reply.json()["code"] == "UnauthorizedError"
        assert http.get("/api/gptoss/chats", headers={"x-api-key": "s3cret"}).status_code == 200
