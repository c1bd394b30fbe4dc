"""Who may ask: keys, pages of the web, names of the server."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import RunningServer, free_port, run_server
from tests.server.test_serving import client


def test_other_machines_need_a_key(nano_home: Path) -> None:
    environment = os.environ | {"GPTOSS_HOME": str(nano_home), "GPTOSS_PORT": str(free_port())}
    command = [sys.executable, "-m", "gptoss_local", "serve", "--host", "0.0.0.0"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert "no API key" in done.stderr
    assert "GPTOSS_API_KEY" in done.stderr
    with run_server(nano_home, host="0.0.0.0", insecure="1") as server, client(server) as http:
        assert http.get("/api/tags", headers={"host": "8.8.8.8"}).status_code == 200


def test_api_key(nano_home: Path) -> None:
    page = {"origin": "http://localhost:3000"}
    with run_server(nano_home, host="0.0.0.0", api_key="s3cret") as server, client(server) as http:
        for path in ("/", "/health"):
            assert http.get(path).status_code == 200
        for headers in (
            {},
            {"authorization": "Bearer wrong"},
            {"authorization": "s3cret"},
            {"authorization": "Basic s3cret"},
            {"x-api-key": "s3cre"},
            {b"x-api-key": b"s3cret\xe9"},
            page,
        ):
            for path in ("/api/tags", "/metrics", "/api/nope", "/api/gptoss/shutdown"):
                reply = http.post(path, headers=headers)
                assert reply.status_code == 401, (headers, path)
                assert reply.json()["code"] == "UnauthorizedError"
        for headers in (
            {"authorization": "Bearer s3cret"},
            {"authorization": "bearer s3cret"},
            {"x-api-key": "s3cret"},
            {"x-api-key": "s3cret", "host": "gpu.example"},
        ):
            assert http.get("/api/tags", headers=headers).status_code == 200, headers
        assert http.post("/v1/messages").json()["error"]["type"] == "authentication_error"
        assert http.post("/v1/chat/completions").json()["error"]["message"]
        asked = page | {"access-control-request-method": "POST"}
        assert http.options("/api/chat", headers=asked).status_code == 204
        done = subprocess.run(
            [sys.executable, "-m", "gptoss_local", "ps"],
            env=server.environment | {"GPTOSS_API_KEY": "s3cret"},
            check=False,
        )
        assert done.returncode == 0


ORIGINS = [
    ("http://localhost", 200),
    ("http://localhost:3000", 200),
    ("https://127.0.0.1:8443", 200),
    ("http://[::1]:1", 200),
    ("http://0.0.0.0", 200),
    ("app://obsidian.md", 200),
    ("tauri://localhost", 200),
    ("vscode-file://vscode-app", 200),
    ("null", 403),
    ("http://localhost.evil.example", 403),
    ("http://localhost:3000.evil.example", 403),
    ("http://evil.example", 403),
    ("chrome-extension://abc", 403),
    ("ftp://localhost", 403),
]


@pytest.mark.parametrize(("origin", "status"), ORIGINS)
def test_origins(server: RunningServer, origin: str, status: int) -> None:
    with client(server) as http:
        reply = http.get("/api/version", headers={"origin": origin})
        assert reply.status_code == status
        allowed = origin if status == 200 else None
        assert reply.headers.get("access-control-allow-origin") == allowed
        wanted = "content-type, x-api-key, x-stainless-os"
        asked = {
            "origin": origin,
            "access-control-request-method": "POST",
            "access-control-request-headers": wanted,
        }
        flight = http.options("/v1/chat/completions", headers=asked)
        assert flight.status_code == (204 if status == 200 else 403)
        if status == 200:
            assert flight.headers["access-control-allow-origin"] == origin
            assert flight.headers["access-control-allow-headers"] == wanted
            assert "DELETE" in flight.headers["access-control-allow-methods"]


def test_origins_of_the_settings(nano_home: Path) -> None:
    listed = "https://chat.example, chrome-extension://*,http://dev.example:*"
    with run_server(nano_home, origins=listed) as server, client(server) as http:
        for origin, status in (
            ("https://chat.example", 200),
            ("https://CHAT.example", 200),
            ("chrome-extension://abcdef", 200),
            ("http://dev.example:5173", 200),
            ("http://chat.example", 403),
            ("https://chat.example.evil", 403),
        ):
            assert http.get("/api/tags", headers={"origin": origin}).status_code == status, origin


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("127.0.0.1:11434", 200),
        ("[::1]:11434", 200),
        ("0.0.0.0", 200),
        ("10.1.2.3", 200),
        ("my.localhost", 200),
        ("printer.local:80", 200),
        ("host.docker.internal:11434", 200),
        ("LOCALHOST", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("8.8.8.8:11434", 403),
        ("[2001:4860:4860::8888]", 403),
        ("[::1", 403),
        ("127.0.0.1.evil.example", 403),
    ],
)
def test_hosts(server: RunningServer, host: str, status: int) -> None:
    with client(server) as http:
        assert http.get("/api/version", headers={"host": host}).status_code == status
