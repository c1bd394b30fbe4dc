"""Search engines: requests, answers and failures.

The answers have the form of those in the APIs' documentation.
"""

import json
import logging
from typing import Any

import pytest

from gptoss_local.base.errors import ToolError, UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.talk.tools.browser import Browser
from gptoss_local.talk.tools.browser.searching import SearchEngine
from tests.tools.browser.conftest import Model
from tests.tools.browser.site import Site, redirect, text

KEY = "tvly-s3cret"
LINK, TALL = "https://a.example/tall", "The tallest is 133 m"
SEARXNG = {
    "query": "lighthouses",
    "results": [
        {
            "url": LINK,
            "title": "Tall † ones",
            "content": "The tallest\n is 【1†L3】 133 m",
            "score": 4,
        },
        {"url": LINK, "title": "Again", "content": ""},
        {"url": "ftp://b.example/", "title": "Not of the web", "content": "x"},
        {"url": "https://c.example/", "title": "", "content": None},
    ],
    "unresponsive_engines": [["google", "timeout"]],
}
EXA = {
    "requestId": "b5947044",
    "results": [
        {"id": LINK, "title": "Tall ones", "url": LINK, "author": None, "text": TALL},
        {"id": "2", "title": None, "url": "https://c.example/"},
    ],
    "costDollars": {"total": 0.005},
}
TAVILY = {
    "answer": None,
    "results": [{"title": "Tall ones", "url": LINK, "content": TALL, "raw_content": None}],
    "response_time": "1.2",
}


def engine(name: str, site: Site, **settings: Any) -> SearchEngine:
    settings = {"search": name, "searxng_url": f"{site.url}/"} | settings
    return SearchEngine(Settings(**settings), exa_url=site.url, tavily_url=site.url, timeout_s=20)


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EXA_API_KEY", raising=False)
    monkeypatch.delenv("TAVILY_API_KEY", raising=False)


async def test_searxng(site: Site) -> None:
    site.answers["/search"] = text(json.dumps(SEARXNG), "application/json")
    browser = Browser(Settings(), is_on=True, engine=engine("searxng", site))
    model = Model(browser)
    assert await model.call("search", query="light & houses") == (
        "[0] light & houses\n**viewing lines [0 - 5] of 5**\n\n"
        "L0: \nL1: URL: \nL2: # Search Results\nL3: \n"
        "L4:   * 【0†Tall ‡ ones†a.example】 The tallest is 〖1†L3〗 133 m\n"
        "L5:   * 【1†c.example†c.example】"
    )
    ((method, path, headers, _),) = site.requests
    assert (method, path) == ("GET", "/search?q=light+%26+houses&format=json")
    assert "authorization" not in headers
    assert f"searches by {site.url}" in browser.about


async def test_exa(site: Site) -> None:
    site.answers["/search"] = text(json.dumps(EXA), "application/json")
    content = await engine("exa", site, search_key=KEY).search("lighthouses", 7)
    assert content.links == [LINK, "https://c.example/"]
    assert "【0†Tall ones†a.example】 The tallest is 133 m" in content.text
    ((method, _, headers, body),) = site.requests
    asked = json.loads(body)
    assert (method, headers["x-api-key"]) == ("POST", KEY)
    assert (asked["query"], asked["numResults"]) == ("lighthouses", 7)


async def test_tavily_with_a_key_of_the_environment(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.answers["/search"] = text(json.dumps(TAVILY), "application/json")
    with pytest.raises(ToolError, match="Tavily needs a key: set search_key, or TAVILY_API_KEY"):
        await engine("tavily", site).search("x", 3)
    monkeypatch.setenv("TAVILY_API_KEY", KEY)
    content = await engine("tavily", site).search("lighthouses", 3)
    assert content.links == [LINK]
    ((_, _, headers, body),) = site.requests
    assert headers["authorization"] == f"Bearer {KEY}"
    assert json.loads(body) == {"query": "lighthouses", "max_results": 3}


@pytest.mark.parametrize("name", ["searxng", "exa", "tavily"])
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((401, {}, f"bad key {KEY}".encode()), "refuses the key"),
        ((403, {}, f"bad key {KEY}".encode()), "refuses the key|search.formats"),
        ((429, {}, b""), "fewer searches"),
        ((500, {}, f"{KEY} crashed us".encode()), "fails with status 500"),
        (redirect("http://elsewhere.example/"), "fails with status 302"),
        (text("<html>no JSON"), "something else than results"),
        (text("[]"), "something else than results"),
        (text('{"results": [{"url": 3}]}'), "something else than results"),
        (text('{"results": 3}'), "something else than results"),
        (text(b'{"results": [], "x": "' + b"x" * 2_100_000), "more than 2 MiB"),
    ],
)
async def test_engines_that_fail(
    name: str, answer: Any, why: str, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    site.answers["/search"] = answer
    with pytest.raises(ToolError, match=why) as raised:
        await engine(name, site, search_key=KEY).search("x", 3)
    assert KEY not in f"{raised.value.message} {raised.value.hint}"
    assert KEY not in caplog.text
    assert len(site.requests) == 1


async def test_no_results_are_something_to_correct(site: Site) -> None:
    site.answers["/search"] = text('{"results": []}')
    with pytest.raises(UsageError, match="No results for `qwx`"):
        await engine("searxng", site).search("qwx", 3)


async def test_an_engine_that_hangs_or_is_not_there(site: Site) -> None:
    settings = Settings(search="exa", search_key=KEY)
    slow = SearchEngine(settings, exa_url=f"{site.url}/slow", timeout_s=0.4)
    with pytest.raises(ToolError, match="does not answer in"):
        await slow.search("x", 3)
    gone = SearchEngine(Settings(search="searxng", searxng_url="http://127.0.0.1:9"))
    with pytest.raises(ToolError, match="cannot be reached"):
        await gone.search("x", 3)


async def test_a_proxy_is_not_asked_for_an_engine_of_this_machine(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    site.answers["/search"] = text(json.dumps(SEARXNG))
    assert (await engine("searxng", site).search("x", 3)).links


async def test_a_key_that_no_header_can_have(site: Site) -> None:
    with pytest.raises(ToolError, match="has a character") as raised:
        await engine("exa", site, search_key="k\nX-Evil: é").search("x", 3)
    assert "Evil" not in raised.value.message
    assert not site.requests


async def test_results_are_bounded(site: Site) -> None:
    many = [
        {"url": f"https://a.example/{n}", "title": "t" * 999, "content": "w" * 9999}
        for n in range(100)
    ]
    site.answers["/search"] = text(json.dumps({"results": many}))
    model = Model(Browser(Settings(), is_on=True, engine=engine("searxng", site)))
    await model.call("search", query="x", topn=400)
    page = await model.call("open", num_lines=100_000)
    assert page.count("【") == 20
    assert "w" * 401 not in page.replace("\n", "")
    assert "`query`" not in await model.call("search", query="x", topn="3")


async def test_links_in_results_are_not_trusted(site: Site) -> None:
    """The engine may be on this machine; its results may not."""
    found = {"results": [{"url": f"{site.url}/code.html", "title": "t", "content": "c"}]}
    site.answers["/search"] = text(json.dumps(found))
    model = Model(Browser(Settings(), is_on=True, engine=engine("searxng", site)))
    await model.call("search", query="x")
    assert "not an address of the public internet" in await model.call("open", id=0)


async def test_metasearch_without_a_key(monkeypatch: pytest.MonkeyPatch, site: Site) -> None:
    """By a stub of one of the library's engines, as there is no internet here."""
    from ddgs import ddgs as library
    from ddgs.engines.mojeek import Mojeek
    from ddgs.exceptions import DDGSException

    pages: list[str | None] = [
        f"<ul class='results-standard'><li><h2><a href='{LINK}'>Tall ones</a></h2>"
        "<p class='s'>The tallest lighthouses are high</p></li></ul>",
        None,
    ]

    def request(*_: object, **__: object) -> str | None:
        if not pages:
            raise DDGSException("202 Ratelimit")
        return pages.pop(0)

    monkeypatch.setattr(library, "ENGINES", {"text": {"mojeek": Mojeek}})
    monkeypatch.setattr(Mojeek, "request", request)
    ddgs = engine("ddgs", site)
    content = await ddgs.search("lighthouses", 5)
    assert content.links == [LINK]
    assert "【0†Tall ones†a.example】 The tallest lighthouses are high" in content.text
    with pytest.raises(UsageError, match="No results"):
        await ddgs.search("lighthouses", 5)
    with pytest.raises(ToolError, match="Ratelimit"):
        await ddgs.search("lighthouses", 5)
