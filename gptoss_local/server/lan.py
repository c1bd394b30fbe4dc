"""Lets phones and other machines of the local network in, through listeners of their own."""

import asyncio
import datetime
import ipaddress
import logging
import re
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakSet

import psutil
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gptoss_local.base.errors import UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.base.whole_file import write_whole
from gptoss_local.server.connections import N_PENDING, BoundedProtocol
from gptoss_local.server.origin import is_loopback

_log = logging.getLogger("gptoss")

_HANDSHAKE_S = 10
_VALID = datetime.timedelta(days=397)  # Apple's limit, also for certificates that a user trusts
_RENEWED = datetime.timedelta(days=30)  # before they end
_VIRTUAL = re.compile(r"br-|cni|docker|flannel|lxc|podman|vboxnet|vEthernet|veth|virbr|vmnet")
_VPN = re.compile(r"ppp|tailscale|tap|tun|utun|wg|zt")


class LanDoor:
    """Listens on the local network's addresses, in one event loop; in another it lets no one in."""

    def __init__(
        self,
        settings: Settings,
        listen: Callable[[str], socket.socket],
        make_protocol: Callable[[], BoundedProtocol],
    ) -> None:
        self._settings, self._listen, self._make_protocol = settings, listen, make_protocol
        self._servers: list[asyncio.Server] = []
        self._protocols = WeakSet[BoundedProtocol]()
        self.urls: list[str] = []
        self.fingerprint = ""

    async def open(self, scheme: str) -> None:
        """Listen with TLS (`https`) or without (`http`), unless it does so already."""
        host, port = self._settings.host, self._settings.port
        if not is_loopback(host):
            raise UsageError(
                f"the server listens on {host} already, without TLS, as GPTOSS_HOST says",
                hint="Unset it, run `gptoss stop`, then `gptoss web --lan`.",
            )
        addresses = lan_addresses()
        if not addresses:
            raise UsageError(
                "this machine has no address in a local network",
                hint="Connect it to the network that the phone is in.",
            )
        context, fingerprint = None, ""
        if scheme == "https":
            path = self._settings.certificate_path
            context, fingerprint = await asyncio.to_thread(_own_certificate, path, addresses)
        urls = [f"{scheme}://{address}:{port}" for address in addresses]
        if (urls, fingerprint) == (self.urls, self.fingerprint):
            return
        self.close()
        try:
            for address in addresses:
                await self._add(self._listen(address), context)
        except BaseException:
            self.close()
            raise
        self.urls, self.fingerprint = urls, fingerprint
        _log.info("listening on %s, for callers with a key", ", ".join(urls))

    def close(self) -> None:
        self.stop_listening()
        for protocol in self._protocols:
            if protocol.transport is not None:
                protocol.transport.abort()
        self.urls, self.fingerprint = [], ""

    def stop_listening(self) -> None:
        while self._servers:
            self._servers.pop().close()

    async def _add(self, listener: socket.socket, context: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()

        def accept() -> asyncio.BaseProtocol:
            protocol = self._make_protocol()
            self._protocols.add(protocol)
            return protocol if context is None else _Tls(loop, protocol, context)

        self._servers.append(await loop.create_server(accept, sock=listener))
        listener.listen(N_PENDING)


class _Tls(SSLProtocol):
    """asyncio's TLS, whose handshakes count as connections, too."""

    max_size = 32 * 1024  # of the buffer that each connection has

    def __init__(
        self, loop: asyncio.AbstractEventLoop, http: BoundedProtocol, context: ssl.SSLContext
    ) -> None:
        nobody: Any = None  # waits
        super().__init__(
            loop, http, context, nobody, server_side=True, ssl_handshake_timeout=_HANDSHAKE_S
        )
        self._http = http

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._http.enter(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._http.leave()


def lan_addresses() -> list[str]:
    """Return this machine's private IPv4 addresses: real ones, or else a VPN's."""
    is_up = {name: stats.isup for name, stats in psutil.net_if_stats().items()}
    found = [
        (name, each.address)
        for name, addresses in psutil.net_if_addrs().items()
        if is_up.get(name) and not _VIRTUAL.match(name)
        for each in addresses
        if each.family == socket.AF_INET and _is_private(each.address)
    ]
    return [a for name, a in found if not _VPN.match(name)] or [a for _, a in found]


def _is_private(text: str) -> bool:
    address = ipaddress.ip_address(text)
    return not (address.is_global or address.is_loopback or address.is_link_local)


def _own_certificate(path: Path, addresses: list[str]) -> tuple[ssl.SSLContext, str]:
    names = x509.SubjectAlternativeName(
        [
            x509.DNSName(socket.gethostname()),
            *(x509.IPAddress(ipaddress.ip_address(address)) for address in addresses),
        ]
    )
    now = datetime.datetime.now(datetime.UTC)
    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
        is_good = found.not_valid_after_utc - now > _RENEWED
        is_good &= found.extensions.get_extension_for_class(type(names)).value == names
    except (OSError, ValueError, x509.ExtensionNotFound):
        is_good = False
    if not is_good:
        found = _make_certificate(path, names, now)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context, found.fingerprint(SHA256()).hex(":").upper()


def _make_certificate(
    path: Path, names: x509.SubjectAlternativeName, now: datetime.datetime
) -> x509.Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gptoss on this machine")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + _VALID)
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.unlink(missing_ok=True)  # a mode that another file has had is not kept
    write_whole(path, (secret + made.public_bytes(Encoding.PEM)).decode())
    return made
