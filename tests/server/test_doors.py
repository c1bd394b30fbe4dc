"""Rights: every endpoint, caller, origin, name of the server, and spelling of a path.

The table of levels is in docs/api.md, so an endpoint that states nothing, or another access
than the page says, fails here.
"""

import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from datetime import date, timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil
import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.base.settings import Settings, load_settings
from gptoss_local.harmony import Vocabulary
from gptoss_local.server.app import make_server
from gptoss_local.server.keys import add_key, add_phone, read_keys, remove_key
from gptoss_local.server.openapi import ENDPOINTS
from tests.cli.conftest import run_cli
from tests.conftest import RunningServer, run_server
from tests.scripted_engine import Script, run_scripted_server
from tests.server.test_serving import client

ROOT = Path(__file__).resolve().parents[2]
LEVELS = {
    "open": "everybody",
    "key": "each API key; without keys, everybody",
    "models": "the owner; without keys, everybody",
    "chat": "the owner, the page and [phones](web.md#on-a-phone)",
    "page": "the owner and the page",
    "owner": "the owner",
}
FOREIGN = "http://localhost:3000"  # a page of this machine, which Ollama's endpoints let in
CALLERS = ("nobody", "page", "phone", "key", "owner")
WITH_KEYS = {
    "open": set(CALLERS),
    "key": {"page", "phone", "key", "owner"},
    "models": {"page", "owner"},
    "chat": {"page", "phone", "owner"},
    "page": {"page", "owner"},
    "owner": {"owner"},
}
WITHOUT_KEYS = WITH_KEYS | {"key": set(CALLERS) - {"key"}, "models": set(CALLERS) - {"key"}}
VALUES = {
    "{chat_id}": "1",
    "{digest}": f"sha256:{'0' * 64}",
    "{response}": "resp_x",
    "{name}": "nope",
    "{path}": "app.js",
}


class Door(NamedTuple):
    method: str
    path: str
    level: str

    @property
    def is_for_own_origin(self) -> bool:
        return self.level in ("chat", "page", "owner")


def stated() -> list[Door]:
    """Read the table of docs/api.md."""
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    section = text.partition("\n## Who may call\n")[2].partition("\n## ")[0]
    doors = []
    for level, words in LEVELS.items():
        row = next(line for line in section.splitlines() if line.startswith(f"| {words} |"))
        for each in row.split("|")[2].split(","):
            methods, _, path = each.strip().strip("`").rpartition(" ")
            doors += [Door(method, path, level) for method in methods.split("/")]
    return doors


DOORS = stated()
SHORT = [d._replace(path=d.path.removeprefix("/v1")) for d in DOORS if d.path.startswith("/v1/")]


def is_safe(door: Door) -> bool:
    """One ends the server, one streams without an end, one asks for a secret in its body."""
    return not door.path.endswith(("/shutdown", "/changes", "/open"))


def filled(path: str) -> str:
    """Return the path with values in it that name nothing."""
    for name, value in VALUES.items():
        path = path.replace(name, value)
    return path


@pytest.mark.quick
def test_the_page_states_what_the_endpoints_state() -> None:
    paths = [e.path.replace(":int}", "}").replace(":path}", "}") for e in ENDPOINTS]
    found = [Door(e.method, path, e.access) for e, path in zip(ENDPOINTS, paths, strict=True)]
    assert sorted(DOORS) == sorted(found)


class Served(NamedTuple):
    name: str
    server: RunningServer
    headers: dict[str, dict[str, str]]
    may: dict[str, set[str]]


def link_of(server: RunningServer) -> str:
    return server.link().partition("#open=")[2]


def open_link(server: RunningServer, link: str) -> httpx.Response:
    url = f"{server.url}/api/gptoss/open"
    return httpx.post(url, json={"link": link}, trust_env=False)


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.fixture(scope="module", params=["no keys", "a file of keys", "a key and a file"])
def served(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    nano_home: Path,
    vocabulary: Vocabulary,
) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("doors")
    (home / "cache").symlink_to(nano_home / "cache")
    headers = {"nobody": {}, "phone": bearer(add_phone(home / "keys.toml"))}
    settings: dict[str, str] = {}
    if request.param != "no keys":
        headers["key"] = bearer(add_key(home / "keys.toml", "ada"))
        settings["api_keys_file"] = str(home / "keys.toml")
    if request.param == "a key and a file":
        settings["api_key"] = "the-owners"
    with run_scripted_server(home, Script(vocabulary), **settings) as server:
        token = open_link(server, link_of(server)).json()["token"]
        headers["page"] = {"x-gptoss-token": token, "origin": server.url}
        headers["owner"] = server.owner
        yield Served(request.param, server, headers, WITH_KEYS if settings else WITHOUT_KEYS)


@pytest.mark.parametrize("origin", ["", FOREIGN])
@pytest.mark.parametrize("caller", CALLERS)
def test_each_caller_gets_what_the_table_says(served: Served, caller: str, origin: str) -> None:
    """A page of another origin gets nothing of the owner's, even with a right to it."""
    if caller not in served.headers:
        pytest.skip("a server without keys")
    headers = served.headers[caller] | ({"origin": origin} if origin else {})
    with client(served.server) as http:
        for door in (*DOORS, *SHORT):
            is_foreign = bool(origin) and door.is_for_own_origin
            if not is_foreign and (not is_safe(door) or (origin and caller != "nobody")):
                continue
            for method in (door.method, "OPTIONS") if is_foreign else (door.method,):
                reply = http.request(method, filled(door.path), headers=headers, content=b"{}")
                is_served = reply.status_code not in (401, 403)
                may = caller in served.may[door.level] and not is_foreign
                assert is_served == may, (method, door, reply.text)
                if is_foreign:
                    assert reply.status_code == 403
                    assert "access-control-allow-origin" not in reply.headers


ENDS = (
    *("%0A", "%0D", "%00", "%09", "%0D%0A", "%7F", "%C2%85", "%E2%80%A8", "%E2%80%8B", "%20"),
    *("/", "//", "/.", "/..", "/%2e", "/%2E%2E/x", "%2F", "%2f..", "%5C", "\\", ";x", "%23", "%3F"),
    *("%FF", "%C0%AF", "%u000a", "%250A", ".json", "?%0A", "?x=/api/tags"),
)
BEGINNINGS = ("/", "/.", "/x/..", "/%2e", "/x/%2e%2e", "/%2F", "http://x")
MANGLED = ("tags%0A", "%2Ftags", "./tags", "x/../tags", "x/%2E./tags", "%5Capi")


def spellings(path: str) -> list[str]:
    """Return a path as somebody writes it who hopes that two readers disagree on it."""
    head, _, last = path.rpartition("/")
    inner = [f"{head}{between}{last}" for between in ("%2F", "/%0A", "//", "/./")]
    whole = [path.upper(), path.replace("/", "%2F"), path.replace("a", "%61")]
    return [*(path + end for end in ENDS), *(b + path for b in BEGINNINGS), *inner, *whole]


def status_of(served: Served, method: str, raw: str, headers: dict[str, str]) -> int:
    address = served.server.url.removeprefix("http://")
    with closing(HTTPConnection(address, timeout=30)) as connection:
        connection.putrequest(method, raw, skip_accept_encoding=True)
        for name, value in {**headers, "content-length": "2"}.items():
            connection.putheader(name, value)
        connection.endheaders(b"{}")
        with connection.getresponse() as reply:
            return reply.status


def test_no_spelling_opens_a_door(served: Served) -> None:
    if served.name == "a key and a file":
        pytest.skip("as with a file of keys")
    for caller in {"nobody", "key"} & served.headers.keys():
        headers = served.headers[caller]
        for door in DOORS:
            if caller in served.may[door.level]:
                continue
            for raw in spellings(filled(door.path)):
                status = status_of(served, door.method, raw, headers)
                assert status in (400, 401, 403, 404, 405), (caller, door.method, raw)
    for rest in MANGLED:  # even for the owner
        assert status_of(served, "GET", f"/api/{rest}", served.server.owner) == 400, rest


OPEN = "/api/gptoss/open"
AS_NOBODY = """
import json, sys, urllib.error, urllib.request
url, secret, asked = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
try:
    open(secret).read()
    print("READ THE SECRET")
except OSError:
    pass
for method, path, body in asked:
    data = body.encode() if method != "GET" else None
    request = urllib.request.Request(url + path, data, method=method)
    request.add_header("Accept", "text/html")
    try:
        print(urllib.request.urlopen(request).status)
    except urllib.error.HTTPError as error:
        print(error.code)
"""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
def test_another_account_of_this_machine_is_nobody(served: Served) -> None:
    """It may see a link in the command line of a browser, which then lets nobody in."""
    link = link_of(served.server)
    doors = [door for door in DOORS if is_safe(door) and door.level in ("page", "owner")]
    asked = [(door.method, filled(door.path), "{}") for door in doors]
    asked.append(("POST", "/api/gptoss/open", json.dumps({"link": link})))
    secret = str(next((served.server.home / "run").glob("*.secret")))
    arguments = [served.server.url, secret, json.dumps(asked)]
    done = subprocess.run(
        ["/usr/bin/env", "-i", "python3", "-c", AS_NOBODY, *arguments],
        user="nobody",
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == [*["401"] * len(doors), "403"], done.stderr
    assert open_link(served.server, link).status_code == 401


def test_a_link_works_once(served: Served) -> None:
    link = link_of(served.server)
    assert [open_link(served.server, link).status_code for _ in range(2)] == [200, 401]
    for guessed in ("", "x", link[:-1], served.headers["page"]["x-gptoss-token"]):
        assert open_link(served.server, guessed).status_code == 401


def test_a_browser_stays_known_until_it_is_taken_back(home: Path, vocabulary: Vocabulary) -> None:
    """By its token alone, in its header alone; the next server knows it, too."""
    file, today = home / "keys.toml", date.today()
    month = timedelta(days=30)
    agent = {"user-agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"}

    def rewrite(until: date) -> None:
        file.write_text(re.sub(r"(browser_until = ).*", rf"\g<1>{until}", file.read_text()))

    def until() -> list[date | None]:
        return [key.browser_until for key in read_keys(file)]

    with run_scripted_server(home, Script(vocabulary)) as server, client(server) as http:
        token = http.post(OPEN, json={"link": link_of(server)}, headers=agent).json()["token"]
        assert token not in file.read_text()
        assert file.stat().st_mode & 0o777 == 0o600
        assert [(key.name, key.browser_until) for key in read_keys(file)] == [
            ("firefox", today + month)
        ]
        assert f"page until {today + month}" in run_cli(server.environment, "keys").stdout
    phone, mine = add_phone(file), {"x-gptoss-token": token}
    with run_scripted_server(home, Script(vocabulary)) as server, client(server) as http:

        def status(headers: dict[str, str]) -> int:
            return http.get("/api/gptoss/presets", headers=headers).status_code

        assert status(mine) == 200
        assert status(mine | {"origin": FOREIGN}) == 403
        for other in (bearer(token), {"x-api-key": token}, {"x-gptoss-token": phone}):
            assert status(other) == 401
        again = http.post(OPEN, json={"link": link_of(server)}, headers=mine).json()
        assert again["token"] == token
        remove_key(file, "phone")
        rewrite(today - timedelta(days=1))
        assert status(mine) == 401
        rewrite(today)
        assert status(mine) == 200
        with http.stream("GET", "/api/gptoss/chats/changes", headers=mine) as stream:
            lines = stream.iter_lines()
            assert "chats" in next(lines)
            assert run_cli(server.environment, "keys", "rm", "firefox").returncode == 0
            with pytest.raises(httpx.HTTPError):  # it ends at once
                list(lines)
        assert status(mine) == 401
        for _ in range(34):
            http.post(OPEN, json={"link": link_of(server)}).raise_for_status()
        assert until() == [today + month] * 32
    with run_scripted_server(home, Script(vocabulary)) as server, client(server) as http:
        token = http.post(OPEN, json={"link": link_of(server)}).json()["token"]
        rewrite(today + timedelta(days=1))
        assert http.get("/api/gptoss/presets", headers={"x-gptoss-token": token}).status_code == 200
        assert sum(each == today + month for each in until()) == 1  # used, and so renewed


def test_the_secret_and_the_server_go_together(home: Path, vocabulary: Vocabulary) -> None:
    """Only the owner ends the server; the next one has another secret."""
    key = bearer(add_key(home / "keys.toml", "ada"))
    keys = {"api_keys_file": str(home / "keys.toml")}
    with run_scripted_server(home, Script(vocabulary), **keys) as server, client(server) as http:
        (path,) = (home / "run").iterdir()
        assert path.stat().st_mode & 0o077 == 0
        old = server.owner
        for headers in ({}, key):
            assert http.post("/api/gptoss/shutdown", headers=headers).status_code == 401
        assert run_cli(server.environment, "stop").returncode == 0
        server.process.wait(timeout=20)
    assert not path.exists()
    with run_scripted_server(home, Script(vocabulary)) as server, client(server) as http:
        assert http.get("/api/gptoss/status", headers=old).status_code == 401


KEY = "sk-Ab3_/+=.~ two words: !#$%&'()*"


def test_a_server_for_other_machines_wants_a_key(home: Path, vocabulary: Vocabulary) -> None:
    """It answers to any name, but to nobody else; the owner has no limits."""
    with pytest.raises(UsageError, match="no API key") as refused:
        make_server(Settings(host="0.0.0.0", home=home))
    assert "GPTOSS_API_KEY" in refused.value.hint
    user = add_key(home / "keys.toml", "ada", requests_per_minute=1)
    settings = {"host": "0.0.0.0", "api_key": KEY, "api_keys_file": str(home / "keys.toml")}
    wrong: list[Any] = [
        *({}, {"x-api-key": KEY[:-1]}, {b"x-api-key": KEY.encode() + b"\xe9"}, {"origin": FOREIGN}),
        *({"authorization": value} for value in (KEY, f"Basic {KEY}", "Bearer wrong")),
    ]
    right: list[Any] = [
        *({"x-api-key": key} for key in (KEY, user)),
        *({"authorization": f"{scheme} {KEY}"} for scheme in ("Bearer", "bearer")),
    ]
    with (
        run_scripted_server(home, Script(vocabulary), **settings) as server,
        client(server) as http,
    ):
        assert http.get("/health").status_code == 200
        assert http.get("/api/nope").status_code == 404
        for host in ({}, {"host": "gpu.example"}):
            for headers in wrong:
                for path in ("/api/chat", "/api/pull", "/v1/messages"):
                    assert http.post(path, headers=headers | host).status_code == 401, headers
            for headers in right:
                assert http.get("/api/tags", headers=headers | host).status_code == 200, headers
        assert http.post("/v1/messages").json()["error"]["type"] == "authentication_error"
        assert http.post("/v1/chat/completions").json()["error"]["message"]
        asked = {"origin": FOREIGN, "access-control-request-method": "POST"}
        assert http.options("/api/chat", headers=asked).status_code == 204
        for owner in ({"x-api-key": KEY}, server.owner):
            for _ in range(3):
                reply = http.post("/api/chat", json={"model": "nope"}, headers=owner)
                assert reply.status_code == 404
        assert run_cli(server.environment | {"GPTOSS_API_KEY": KEY}, "ps").returncode == 0
    with run_scripted_server(home, Script(vocabulary), host="0.0.0.0", insecure="1") as server:
        reply = httpx.get(f"{server.url}/api/tags", headers={"host": "8.8.8.8"}, trust_env=False)
        assert reply.status_code == 200


def own_addresses() -> list[str]:
    """Return the addresses of this machine as a header Host names them."""
    kinds = (socket.AF_INET, socket.AF_INET6)
    every = (each for addresses in psutil.net_if_addrs().values() for each in addresses)
    found = (each.address.partition("%")[0] for each in every if each.family in kinds)
    return [f"[{address}]:1" if ":" in address else address for address in found]


NAME = socket.gethostname()
# Settings, a header, its values that are let in, and those that are not.
NAMES: list[tuple[dict[str, str], str, list[str], list[str]]] = [
    (
        {},
        "origin",
        [
            *("http://localhost", "http://localhost:3000", "https://127.0.0.1:8443"),
            *("http://[::1]:1", "http://0.0.0.0", "app://obsidian.md", "tauri://localhost"),
            *("vscode-file://vscode-app", "vscode-webview://x", "file://"),
        ],
        [
            *("file", "app", "tauri", "file:", "app:x", "tauri:/x", "null", "ftp://localhost"),
            *("http://localhost.evil.example", "http://localhost:3000.evil.example"),
            *("http://evil.example", "chrome-extension://abc"),
        ],
    ),
    (
        {"origins": "https://chat.example, chrome-extension://*,http://dev.example:*"},
        "origin",
        [
            *("https://chat.example", "https://CHAT.example", "chrome-extension://abcdef"),
            "http://dev.example:5173",
        ],
        ["http://chat.example", "https://chat.example.evil"],
    ),
    (
        {},
        "host",
        [
            *("localhost", "LOCALHOST", "127.0.0.1:11434", "[::1]:11434", "0.0.0.0", NAME.upper()),
            *own_addresses(),
        ],
        [
            *("10.1.2.3", "192.168.1.1:11434", "my.localhost", "printer.local:80"),
            *(f"{NAME}.local", "evil.internal:11434", "host.docker.internal:11434"),
            *("evil.example", "localhost.evil.example", "8.8.8.8:11434", "[::1"),
            *("[2001:4860:4860::8888]", "127.0.0.1.evil.example", "evil.example@localhost"),
        ],
    ),
    (
        {"allowed_hosts": "NAS.lan, gpu.example"},
        "host",
        ["nas.lan", "Gpu.Example:11434"],
        ["x.nas.lan", "nas.lan.evil.example"],
    ),
    # Pages that do not say who they are; another port of this machine is the same site.
    ({}, "sec-fetch-site", ["same-origin", "same-site", "none"], ["cross-site"]),
]


@pytest.mark.parametrize(("settings", "header", "let_in", "refused"), NAMES)
def test_names_and_origins(
    nano_home: Path,
    vocabulary: Vocabulary,
    settings: dict[str, str],
    header: str,
    let_in: list[str],
    refused: list[str],
) -> None:
    wanted = "content-type, x-api-key, x-stainless-os"
    asked = {"access-control-request-method": "POST", "access-control-request-headers": wanted}
    script = Script(vocabulary)
    with run_scripted_server(nano_home, script, **settings) as server, client(server) as http:
        for value in (*let_in, *refused):
            reply = http.post("/api/show", json={"model": "nano"}, headers={header: value})
            assert reply.status_code == (200 if value in let_in else 403), value
            shared = value if header == "origin" and value in let_in else None
            assert reply.headers.get("access-control-allow-origin") == shared
            if header == "host":
                assert value in let_in or "GPTOSS_ALLOWED_HOSTS" in reply.text
            elif header == "origin":
                flight = http.options("/v1/chat/completions", headers=asked | {"origin": value})
                assert flight.status_code == (204 if shared else 403)
                assert flight.headers.get("access-control-allow-origin") == shared
                allowed = flight.headers.get("access-control-allow-headers")
                assert allowed == (wanted if shared else None)
                assert not shared or "DELETE" in flight.headers["access-control-allow-methods"]
            elif value in refused:  # a link to the server does nothing, and a page may say its name
                assert http.delete("/api/delete", headers={header: value}).status_code == 403
                assert http.get("/api/tags", headers={header: value}).status_code == 200
                named = {header: value, "origin": "app://obsidian.md"}
                assert http.post("/api/show", json={}, headers=named).status_code == 400


@pytest.mark.quick
@pytest.mark.parametrize(
    "key", ["schlüssel", "密码", "a\tb", "line\nbreak", "\x7f", "na\u00a0me", " padded "]
)
def test_a_key_that_no_client_can_send_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: str
) -> None:
    if key == key.strip():  # spaces around a variable are ignored
        monkeypatch.setenv("GPTOSS_API_KEY", key)
        with pytest.raises(UsageError, match="GPTOSS_API_KEY: the API key has a") as refused:
            load_settings()
        assert key not in f"{refused.value.message}{refused.value.hint}"
        monkeypatch.delenv("GPTOSS_API_KEY")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "gptoss").mkdir()
    file = tmp_path / "gptoss" / "config.toml"
    file.write_text(f"api_key = {json.dumps(key)}", encoding="utf-8")
    with pytest.raises(UsageError, match=r"config\.toml: api_key has a character"):
        load_settings()


def test_secrets_stay_in_the_server(nano_home: Path) -> None:
    """The engine needs neither key nor token."""
    secrets = {"HF_TOKEN": "hf_secret", "HUGGING_FACE_HUB_TOKEN": "hf_old", "LANG": "C.UTF-8"}
    secrets["OTEL_EXPORTER_OTLP_HEADERS"] = "authorization=s3cret"
    with (
        run_server(nano_home, variables=secrets, api_key="s3cret") as server,
        client(server) as http,
    ):
        headers = {"x-api-key": "s3cret"}
        assert http.post("/api/generate", json={"model": "nano"}, headers=headers).is_success
        engine = server.engine()
        assert engine is not None
        variables = engine.environ()
    assert variables["LANG"] == "C.UTF-8"
    assert not {"GPTOSS_API_KEY", *secrets} - {"LANG"} & variables.keys()
