"""Gets pages, from public addresses only, within limits of time and size.

A name is resolved and checked for each request, also of redirects, and sockets are made to what was
checked, so another answer of DNS gains nothing. Where a proxy connects, see `_addresses`.
"""

import asyncio
import contextlib
import functools
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast
from urllib.request import getproxies, proxy_bypass

import httpcore2
import httpx2

from gptoss_local import __version__
from gptoss_local.base.bounded_answers import bound
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

MAX_BYTES = 10 * 2**20
_TIMEOUT_S = 20.0
_CONNECT_TIMEOUT_S = 5.0
_N_REDIRECTS = 5
_N_ADDRESSES = 4
_READABLE = (
    *("text/", "application/json", "application/pdf", "application/xhtml+xml", "application/xml"),
    *("application/javascript", "application/x-javascript", "application/yaml"),
    *("application/toml", "application/octet-stream"),
)
_HEADERS: Mapping[bytes | str, bytes | str] = {
    "User-Agent": f"Mozilla/5.0 (compatible; gptoss/{__version__})",  # many sites refuse others
    "Accept": "text/html,application/xhtml+xml,application/pdf,text/*;q=0.9,*/*;q=0.5",
    "Accept-Language": "en,*;q=0.5",
    "Accept-Encoding": "gzip",
    "Connection": "close",
}
_FAILURES = (
    *(httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.ProxyError, httpx2.HTTPError),
    *(httpx2.InvalidURL, ssl.SSLError, OSError),
)
_NO_PROXY = "the proxy of the environment cannot be used"


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
        n_bytes: int = MAX_BYTES,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._may_be_private = may_be_private
        self._resolve = resolve
        self._n_bytes, self._timeout_s = n_bytes, timeout_s

    async def fetch(self, url: str) -> Fetched:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._follow(check_url(url))
        except TimeoutError as error:
            late = f"it took longer than {self._timeout_s:g} s"
            raise UsageError(_failed(url, late)) from error
        except httpcore2.TimeoutException as error:
            raise UsageError(_failed(url, "the site does not answer in time")) from error
        except _FAILURES as error:
            raise UsageError(_failed(url, str(error) or type(error).__name__)) from error
        except ImportError as error:  # for SOCKS
            raise UsageError(_NO_PROXY) from error

    async def _follow(self, url: httpx2.URL) -> Fetched:
        for _ in range(_N_REDIRECTS + 1):
            reached = await self._get(url)
            if isinstance(reached, Fetched):
                return reached
            url = reached
        raise UsageError(_failed(str(url), f"it redirects more than {_N_REDIRECTS} times"))

    async def _addresses(self, url: httpx2.URL, *, is_proxied: bool) -> list[str]:
        """Return the checked addresses to connect to; none where a proxy connects.

        A proxy resolves the name itself; an address found here is checked even so.
        """
        host = host_of(url)
        nowhere = _failed(str(url), f"{host} has no address")
        try:
            addresses = await self._resolve(host, url.port or 0)
        except (OSError, UnicodeError) as error:
            if is_proxied and not is_internal(host):
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
        return [] if is_proxied and not private else addresses[:_N_ADDRESSES]

    async def _get(self, url: httpx2.URL) -> Fetched | httpx2.URL:
        """Return the answer, or the target of its redirect."""
        proxy = await asyncio.to_thread(_proxy_for, url)  # it may ask the system
        addresses = await self._addresses(url, is_proxied=proxy is not None)
        target = httpcore2.URL(
            scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
        )
        timeout = httpx2.Timeout(self._timeout_s, connect=_CONNECT_TIMEOUT_S).as_dict()
        extensions = {"timeout": timeout, "sni_hostname": host_of(url).rstrip(".")}
        async with (
            httpcore2.AsyncConnectionPool(
                ssl_context=_ssl_context(),
                proxy=None if addresses else proxy,
                network_backend=_Sockets(addresses) if addresses else None,
            ) as pool,
            pool.stream("GET", target, headers=_HEADERS, extensions=extensions) as got,
        ):
            response = httpx2.Response(
                got.status,
                headers=got.headers,
                stream=cast("httpx2.AsyncByteStream", got.stream),
                request=httpx2.Request("GET", url),
                extensions=got.extensions,
            )
            if response.has_redirect_location:
                return check_url(str(url.join(response.headers["location"])))
            return await self._read(url, response)

    async def _read(self, url: httpx2.URL, response: httpx2.Response) -> Fetched:
        if not response.is_success:
            status = f"{response.status_code} {response.reason_phrase}".strip()
            raise UsageError(_failed(str(url), f"the site answers {status}"))
        content_type = response.headers.get("content-type", "").strip().lower()
        kind = content_type.partition(";")[0].strip()
        if kind and not kind.startswith(_READABLE) and not kind.endswith(("+json", "+xml")):
            raise UsageError(f"`{shortened(str(url))}` is {kind}, which cannot be read as text")
        bound(response, self._n_bytes, unzips=True)
        return Fetched(str(url), content_type, await response.aread())


class _Sockets(httpcore2.AnyIOBackend):
    """Connects to one of the checked addresses, whatever the name is now."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses

    async def connect_tcp(
        self, host: str, port: int, *args: Any, **options: Any
    ) -> httpcore2.AsyncNetworkStream:
        *others, last = self._addresses
        for address in others:
            with contextlib.suppress(httpcore2.ConnectError, httpcore2.ConnectTimeout):
                return await super().connect_tcp(address, port, *args, **options)
        return await super().connect_tcp(last, port, *args, **options)


@functools.cache
def _ssl_context() -> ssl.SSLContext:
    """PERF: it takes 20 ms to read the certificates."""
    return httpx2.create_ssl_context()


def _proxy_for(url: httpx2.URL) -> httpcore2.Proxy | None:
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(host_of(url)):
        return None
    try:
        parsed = httpx2.Proxy(proxy if "://" in proxy else f"http://{proxy}")
    except ValueError as error:  # it may hold a password
        raise UsageError(_NO_PROXY) from error
    return httpcore2.Proxy(str(parsed.url), parsed.raw_auth)


def _failed(url: str, why: str) -> str:
    return f"Error fetching URL `{shortened(url)}`: {shortened(why)}"
