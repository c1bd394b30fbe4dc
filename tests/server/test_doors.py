"""Every endpoint, every kind of caller, and every spelling of a path: who is served, who is not.

The table is the one of docs/api.md, so an endpoint that states nothing, or another access than the
page says, fails here.
"""

import json
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from gptoss_local.api_keys import add_key, add_phone
from gptoss_local.server.openapi import ENDPOINTS
from tests.conftest import RunningServer, run_server

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
WITH_KEYS = {
    "open": {"nobody", "other origin", "account", "page", "phone", "key", "owner"},
    "key": {"page", "phone", "key", "owner"},
    "models": {"page", "owner"},
    "chat": {"page", "phone", "owner"},
    "page": {"page", "owner"},
    "owner": {"owner"},
}
WITHOUT_KEYS = WITH_KEYS | {
    "key": {"nobody", "other origin", "account", "page", "phone", "owner"},
    "models": {"nobody", "other origin", "account", "page", "phone", "owner"},
}


class Door(NamedTuple):
    method: str
    path: str
    level: str


def stated() -> list[Door]:
    """The table of docs/api.md."""
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    section = text.partition("\n## Who may call\n")[2].partition("\n## ")[0]
    doors = []
    for level, words in LEVELS.items():
        row = next(line for line in section.splitlines() if line.startswith(f"| {words} |"))
        for each in row.split("|")[2].split(","):
            methods, _, path = each.strip().strip("`").rpartition(" ")
            doors += [Door(method, path, level) for method in methods.split("/")]
    return doors


def shown(path: str) -> str:
    return path.replace(":int}", "}").replace(":path}", "}")


DOORS = stated()
# One ends the server, one streams without an end, and one asks for a secret that is in its body.
SAFE = [door for door in DOORS if not door.path.endswith(("/shutdown", "/changes", "/open"))]


def filled(path: str) -> str:
    """The path with values in it that name nothing."""
    for name, value in (
        ("{chat_id}", "1"),
        ("{digest}", f"sha256:{'0' * 64}"),
        ("{response}", "resp_x"),
        ("{name}", "nope"),
        ("{path}", "app.js"),
    ):
        path = path.replace(name, value)
    return path


def test_the_page_states_what_the_endpoints_state() -> None:
    assert sorted(DOORS) == sorted(Door(e.method, shown(e.path), e.access) for e in ENDPOINTS)


class Served(NamedTuple):
    server: RunningServer
    key: str
    phone: str
    page_token: str
    may: dict[str, set[str]]


@pytest.fixture(scope="module", params=["no keys", "a file of keys", "a key and a file"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, nano_home: Path
) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("doors")
    (home / "cache").symlink_to(nano_home / "cache")
    key, phone, settings = "", add_phone(home / "keys.toml"), {}
    if request.param != "no keys":
        key = add_key(home / "keys.toml", "ada")
        settings["api_keys_file"] = str(home / "keys.toml")
    if request.param == "a key and a file":
        settings["api_key"] = "the-owners"
    with ExitStack() as stack:
        server = stack.enter_context(run_server(home, **settings))
        link = server.link().partition("#open=")[2]
        reply = httpx.post(f"{server.url}/api/gptoss/open", json={"link": link}, trust_env=False)
        may = WITHOUT_KEYS if request.param == "no keys" else WITH_KEYS
        yield Served(server, key, phone, reply.json()["token"], may)


def headers_of(caller: str, served: Served) -> dict[str, str]:
    return {
        "nobody": {},
        "other origin": {"origin": FOREIGN},
        "page": {"x-gptoss-token": served.page_token, "origin": served.server.url},
        "phone": {"authorization": f"Bearer {served.phone}"},
        "key": {"authorization": f"Bearer {served.key}"},
        "owner": served.server.owner,
    }[caller]


@pytest.mark.parametrize("caller", ["nobody", "other origin", "page", "phone", "key", "owner"])
def test_each_caller_gets_what_the_table_says(served: Served, caller: str) -> None:
    if caller == "key" and not served.key:
        pytest.skip("a server without keys")
    with httpx.Client(base_url=served.server.url, timeout=30, trust_env=False) as client:
        for door in SAFE:
            reply = client.request(
                door.method, filled(door.path), headers=headers_of(caller, served), content=b"{}"
            )
            is_served = reply.status_code not in (401, 403)
            assert is_served == (caller in served.may[door.level]), (door, reply.text)


@pytest.mark.parametrize("caller", ["page", "phone", "owner"])
def test_a_page_of_another_origin_gets_nothing_of_the_owners(served: Served, caller: str) -> None:
    """Not even with what the owner or the page has."""
    headers = headers_of(caller, served) | {"origin": FOREIGN}
    with httpx.Client(base_url=served.server.url, timeout=30, trust_env=False) as client:
        for door in DOORS:
            if door.level not in ("chat", "page", "owner"):
                continue
            for method in (door.method, "OPTIONS"):
                reply = client.request(method, filled(door.path), headers=headers, content=b"{}")
                assert reply.status_code == 403, door
                assert "access-control-allow-origin" not in reply.headers


def spellings(path: str) -> list[str]:
    """A path as somebody writes it who hopes that two readers disagree on it."""
    head, _, last = path.rpartition("/")
    ends = (
        *("%0A", "%0D", "%00", "%09", "%0D%0A", "%7F", "%C2%85", "%E2%80%A8", "%E2%80%8B", "%20"),
        *(
            "/",
            "//",
            "/.",
            "/..",
            "/%2e",
            "/%2E%2E/x",
            "%2F",
            "%2f..",
            "%5C",
            "\\",
            ";x",
            "%23",
            "%3F",
        ),
        *("%FF", "%C0%AF", "%u000a", "%250A", ".json", "?%0A", "?x=/api/tags"),
    )
    return [
        *(path + end for end in ends),
        *(
            f"/{path}",
            f"/.{path}",
            f"/x/..{path}",
            f"/%2e{path}",
            f"/x/%2e%2e{path}",
            f"/%2F{path}",
        ),
        *(f"{head}%2F{last}", f"{head}/%0A{last}", f"{head}//{last}", f"{head}/./{last}"),
        *(path.upper(), path.replace("/", "%2F"), path.replace("a", "%61"), f"http://x{path}"),
    ]


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
    for caller in ("nobody", "other origin", *(["key"] if served.key else ())):
        headers = headers_of(caller, served)
        for door in DOORS:
            if caller in served.may[door.level]:
                continue
            for raw in spellings(filled(door.path)):
                status = status_of(served, door.method, raw, headers)
                assert status in (400, 401, 403, 404, 405), (caller, door.method, raw)


@pytest.mark.parametrize(
    "path",
    ["/api/tags%0A", "/api%2Ftags", "/./api/tags", "/x/../api/tags", "/x/%2E./api/tags", "/%5Capi"],
)
def test_a_mangled_path_is_refused_for_all(served: Served, path: str) -> None:
    assert status_of(served, "GET", path, served.server.owner) == 400


AS_NOBODY = """
import json, sys, urllib.error, urllib.request
url, secret, asked = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
try:
    open(secret).read()
    print("READ THE SECRET")
except OSError:
    pass
for method, path in asked:
    request = urllib.request.Request(url + path, b"{}" if method != "GET" else None, method=method)
    request.add_header("Accept", "text/html")
    try:
        print(urllib.request.urlopen(request).status)
    except urllib.error.HTTPError as error:
        print(error.code)
"""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
def test_another_account_of_this_machine_is_nobody(served: Served) -> None:
    secret = next((served.server.home / "run").glob("*.secret"))
    asked = [door for door in SAFE if door.level in ("page", "owner")]
    pairs = json.dumps([(door.method, filled(door.path)) for door in asked])
    done = subprocess.run(
        ["/usr/bin/env", "-i", "python3", "-c", AS_NOBODY, served.server.url, str(secret), pairs],
        user="nobody",
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == ["401"] * len(asked), done.stderr


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
def test_a_link_that_another_account_has_seen_lets_nobody_in(served: Served) -> None:
    """The command line of a browser that is started with a link is readable for all accounts."""
    link = served.server.link().partition("#open=")[2]
    code = (
        "import sys, urllib.request, urllib.error\n"
        "try: print(urllib.request.urlopen(sys.argv[1], sys.argv[2].encode()).read())\n"
        "except urllib.error.HTTPError as error: print(error.code)\n"
    )
    url, body = f"{served.server.url}/api/gptoss/open", json.dumps({"link": link})
    done = subprocess.run(
        ["/usr/bin/env", "-i", "python3", "-c", code, url, body],
        user="nobody",
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == "403", (done.stdout, done.stderr, pwd.getpwnam("nobody"))
    assert httpx.post(url, json={"link": link}, trust_env=False).status_code == 401


def test_a_link_works_once(served: Served) -> None:
    url = f"{served.server.url}/api/gptoss/open"
    link = served.server.link().partition("#open=")[2]
    replies = [httpx.post(url, json={"link": link}, trust_env=False) for _ in range(2)]
    assert [reply.status_code for reply in replies] == [200, 401]
    for guessed in ("", "x", link[:-1], served.page_token):
        assert httpx.post(url, json={"link": guessed}, trust_env=False).status_code == 401


def test_the_secret_goes_with_the_server(tmp_path: Path, nano_home: Path) -> None:
    (tmp_path / "cache").symlink_to(nano_home / "cache")
    with run_server(tmp_path) as server:
        (path,) = (tmp_path / "run").iterdir()
        assert path.stat().st_mode & 0o077 == 0
        old = server.owner
    assert not path.exists()
    with run_server(tmp_path) as server:
        status = httpx.get(f"{server.url}/api/gptoss/status", headers=old, trust_env=False)
        assert status.status_code == 401


def test_the_owner_ends_the_server_and_nobody_else_does(tmp_path: Path, nano_home: Path) -> None:
    (tmp_path / "cache").symlink_to(nano_home / "cache")
    key = {"authorization": f"Bearer {add_key(tmp_path / 'keys.toml', 'ada')}"}
    with run_server(tmp_path, api_keys_file=str(tmp_path / "keys.toml")) as server:
        url = f"{server.url}/api/gptoss/shutdown"
        for headers in ({}, key):
            assert httpx.post(url, headers=headers, trust_env=False).status_code == 401
        done = subprocess.run(
            [sys.executable, "-m", "gptoss_local", "stop"], env=server.environment, timeout=30
        )
        assert done.returncode == 0
        assert server.process.wait(timeout=20) == 0
