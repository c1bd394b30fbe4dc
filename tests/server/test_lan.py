"""The door to the local network: closed unless opened, with TLS, and for keys alone."""

import hashlib
import ipaddress
import socket
import ssl
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from gptoss_local.harmony import Vocabulary
from gptoss_local.server.keys import add_key, read_keys, remove_key
from gptoss_local.server.lan import lan_addresses
from tests.conftest import RunningServer, wait_until
from tests.scripted_engine import Script, answer, run_scripted_server
from tests.server.test_doors import DOORS, filled

pytestmark = pytest.mark.skipif(not lan_addresses(), reason="needs an address of a local network")
Lan = dict[str, Any]


Serve = Callable[..., AbstractContextManager[RunningServer]]


@pytest.fixture
def serve(home: Path, vocabulary: Vocabulary) -> Serve:
    script = Script(vocabulary)
    script.otherwise(answer("Hello."))
    return partial(run_scripted_server, home, script)


@pytest.fixture
def server(serve: Serve) -> Iterator[RunningServer]:
    with serve() as server:
        yield server


def at_the_door(server: RunningServer, method: str) -> httpx.Response:
    url = f"{server.url}/api/gptoss/lan"
    return httpx.request(method, url, json={}, headers=server.owner, trust_env=False)


def open_door(server: RunningServer) -> Lan:
    return dict(at_the_door(server, "POST").raise_for_status().json())


def close_door(server: RunningServer) -> None:
    at_the_door(server, "DELETE").raise_for_status()


def listening() -> set[str]:
    """Return the addresses at which the server, which is in this process, can be reached."""
    found = psutil.Process().net_connections("inet")
    return {c.laddr.ip for c in found if c.status == psutil.CONN_LISTEN}


@contextmanager
def phone(lan: Lan, home: Path, key: str = "") -> Iterator[httpx.Client]:
    """A client that trusts the certificate of this machine alone, and checks its address."""
    pinned = ssl.create_default_context(cafile=str(home / "lan.pem"))
    headers = {"authorization": f"Bearer {key}"} if key else {}
    with httpx.Client(
        base_url=lan["urls"][0], verify=pinned, headers=headers, trust_env=False, timeout=60
    ) as http:
        yield http


def open_link(http: httpx.Client, lan: Lan) -> httpx.Response:
    return http.post("/api/gptoss/open", json={"link": lan["path"].removeprefix("/#open=")})


def presented(lan: Lan) -> bytes:
    """The certificate of a handshake, as a browser shows it."""
    host, port = lan["urls"][0].removeprefix("https://").split(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((host, int(port)), timeout=10) as plain,
        context.wrap_socket(plain) as link,
    ):
        sent = link.getpeercert(binary_form=True)
    assert sent is not None
    return sent


def test_only_this_machine_is_let_in_until_the_door_is_opened(
    server: RunningServer, home: Path
) -> None:
    """And then with a certificate that is this machine's, and private."""
    assert listening() == {"127.0.0.1"}
    lan = open_door(server)
    assert listening() == {"127.0.0.1", *lan_addresses()}
    shown = hashlib.sha256(presented(lan)).hexdigest().upper()
    assert lan["fingerprint"] == ":".join(shown[n : n + 2] for n in range(0, 64, 2))
    assert stat.S_IMODE((home / "lan.pem").stat().st_mode) == 0o600
    with phone(lan, home) as http:
        assert http.get("/health").status_code == 200
    assert open_door(server)["fingerprint"] == lan["fingerprint"]
    with pytest.raises(httpx.TransportError):  # nobody is spoken to in the clear
        httpx.get(lan["urls"][0].replace("https", "http"), trust_env=False)
    close_door(server)
    assert listening() == {"127.0.0.1"}
    with pytest.raises(ConnectionRefusedError):
        presented(lan)


def made_elsewhere(address: str, days: int) -> bytes:
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    names = [x509.DNSName(socket.gethostname()), x509.IPAddress(ipaddress.ip_address(address))]
    made = (
        x509.CertificateBuilder(x509.Name([]), x509.Name([]), key.public_key(), 1)
        .not_valid_before(now - timedelta(days=300))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return secret + made.public_bytes(Encoding.PEM)


@pytest.mark.parametrize("fault", ["other address", "ends soon", "cut off", "none"])
def test_a_certificate_is_made_again_when_it_does_not_fit(
    server: RunningServer, home: Path, fault: str
) -> None:
    address = "10.99.99.99" if fault == "other address" else lan_addresses()[0]
    old = made_elsewhere(address, days=5 if fault == "ends soon" else 300)
    (home / "lan.pem").write_bytes(old[:100] if fault == "cut off" else old)
    (home / "lan.pem").chmod(0o644)
    lan = open_door(server)
    sent = x509.load_der_x509_certificate(presented(lan))
    if fault == "none" and len(lan_addresses()) == 1:
        assert sent == x509.load_pem_x509_certificate(old)
        return
    names = sent.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    found = [str(each) for each in names.get_values_for_type(x509.IPAddress)]
    assert found == lan_addresses()
    assert timedelta(days=390) < sent.not_valid_after_utc - datetime.now(UTC) < timedelta(days=398)
    assert stat.S_IMODE((home / "lan.pem").stat().st_mode) == 0o600


def test_without_a_key_the_network_gets_the_page_and_nothing_else(serve: Serve, home: Path) -> None:
    """Although this machine's own programs need none. A user's key opens no chats."""
    with serve() as server:
        lan = open_door(server)
        assert httpx.get(f"{server.url}/api/tags", trust_env=False).status_code == 200
        with phone(lan, home) as http:
            for door in DOORS:
                reply = http.request(door.method, filled(door.path), content=b"{}")
                refused = reply.status_code == 401 and "link has been used" not in reply.text
                assert refused == (door.level != "open"), (door, reply.text)
            rebound = http.get("/", headers={"host": "evil.example"})
            assert rebound.status_code == 403
    key = add_key(home / "keys.toml", "ada")
    with (
        serve(api_keys_file=str(home / "keys.toml")) as server,
        phone(open_door(server), home, key) as http,
    ):
        assert http.get("/api/tags").status_code == 200
        assert http.get("/api/gptoss/chats").status_code == 401


def test_a_link_gives_one_phone_a_key_to_chat_with(server: RunningServer, home: Path) -> None:
    lan = open_door(server)
    with phone(lan, home) as http:
        key = open_link(http, lan).raise_for_status().json()["key"]
        assert open_link(http, lan).status_code == 401
    assert [(each.name, each.chats) for each in read_keys(home / "keys.toml")] == [("phone", True)]
    assert key not in (home / "keys.toml").read_text()
    link = {"link": server.link().removeprefix("/#open=")}
    mine = httpx.post(f"{server.url}/api/gptoss/open", json=link, trust_env=False).json()["token"]
    with phone(lan, home) as http:  # a browser of this machine is none of the network
        sent = {"x-gptoss-token": mine}
        assert http.get("/api/gptoss/chats", headers=sent).status_code == 401
    remove_key(home / "keys.toml", "browser")
    with phone(lan, home, key) as http:
        chat = http.post("/api/gptoss/chats", json={"model": "nano"}).raise_for_status().json()
        path = f"/api/gptoss/chats/{chat['id']}"
        http.post(f"{path}/ask", json={"content": "Hello"}).raise_for_status()
        wait_until(lambda: http.get(path).json()["turns"][-1]["state"] == "done", timeout_s=60)
        for scope in ("always", "once"):
            refused = http.post(f"{path}/allow", json={"turn_id": 1, "scope": scope})
            assert refused.status_code == 403
            assert "phone" in refused.json()["error"]
        http.post("/api/generate", json={"model": "nano", "keep_alive": 0})
        assert [model["name"] for model in http.get("/api/ps").json()["models"]] == ["nano"]
    again = open_door(server)
    with phone(again, home) as http:
        assert open_link(http, again).json()["key"] != key
    assert [each.name for each in read_keys(home / "keys.toml")] == ["phone", "phone-2"]


def test_a_closed_door_leaves_nothing_open(server: RunningServer, home: Path) -> None:
    lan = open_door(server)
    with phone(lan, home) as http:
        key = open_link(http, lan).json()["key"]
    unused = open_door(server)
    with (
        phone(lan, home, key) as http,
        http.stream("GET", "/api/gptoss/chats/changes") as stream,
    ):
        assert stream.status_code == 200
        close_door(server)
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):  # and no time-out
            stream.read()
    link = {"link": unused["path"].removeprefix("/#open=")}
    reply = httpx.post(f"{server.url}/api/gptoss/open", json=link, trust_env=False)
    assert reply.status_code == 401


def test_settings_keep_it_or_rule_it_out(serve: Serve, home: Path) -> None:
    """Plain HTTP must be said; a host of the settings is not overruled."""
    with serve(lan="http") as server:
        address, port = lan_addresses()[0], server.url.rpartition(":")[2]
        wait_until(lambda: address in listening())
        for path, status in {"/health": 200, "/api/tags": 401}.items():
            reply = httpx.get(f"http://{address}:{port}{path}", trust_env=False)
            assert reply.status_code == status
        assert not (home / "lan.pem").exists()
    with serve(host="0.0.0.0", insecure="1") as server:
        reply = at_the_door(server, "POST")
        assert reply.status_code == 400
        assert "GPTOSS_HOST" in reply.json()["error"]
