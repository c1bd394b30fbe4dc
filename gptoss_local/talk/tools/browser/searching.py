"""Asks search engines, and lays their results out as a page."""

import asyncio
import ipaddress
import os
from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2
import msgspec

from gptoss_local.base.bounded_answers import UNCOMPRESSED, bound
from gptoss_local.base.errors import ToolError, UsageError
from gptoss_local.base.settings import SEARCH_KEYS, Settings
from gptoss_local.talk.tools.browser.addresses import is_internal, is_public
from gptoss_local.talk.tools.browser.html_text import clean, domain_of
from gptoss_local.talk.tools.browser.page import Content

MAX_RESULTS = 20
EXA_URL, TAVILY_URL = "https://api.exa.ai", "https://api.tavily.com"
_ENGINES = {"searxng": "", "exa": "Exa", "tavily": "Tavily", "ddgs": "public search engines"}
_TIMEOUT_S = 20.0
_MAX_BYTES = 2 * 2**20
_N_SUMMARY = 400  # characters


class SearchResult(NamedTuple):
    url: str
    title: str
    summary: str


class _Fields(msgspec.Struct):
    url: str | None = None
    href: str | None = None
    title: str | None = None
    content: str | None = None
    text: str | None = None
    body: str | None = None


class _Answer(msgspec.Struct):
    results: list[_Fields]


class SearchEngine:
    """The engine that the settings name. Raises UsageError if it is unknown or has no address."""

    def __init__(
        self,
        settings: Settings,
        *,
        exa_url: str = EXA_URL,
        tavily_url: str = TAVILY_URL,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self.name = settings.search
        self._url = {
            "searxng": settings.searxng_url.rstrip("/"),
            "exa": exa_url,
            "tavily": tavily_url,
        }.get(self.name, "")
        self._key = settings.search_key
        self._timeout_s = timeout_s
        if self.name not in _ENGINES:
            hint = f"Use {', '.join(_ENGINES)}."
            raise UsageError(f"search cannot be '{self.name}'", hint=hint)
        if self.name == "searxng" and not self._url.startswith(("http://", "https://")):
            hint = "For example searxng_url = 'http://localhost:8888'."
            raise UsageError("search = 'searxng' needs searxng_url", hint=hint)

    @property
    def about(self) -> str:
        return _ENGINES[self.name] or self._url

    async def search(self, query: str, n_results: int) -> Content:
        try:
            async with asyncio.timeout(self._timeout_s):
                found = await self._ask(query, n_results)
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise ToolError(f"{self.about} does not answer in {self._timeout_s:g} s") from error
        except httpx2.DecodingError as error:
            raise ToolError(f"{self.about} gives an answer that is not read: {error}") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            why = str(error) or type(error).__name__
            raise ToolError(f"{self.about} cannot be reached: {why}") from error
        results = list(_usable(found))[:n_results]
        if not results:
            raise UsageError(f"No results for `{query}`. Try other words.")
        return results_page(query, results)

    async def _ask(self, query: str, n_results: int) -> list[_Fields]:
        match self.name:
            case "ddgs":
                return await asyncio.to_thread(_ask_ddgs, query, n_results)
            case "searxng":
                return await self._fetch("GET", params={"q": query, "format": "json"})
            case "exa":
                text = {"text": {"maxCharacters": _N_SUMMARY}}
                body = {"query": query, "numResults": n_results, "contents": text}
                return await self._fetch("POST", json=body, headers={"x-api-key": self._secret()})
        body = {"query": query, "max_results": n_results}
        headers = {"Authorization": f"Bearer {self._secret()}"}
        return await self._fetch("POST", json=body, headers=headers)

    def _secret(self) -> str:
        variable = SEARCH_KEYS[self.name]
        key = self._key or os.environ.get(variable, "").strip()
        if not key:
            raise ToolError(f"{self.about} needs a key: set search_key, or {variable}")
        if not (key.isascii() and key.isprintable()):
            raise ToolError(f"the key of {self.about} has a character that no key has")
        return key

    async def _fetch(self, method: str, **request: Any) -> list[_Fields]:
        async with (
            httpx2.AsyncClient(
                headers=UNCOMPRESSED,
                timeout=self._timeout_s,
                trust_env=not _is_private_host(self._url),
            ) as client,
            client.stream(method, f"{self._url}/search", **request) as response,
        ):
            self._check_status(response.status_code)
            bound(response, _MAX_BYTES)
            data = await response.aread()
        try:
            return msgspec.json.decode(data, type=_Answer).results
        except msgspec.DecodeError as error:
            raise ToolError(f"{self.about} answers with something else than results") from error

    def _check_status(self, status: int) -> None:
        """Raise for an answer that is not 200. Its text may repeat the key, so it is not quoted."""
        if status == 200:
            return
        if status == 403 and self.name == "searxng":
            hint = "Add json to search.formats in SearXNG's settings.yml."
            raise ToolError(f"{self.about} does not answer in JSON (403). {hint}")
        if status in (401, 403):
            raise ToolError(f"{self.about} refuses the key ({status})")
        if status == 429:
            raise ToolError(f"{self.about} asks for fewer searches (429); wait a while")
        raise ToolError(f"{self.about} fails with status {status}")


def _ask_ddgs(query: str, n_results: int) -> list[_Fields]:
    from ddgs import DDGS
    from ddgs.exceptions import DDGSException

    try:
        found = DDGS(timeout=10).text(query, max_results=n_results)
    except DDGSException as error:
        if "No results" in str(error):
            return []
        raise ToolError(f"the search engines do not answer: {str(error)[:300]}") from error
    try:
        return msgspec.convert(found, list[_Fields])
    except msgspec.ValidationError as error:
        raise ToolError("the search engines answer with something else than results") from error


def _usable(found: Iterable[_Fields]) -> Iterable[SearchResult]:
    seen = set()
    for each in found:
        url = (each.url or each.href or "").strip()
        if url.startswith(("http://", "https://")) and domain_of(url) and url not in seen:
            seen.add(url)
            summary = clean(each.content or each.text or each.body or "")[:_N_SUMMARY]
            title = clean(each.title or "")[:_N_SUMMARY]
            yield SearchResult(url, title or domain_of(url), summary)


def results_page(query: str, results: Iterable[SearchResult]) -> Content:
    """Source: `ExaBackend.search` of gpt_oss.tools.simple_browser.backend."""
    lines: list[str] = []
    ids: dict[str, int] = {}
    for result in results:
        title = clean(result.title).replace("†", "‡")
        link_id = ids.setdefault(result.url, len(ids))
        link = f"【{link_id}†{title}†{clean(domain_of(result.url))}】"
        lines.append(f"  * {link} {clean(result.summary)}".rstrip())
    text = "\n".join(["", "URL: ", "# Search Results", "", *lines])
    return Content(url="", title=clean(query), text=text, links=list(ids))


def _is_private_host(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return is_internal(host)
    return not is_public(host)
