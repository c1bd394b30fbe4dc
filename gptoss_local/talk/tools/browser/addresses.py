"""Decides which URLs and addresses may be opened. Nothing here resolves names or connects."""

import ipaddress
from typing import TYPE_CHECKING

from gptoss_local.base.errors import UsageError

if TYPE_CHECKING:
    import httpx2

_WEB_PORTS = (80, 443)
_LAST_PORT = 65_535
_FIRST_USER_PORT = 1024  # below, each is of some protocol; above, people serve pages
_NOT_OF_WEB_SITES = frozenset(
    (
        # Browsers refuse these ports. Source: WHATWG fetch, "bad port".
        *(1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6679, 6697, 10080),
        *range(6665, 6670),
        # Servers that take a line of a request for a command: databases, caches, brokers.
        *(1433, 1521, 1883, 2375, 2376, 2379, 3306, 5432, 5672, 6379, 9042, 11211, 27017),
    )
)

_INTERNAL = (".localhost", ".local", ".internal", ".lan", ".home.arpa")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_NOT_PUBLIC = tuple(
    map(
        ipaddress.ip_network,
        [
            "168.63.129.16/32",  # Azure's wire server, which each machine there reaches
            "192.0.0.0/24",  # protocol assignments, among them a metadata server
            "192.88.99.0/24",  # 6to4 relays
            "2001::/23",  # protocol assignments: Teredo and others
            "2002::/16",  # 6to4, each with an IPv4 address in it
            "3fff::/20",  # documentation
            "5f00::/16",  # segment routing
            "fec0::/10",  # site-local
        ],
    )
)
"""Networks without web sites that some version of `ipaddress` takes for public."""


def check_url(url: str) -> "httpx2.URL":
    """Return the normalized URL without fragment; raise UsageError if it may not be opened."""
    import httpx2  # PERF: 110 ms

    text = url.strip()
    if "://" not in text and not text.lower().startswith(("about:", "data:", "file:", "mailto:")):
        text = f"https://{text}"
    try:
        parsed = httpx2.URL(text)
    except (httpx2.InvalidURL, UnicodeError) as error:
        raise UsageError(f"`{shortened(url)}` is not a URL: {error}") from error
    if parsed.scheme not in ("http", "https"):
        raise UsageError(f"`{shortened(url)}` is not a web page; only http and https are opened")
    if not host_of(parsed):
        raise UsageError(f"`{shortened(url)}` names no host")
    if parsed.userinfo:
        raise UsageError("a URL with a user name or password is not opened")
    port = parsed.port or 443  # None: the scheme's
    if port > _LAST_PORT:
        raise UsageError(f"`{shortened(url)}` is not a URL: there is no port {port}")
    if port in _NOT_OF_WEB_SITES or (port < _FIRST_USER_PORT and port not in _WEB_PORTS):
        raise UsageError(f"port {port} is not opened, as web sites do not use it")
    return parsed.copy_with(fragment=None)


def host_of(url: "httpx2.URL") -> str:
    """Return the host in ASCII, as it is sent: the same name must be resolved."""
    return url.raw_host.decode("ascii")


def is_public(address: str) -> bool:
    """Return whether an address is public; inside IPv6, IPv4 is so only by NAT64's prefix."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:  # with a scope, as in `fe80::1%eth0`, of older Pythons
        return False
    if isinstance(found, ipaddress.IPv6Address) and found in _NAT64:
        return is_public(str(ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)))
    if not found.is_global or found.is_multicast or found.is_reserved or found.is_unspecified:
        return False
    if isinstance(found, ipaddress.IPv6Address) and (found.ipv4_mapped or found.scope_id):
        return False
    return not any(found.version == each.version and found in each for each in _NOT_PUBLIC)


def is_internal(host: str) -> bool:
    name = host.lower().rstrip(".")
    return "." not in name or name.endswith(_INTERNAL)


def shortened(text: str, n_max: int = 300) -> str:
    return text if len(text) <= n_max else f"{text[: n_max - 3]}..."
