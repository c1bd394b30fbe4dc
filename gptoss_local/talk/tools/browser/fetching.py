"""Gets pages, from public addresses only, within limits of time and size.

Connections, also of redirects, go to addresses resolved and checked here, so a name that resolves
differently later gains nothing. Where a proxy connects, see `_addresses`.
"""

import asyncio
import functools
import ipaddress
import socket
import ssl
import zlib
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple
from urllib.request import getproxies, proxy_bypass

import httpx2

from gptoss_local import __version__
from gptoss_local.base.errors import UsageError
from gptoss_local.talk.tools.browser.addresses import (
    check_url,
    host_of,
    is_internal,
    is_public,
    shortened,
)
from gptoss_local.talk.tools.browser.page import Fetched

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Returns the addresses of a host; raises OSError if it has none."""

MAX_BYTES = 10 * 1000 * 1000
_TIMEOUT_S = 20.0
_CONNECT_TIMEOUT_S = 5.0
_N_REDIRECTS = 5
_N_ADDRESSES = 4
_READABLE = (
    *("text/", "application/json", "application/pdf", "application/xhtml+xml", "application/xml"),
    *("application/javascript", "application/x-javascript", "application/yaml"),
    *("application/toml", "application/octet-stream"),
)
_USER_AGENT = f"Mozilla/5.0 (compatible; gptoss/{__version__})"  # many sites refuse others


class Limits(NamedTuple):
    n_bytes: int = MAX_BYTES
    seconds: float = _TIMEOUT_S


async def system_resolve(host: str, port: int) -> list[str]:
    """Ask the system's resolver, which also reads spellings of addresses such as `0x7f.1`."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Fetcher:
    def __init__(
        self,
        *,
        may_be_private: bool = False,
        resolve: Resolve = system_resolve,
        limits: Limits = Limits(),  # noqa: B008 (it is immutable)
    ) -> None:
        self._may_be_private = may_be_private
        self._resolve = resolve
        self._limits = limits

    async def fetch(self, url: str) -> Fetched:
        try:
            async with asyncio.timeout(self._limits.seconds):
                return await self._follow(check_url(url))
        except TimeoutError as error:
            late = f"it took longer than {self._limits.seconds:g} s"
            raise UsageError(_failed(url, late)) from error
        except httpx2.TimeoutException as error:
            raise UsageError(_failed(url, "the site does not answer in time")) from error
        except (httpx2.HTTPError, httpx2.InvalidURL, ssl.SSLError, OSError) as error:
            raise UsageError(_failed(url, str(error) or type(error).__name__)) from error

    async def _follow(self, url: httpx2.URL) -> Fetched:
        for _ in range(_N_REDIRECTS + 1):
            proxy = await asyncio.to_thread(_proxy_for, url)  # it may ask the system
            addresses = await self._addresses(url, proxy)
            reached = await self._get(url, addresses, proxy)
            if isinstance(reached, Fetched):
                return reached
            url = reached
        raise UsageError(_failed(str(url), f"it redirects more than {_N_REDIRECTS} times"))

    async def _addresses(self, url: httpx2.URL, proxy: str | None) -> list[str]:
        """Return the checked addresses to connect to; none where a proxy connects.

        A proxy resolves the name itself; an address found here is checked even so.
        """
        host = host_of(url)
        nowhere = _failed(str(url), f"{host} has no address")
        try:
            addresses = await self._resolve(host, url.port or 0)
        except (OSError, UnicodeError) as error:
            if proxy and not is_internal(host):
                return []
            raise UsageError(nowhere) from error
        if not addresses:
            raise UsageError(nowhere)
        private = [each for each in addresses if not is_public(each)]
        if private and not self._may_be_private:
            raise UsageError(
                f"`{shortened(str(url))}` is not opened: {host} is at {private[0]}, which is "
                "not an address of the public internet (the setting browser_private allows it)"
            )
        return [] if proxy and not private else addresses[:_N_ADDRESSES]

    async def _get(
        self, url: httpx2.URL, addresses: list[str], proxy: str | None
    ) -> Fetched | httpx2.URL:
        *others, last = addresses or [""]
        for address in others:
            try:
                return await self._get_from(url, address, proxy)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                continue
        return await self._get_from(url, last, proxy)

    async def _get_from(
        self, url: httpx2.URL, address: str, proxy: str | None
    ) -> Fetched | httpx2.URL:
        """Return the answer, or the target of its redirect; without an address, ask the proxy."""
        target = url.copy_with(host=address.partition("%")[0]) if address else url
        headers = {
            "Host": url.netloc.decode("ascii"),
            "User-Agent": _USER_AGENT,
            "Accept": "text/html,application/xhtml+xml,application/pdf,text/*;q=0.9,*/*;q=0.5",
            "Accept-Language": "en,*;q=0.5",
            "Accept-Encoding": "gzip, deflate",
            "Connection": "close",
        }
        timeout = httpx2.Timeout(self._limits.seconds, connect=_CONNECT_TIMEOUT_S).as_dict()
        extensions: dict[str, Any] = {"timeout": timeout}
        if not _is_address(host_of(url)):
            extensions |= {"sni_hostname": host_of(url).rstrip(".")}
        request = httpx2.Request("GET", target, headers=headers, extensions=extensions)
        try:
            transport = httpx2.AsyncHTTPTransport(
                verify=_ssl_context(), trust_env=False, proxy=None if address else proxy
            )
        except (ImportError, ValueError) as error:  # SOCKS, for example; it may hold a password
            raise UsageError("the proxy of the environment cannot be used") from error
        async with transport:
            # Not by a client, which would keep cookies by address and follow redirects itself.
            response = await transport.handle_async_request(request)
            try:
                location = response.headers.get("location")
                if response.has_redirect_location and location:
                    return check_url(str(url.join(location)))
                return await self._read(url, response)
            finally:
                await response.aclose()

    async def _read(self, url: httpx2.URL, response: httpx2.Response) -> Fetched:
        if not response.is_success:
            status = f"{response.status_code} {response.reason_phrase}".strip()
            raise UsageError(_failed(str(url), f"the site answers {status}"))
        content_type = response.headers.get("content-type", "").strip().lower()
        kind = content_type.partition(";")[0].strip()
        if kind and not kind.startswith(_READABLE) and not kind.endswith(("+json", "+xml")):
            raise UsageError(f"`{shortened(str(url))}` is {kind}, which cannot be read as text")
        too_large = f"it is larger than {self._limits.n_bytes / 1e6:g} MB"
        if int(_digits(response.headers.get("content-length"))) > self._limits.n_bytes:
            raise UsageError(_failed(str(url), too_large))
        decoder = _decoder(response.headers.get("content-encoding", ""), url)
        body = bytearray()
        async for piece in response.aiter_raw():
            try:
                body += decoder(piece, self._limits.n_bytes + 1 - len(body))
            except zlib.error as error:
                raise UsageError(_failed(str(url), f"it is compressed badly: {error}")) from error
            if len(body) > self._limits.n_bytes:
                raise UsageError(_failed(str(url), too_large))
        return Fetched(str(url), content_type, bytes(body))


def _decoder(encoding: str, url: httpx2.URL) -> Callable[[bytes, int], bytes]:
    """Return a bounded decompressor, as httpx2 would unpack kilobytes into gigabytes."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return lambda piece, n_max: piece
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise UsageError(_failed(str(url), f"it is compressed by {shortened(encoding, 40)}"))
    unzip: zlib._Decompress | None = None

    def decode(piece: bytes, n_max: int) -> bytes:
        nonlocal unzip
        if not piece:
            return b""
        if unzip is None:
            has_header = encoding != "deflate" or (piece[0] & 0x0F) == zlib.DEFLATED
            unzip = zlib.decompressobj(32 + zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS)
        return unzip.decompress(piece, n_max)

    return decode


@functools.cache
def _ssl_context() -> ssl.SSLContext:
    """PERF: it takes 20 ms to read the certificates."""
    return httpx2.create_ssl_context()


def _proxy_for(url: httpx2.URL) -> str | None:
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(host_of(url)):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _digits(text: str | None) -> str:
    return text if text and text.isascii() and text.isdigit() else "0"


def _failed(url: str, why: str) -> str:
    return f"Error fetching URL `{shortened(url)}`: {shortened(why)}"
