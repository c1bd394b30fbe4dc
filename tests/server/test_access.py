"""Who may ask: keys, pages of the web, names of the server."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
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
        assert http.get("/api/nope").status_code == 404
        for headers in (
            {},
            {"authorization": "Bearer wrong"},
            {"authorization": "s3cret"},
            {"authorization": "Basic s3cret"},
            {"x-api-key": "s3cre"},
            {b"x-api-key": b"s3cret\xe9"},
            page,
        ):
            for path in ("/api/chat", "/api/pull", "/v1/messages", "/api/gptoss/load"):
                reply = http.post(path, headers=headers)
                foreign = headers is page and path.startswith("/api/gptoss")
                assert reply.status_code == (403 if foreign else 401), (headers, path)
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
    ("vscode-webview://x", 200),
    ("file://", 200),
    *((word, 403) for word in ("file", "app", "tauri", "file:", "app:x", "tauri:/x")),
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
        (socket.gethostname().upper(), 200),
        ("10.1.2.3", 403),
        ("192.168.1.1:11434", 403),
        ("my.localhost", 403),
        ("printer.local:80", 403),
        (f"{socket.gethostname()}.local", 403),
        ("evil.internal:11434", 403),
        ("host.docker.internal:11434", 403),
        ("LOCALHOST", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("8.8.8.8:11434", 403),
        ("[2001:4860:4860::8888]", 403),
        ("[::1", 403),
        ("127.0.0.1.evil.example", 403),
        ("evil.example@localhost", 403),
    ],
)
def test_hosts(server: RunningServer, host: str, status: int) -> None:
    with client(server) as http:
        assert http.get("/api/version", headers={"host": host}).status_code == status


def test_names_of_the_settings(nano_home: Path) -> None:
    with run_server(nano_home, allowed_hosts="NAS.lan, gpu.example") as server:
        with client(server) as http:
            for host, status in (
                ("nas.lan", 200),
                ("Gpu.Example:11434", 200),
                ("x.nas.lan", 403),
                ("nas.lan.evil.example", 403),
            ):
                assert http.get("/api/version", headers={"host": host}).status_code == status
        told = httpx.get(server.url, headers={"host": "evil.example"}, trust_env=False)
        assert "GPTOSS_ALLOWED_HOSTS" in told.text


def test_the_addresses_of_this_machine_are_its_names(server: RunningServer) -> None:
    own = [
        each.address.partition("%")[0]
        for addresses in psutil.net_if_addrs().values()
        for each in addresses
        if each.family in (socket.AF_INET, socket.AF_INET6)
    ]
    with client(server) as http:
        for address in own:
            host = f"[{address}]:1" if ":" in address else address
            assert http.get("/api/version", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "method", "status"),
    [
        ({"sec-fetch-site": "cross-site"}, "POST", 403),
        ({"sec-fetch-site": "cross-site"}, "DELETE", 403),
        ({"sec-fetch-site": "cross-site"}, "GET", 200),  # a link to the server, which does nothing
        ({"sec-fetch-site": "same-origin"}, "POST", 200),
        ({"sec-fetch-site": "same-site"}, "POST", 200),  # another port of this machine
        ({"sec-fetch-site": "none"}, "POST", 200),
        ({"sec-fetch-site": "cross-site", "origin": "app://obsidian.md"}, "POST", 200),
        ({"sec-fetch-site": "cross-site", "origin": "https://evil.example"}, "POST", 403),
    ],
)
def test_pages_that_do_not_say_who_they_are(
    server: RunningServer, headers: dict[str, str], method: str, status: int
) -> None:
    path = "/api/tags" if method == "GET" else "/api/show"
    with client(server) as http:
        reply = http.request(method, path, headers=headers, json={"model": "nano"})
        assert reply.status_code == status


@pytest.mark.parametrize("key", ["schlüssel", "密码", "a\tb", "line\nbreak", "\x7f", "na\u00a0me"])
def test_a_key_that_no_client_can_send_is_refused(nano_home: Path, key: str) -> None:
    environment = os.environ | {"GPTOSS_HOME": str(nano_home), "GPTOSS_API_KEY": key}
    for command in ("serve", "ps"):
        done = subprocess.run(
            [sys.executable, "-m", "gptoss_local", command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert done.returncode == 2
        assert "GPTOSS_API_KEY: the API key has a character that" in done.stderr
        assert key not in done.stderr


def test_a_key_that_no_client_can_send_is_refused_in_the_file(
    nano_home: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "gptoss"
    folder.mkdir()
    (folder / "config.toml").write_text('api_key = " padded "', encoding="utf-8")
    environment = os.environ | {"GPTOSS_HOME": str(nano_home), "XDG_CONFIG_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "gptoss_local", "serve"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert "config.toml: api_key has a character" in done.stderr


@pytest.mark.parametrize("key", ["sk-Ab3_/+=.~", "two words: !#$%&'()*", "x"])
def test_any_key_that_can_be_sent_works(nano_home: Path, key: str) -> None:
    with run_server(nano_home, api_key=key) as server, client(server) as http:
        assert http.get("/api/tags").status_code == 401
        for headers in ({"authorization": f"Bearer {key}"}, {"x-api-key": key}):
            assert http.get("/api/tags", headers=headers).status_code == 200


def test_secrets_stay_in_the_server(nano_home: Path) -> None:
    """The engine needs neither key nor token."""
    secrets = {"HF_TOKEN": "hf_secret", "HUGGING_FACE_HUB_TOKEN": "hf_old", "LANG": "C.UTF-8"}
    secrets["OTEL_EXPORTER_OTLP_HEADERS"] = "authorization=s3cret"
    headers = {"x-api-key": "s3cret"}
    with (
        run_server(nano_home, variables=secrets, api_key="s3cret") as server,
        client(server) as http,
    ):
        assert http.post("/api/generate", json={"model": "nano"}, headers=headers).is_success
        engine = server.engine()
        assert engine is not None
        variables = engine.environ()
    assert variables["LANG"] == "C.UTF-8"
    assert not {"GPTOSS_API_KEY", *secrets} - {"LANG"} & variables.keys()


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
def test_what_may_be_private_is_for_its_user_alone(empty_home: Path) -> None:
    """Whatever the umask: the log of the server, and system messages of models."""
    log = empty_home / "log" / "server.log"
    log.parent.mkdir()
    log.touch(mode=0o666)
    environment = os.environ | {"GPTOSS_HOME": str(empty_home), "GPTOSS_PORT": str(free_port())}
    modelfile = empty_home / "Modelfile"
    modelfile.write_text("FROM nano\nSYSTEM My name is Ada.\n", encoding="utf-8")
    for arguments in (["create", "ada", "-f", str(modelfile)], ["stop"]):
        done = subprocess.run(
            [sys.executable, "-m", "gptoss_local", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            umask=0,
        )
        assert done.returncode == 0, done.stderr
    manifests = list((empty_home / "models").glob("*.json"))
    assert manifests
    for path in (log, *manifests):
        assert path.stat().st_mode & 0o077 == 0, path
