"""The tools as a model and a front end see them: declarations, wrong calls, cursors, memory."""

from pathlib import Path
from typing import Any

import pytest
from openai_harmony import ToolNamespaceConfig

from gptoss_local.base.settings import Settings
from gptoss_local.talk.tools import Call, Page, ToolSources
from gptoss_local.talk.tools.browser import Browser
from gptoss_local.talk.tools.browser.browser import Stack
from gptoss_local.talk.tools.browser.page import Content, Fetched
from tests.tools.browser.conftest import Model
from tests.tools.browser.site import Site, text


class Words:
    """A fetcher that counts, of pages that say their URL. The tests here begin after it."""

    def __init__(self) -> None:
        self.fetched: list[str] = []

    async def fetch(self, url: str) -> Fetched:
        self.fetched.append(url)
        return Fetched(url, "text/plain", f"this is {url}".encode())


def counting() -> tuple[Model, Words]:
    fetcher: Any = Words()
    return Model(Browser(Settings(), is_on=True, fetcher=fetcher)), fetcher


async def test_what_is_declared() -> None:
    """Harmony declares these itself; its schemas are ours."""
    namespace = ToolNamespaceConfig.browser()
    declared = {f"browser.{tool.name}": tool for tool in namespace.tools}
    searching = Browser(Settings(search="ddgs"))
    tools = {tool.name: tool for tool in await searching.tools()}
    assert set(tools) == set(declared)
    for name, tool in tools.items():
        assert tool.parameters == declared[name].parameters
        assert tool.description == declared[name].description
        function = tool.declaration()["function"]
        assert function == {"name": name, "description": tool.description}
        assert tool.source == "browser"
    assert {name: tool.asks for name, tool in tools.items()} == {
        "browser.search": True,
        "browser.open": True,
        "browser.find": False,
    }


async def test_a_lasting_permission_ends_when_more_is_allowed(tmp_path: Path) -> None:
    async def identities(**settings: Any) -> dict[str, str]:
        on = Settings(enabled_tools="browser", **settings)
        toolbox = ToolSources(on, tmp_path).toolbox()
        assert toolbox.on == {"browser"}
        await toolbox.prepare()
        return {name: tool.identity for name, tool in toolbox.tools.items()}

    public, private = await identities(search="ddgs"), await identities(browser_private=True)
    assert set(public) == {"browser.search", "browser.open", "browser.find"}
    assert set(private) == {"browser.open", "browser.find"}
    assert public["browser.open"] != private["browser.open"]
    own = await identities(search="searxng", searxng_url="http://localhost:8888")
    assert own["browser.search"] != public["browser.search"]
    assert "browser" not in ToolSources(Settings(), tmp_path).toolbox().on


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        ("open", {}, "No pages to access!"),
        ("open", {"cursor": 3}, "No pages to access!"),
        ("open", {"id": 4}, "No pages to access!"),
        ("open", {"id": [1]}, "id must be"),
        ("open", {"id": 1.5}, "`id` should be an integer or a URL"),
        ("open", {"id": float("inf")}, "`id` should be an integer or a URL"),
        ("open", {"cursor": "first"}, "cursor must be a whole number, not 'first'"),
        ("open", {"loc": {}}, "loc must be"),
        ("find", {}, "'pattern' is missing"),
        ("find", {"pattern": ""}, "pattern must be"),
        ("find", {"pattern": "x"}, "No pages to access!"),
        ("search", {"query": "x"}, 'there is no tool "browser.search"'),
    ],
)
async def test_wrong_calls(function: str, arguments: dict[str, Any], expected: str) -> None:
    model, _ = counting()
    answer = await model.call(function, **arguments)
    assert answer.startswith("Error: ")
    assert expected in answer


async def test_calls_as_models_write_them() -> None:
    model, fetcher = counting()
    first = await model.call("open", id="https://a.example/", cursor=None, source="web", top=3)
    assert first.startswith("[0] a.example (https://a.example/)")
    for arguments in ({"cursor": 0.0}, {"cursor": "0"}, {"id": -1}, {"id": "-1"}, {"id": ""}):
        assert "this is https://a.example/" in await model.call("open", **arguments)
    assert (await model.call("open", id=3)).endswith("id `3`. The page has no links.")
    assert len(fetcher.fetched) == 1
    # An error takes no cursor.
    for arguments, said in (
        ({"loc": 99}, "Cannot exceed page maximum of 2"),
        ({"cursor": 9}, "out of range. Available cursor indices: [0 - 5]"),
        ({"cursor": -2}, "out of range"),
    ):
        assert said in await model.call("open", **arguments)
    assert (await model.call("open", id="https://b.example/")).startswith("[6] ")
    await model.toolbox.new_chat()  # which knows nothing of the one before
    assert await model.call("open", cursor=0) == "Error: No pages to access!"
    assert (await model.call("open", id="https://a.example/")).startswith("[0] ")
    assert len(fetcher.fetched) == 3


async def test_what_can_be_cited(site: Site, model: Model) -> None:
    async def pages(function: str, **arguments: Any) -> tuple[Page, ...]:
        await model.toolbox.prepare()
        return (await model.toolbox.run(f"browser.{function}", arguments)).pages

    url = f"{site.url}/code.html"
    assert await pages("open", id=url) == (Page(0, url, "How to sort"),)
    assert await pages("find", pattern="sort") == (
        Page(1, url, "Find results for text: `sort` in `How to sort`"),
    )
    assert await pages("open", id=0) == (Page(2, url, "How to sort"),)
    assert await pages("open", view_source=True) == (Page(3, url, "code.html"),)
    assert await pages("open", cursor=9) == ()


async def test_pages_of_a_stored_chat_are_fetched_when_they_are_used() -> None:
    model, fetcher = counting()
    known = [Page(0, "", "a search"), Page(2, "https://a.example/", "A"), Page(5, "", "another")]
    await model.toolbox.new_chat([*known, Page(4, "https://b.example/", "B")])
    assert fetcher.fetched == []
    assert (await model.call("open", cursor=2)).startswith("[6] a.example (https://a.example/)")
    assert fetcher.fetched == ["https://a.example/"]
    assert "match at L" in await model.call("find", pattern="this", cursor=4)
    for gone in (0, 5):
        answer = await model.call("open", cursor=gone, id=1)
        assert answer == "Error: These results are not kept any more. Search again."
    assert "out of range" in await model.call("open", cursor=3)
    assert fetcher.fetched == ["https://a.example/", "https://b.example/"]


async def ask(model: Model, function: str, **arguments: Any) -> tuple[Call, bool]:
    """Return a call, and whether the user is asked about it."""
    await model.toolbox.prepare()
    call = model.toolbox.call(f"browser.{function}", arguments)
    return call, call.tool is not None and model.toolbox.needs_consent(call.tool)


async def test_the_address_of_a_link_is_asked_about_and_then_opened(
    site: Site, model: Model
) -> None:
    page = '<p><a href="/good">good</a> <a href="https://xn--bcher-kva.example/#a">B</a></p>'
    other = '<p><a href="/bad">bad</a></p>'
    site.answers |= {f"/{n}": (200, {"Content-Type": "text/html"}, words.encode())
                     for n, words in (("page", page), ("other", other))}  # fmt: skip
    site.answers |= {"/good": text("good")}
    await model.call("open", id=f"{site.url}/page")
    call, is_asked = await ask(model, "open", id=0, loc=None, source="web")
    assert is_asked
    assert call.arguments == {"id": f"{site.url}/good", "cursor": 0}
    await model.call("open", id=f"{site.url}/other")
    assert site.paths == ["/page", "/other"]  # nothing goes out before the answer
    assert "good" in (await model.toolbox.run_call(call)).text
    assert site.paths == ["/page", "/other", "/good"]
    call, _ = await ask(model, "open", id="1", cursor=0)
    assert call.arguments == {"id": "https://xn--bcher-kva.example/", "cursor": 0}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a.example/x y", "https://a.example/x%20y"),
        ("https://\u0430pple.example/#top", "https://xn--pple-43d.example/"),
        ("https://a.example/\u202egpj.\u05d0", "https://a.example/%E2%80%AEgpj.%D7%90"),
        ("view-source:HTTPS://A.example/", "view-source:https://a.example/"),
    ],
)
async def test_an_address_is_shown_as_it_is_sent(given: str, shown: str) -> None:
    model, fetcher = counting()
    call, is_asked = await ask(model, "open", id=given)
    assert is_asked
    assert call.arguments == {"id": shown}
    await model.toolbox.run_call(call)
    assert fetcher.fetched == [shown.removeprefix("view-source:")]


async def test_what_cannot_be_opened_is_not_asked_about() -> None:
    model, fetcher = counting()
    for given in ("https://a.example@b.example/", "file:///etc/passwd", "https://a.example:22/"):
        call, is_asked = await ask(model, "open", id=given)
        assert call.tool is None
        assert not is_asked
        assert (await model.toolbox.run_call(call)).is_error
    assert fetcher.fetched == []


async def test_pages_of_a_stored_chat_are_fetched_after_a_question() -> None:
    model, fetcher = counting()
    await model.toolbox.new_chat([Page(0, "https://a.example/?q=x", "A")])
    call, is_asked = await ask(model, "find", pattern="this")
    assert is_asked
    assert call.arguments == {"pattern": "this", "id": "https://a.example/?q=x"}
    call, is_asked = await ask(model, "open", loc=3)
    assert is_asked
    assert call.arguments == {"id": "https://a.example/?q=x", "cursor": 0, "loc": 3}
    call, is_asked = await ask(model, "open", id=0)  # which address that is nobody knows
    assert not is_asked
    said = (await model.toolbox.run_call(call)).text
    assert said == "Error: Page `0` is not kept any more. Open it again first."
    assert fetcher.fetched == []
    call, _ = await ask(model, "find", pattern="this")
    assert "match at L" in (await model.toolbox.run_call(call)).text
    call, is_asked = await ask(model, "find", pattern="is", cursor=0, id="https://b.example/")
    assert "id" not in call.arguments
    await model.toolbox.run_call(call)
    assert fetcher.fetched == ["https://a.example/?q=x"]


def content(n_characters: int) -> Content:
    return Content(url="https://a.example/", title="T", text="x" * n_characters)


def test_memory_is_bounded() -> None:
    stack = Stack(n_pages=3, n_characters=100)
    for n in range(5):
        stack.keep(f"{n}", content(10))
    assert [n for n in range(5) if stack.content(f"{n}")] == [2, 3, 4]
    stack.content("2")
    stack.keep("5", content(10))
    assert [n for n in range(6) if stack.content(f"{n}")] == [2, 4, 5]
    stack.keep("6", content(95))
    assert [n for n in range(7) if stack.content(f"{n}")] == [6]
    stack.keep("7", content(1000))  # a page is never too large for the call that opened it
    assert stack.content("7")
    stack.keep("7", content(10))
    stack.keep("8", content(90))
    assert stack.content("7") and stack.content("8")  # noqa: PT018


async def test_a_page_that_was_dropped_is_fetched_again(site: Site, model: Model) -> None:
    site.answers |= {f"/{n}": text(f"page {n}") for n in range(3)}
    model.browser._stack = Stack(n_pages=2)
    for n in range(3):
        await model.call("open", id=f"{site.url}/{n}")
    assert "page 0" in await model.call("open", cursor=0)
    assert site.paths == ["/0", "/1", "/2", "/0"]
