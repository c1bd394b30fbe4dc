"""Pulls through proxies, with certificates of one's own, over hubs that fail, and their end."""

import datetime
import ipaddress
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import psutil
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.cli.conftest import fresh, run_cli  # noqa: F401
from tests.conftest import free_port, wait_until
from tests.convert.tiny import write_tiny
from tests.hub.conftest import no_account  # noqa: F401
from tests.hub.server import Fault, HubServer, run_hub
from tests.pulling.test_pull import read_folder

REPO = "someone/tune"


def make_certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """Return a certificate of this machine that signs itself, and a server's context with it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a company")])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    here = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now - day, now + day)
    made = made.add_extension(x509.SubjectAlternativeName(here), critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    pem = serialization.Encoding.PEM
    certificate, private = folder / "ca.pem", folder / "key.pem"
    certificate.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(pem))
    plain, unlocked = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    private.write_bytes(key.private_bytes(pem, plain, unlocked))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, private)
    return certificate, context


class Proxy(BaseHTTPRequestHandler):
    """Connects clients with the addresses that they name."""

    connected: ClassVar[list[str]] = []

    def do_CONNECT(self) -> None:
        self.connected.append(self.path)
        host, _, port = self.path.partition(":")
        with closing(socket.create_connection((host, int(port)))) as there:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=forward, args=(there, self.connection))
            back.start()
            forward(self.connection, there)
            back.join()
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


def forward(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


@pytest.fixture
def proxy() -> Iterator[str]:
    Proxy.connected.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    server.daemon_threads, server.block_on_close = True, False
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubServer]:
    with run_hub() as server:
        server.add(REPO, read_folder(write_tiny(tmp_path / "tune")))
        yield server


def test_tls_through_a_proxy(
    fresh: dict[str, str],  # noqa: F811
    proxy: str,
    tmp_path: Path,
) -> None:
    certificate, context = make_certificate(tmp_path)
    with run_hub(context) as hub:
        hub.add(REPO, read_folder(write_tiny(tmp_path / "tune")))
        environment = fresh | {"HF_ENDPOINT": hub.endpoint, "HTTPS_PROXY": proxy, "NO_PROXY": ""}
        refused = run_cli(environment, "pull", REPO)
        assert refused.returncode == 4
        assert "certificate" in refused.stderr
        assert "SSL_CERT_FILE" in refused.stderr
        gone = run_cli(
            environment | {"HTTPS_PROXY": f"http://127.0.0.1:{free_port()}"}, "pull", REPO
        )
        assert gone.returncode == 4
        done = run_cli(environment | {"SSL_CERT_FILE": str(certificate)}, "pull", REPO)
        assert done.returncode == 0, done.stderr
        assert set(Proxy.connected) == {f"{host}:{hub.port}" for host in ("127.0.0.1", "localhost")}


def test_waits_are_said_in_a_pipe(fresh: dict[str, str], hub: HubServer) -> None:  # noqa: F811
    hub.strike("model.safetensors", Fault(n_times=2, status=503))
    done = run_cli(fresh | {"HF_ENDPOINT": hub.endpoint}, "pull", REPO)
    assert done.returncode == 0, done.stderr
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("note:")]
    assert "answers 503" in said
    assert said.endswith("The next try is in 2 s.")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to catch")
def test_sigterm_ends_a_pull_that_waits(
    fresh: dict[str, str],  # noqa: F811
    hub: HubServer,
) -> None:
    hub.strike("model.safetensors", Fault(stall_after=10))
    command = [sys.executable, "-m", "gptoss_local", "pull", REPO]
    environment = fresh | {"HF_ENDPOINT": hub.endpoint}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as pull:
        wait_until(lambda: hub.sent["model.safetensors"])
        children = psutil.Process(pull.pid).children()
        os.kill(pull.pid, signal.SIGTERM)
        _, said = pull.communicate()
    assert pull.returncode == 143
    assert "Traceback" not in said
    assert children
    assert not any(child.is_running() for child in children)
