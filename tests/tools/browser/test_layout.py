"""The layout of pages, compared with the reference implementation.

The texts in `reference/` were made once by running `gpt_oss.tools.simple_browser` of the package
gpt-oss 0.0.9 on the pages in `pages/`, with `html2text` 2025.4.15 and the o200k vocabulary:
`NAME.txt` is the whole page as it is shown (`open` with a large `num_lines`), `NAME.json` where a
view without `num_lines` ends, the URLs of links, and the tokens of `NAME.txt`. `steps.json` is a
conversation.

Compared are the header, line numbers, wrapping, links and their ids. Spaces at the ends of lines
are not, as html2text leaves some where tags end. On pages with menus the order differs: here the
part that readability takes for the main text comes first, and the rest after it.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.talk.tools.browser import Browser
from gptoss_local.talk.tools.browser.page import Content, Fetched
from gptoss_local.talk.tools.browser.reading import read_content
from gptoss_local.talk.tools.browser.searching import SearchEngine, SearchResult, results_page
from gptoss_local.talk.tools.browser.view import show, wrap_lines
from tests.tools.browser.conftest import Model
from tests.tools.browser.site import PAGES

pytestmark = pytest.mark.quick

REFERENCE = Path(__file__).parent / "reference"
NAMES = sorted(path.stem for path in PAGES.glob("*.html"))
WITH_MENUS = ("article",)
SITE = "https://site.example/dir/"


def page(name: str) -> Content:
    body = (PAGES / f"{name}.html").read_bytes()
    return read_content(Fetched(f"{SITE}{name}.html", "text/html", body), is_source=False)


def reference(name: str) -> str:
    return (REFERENCE / f"{name}.txt").read_text(encoding="utf-8")


def stripped(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip("\n").split("\n")]


def test_all_pages_are_compared() -> None:
    assert len(NAMES) >= 8
    assert {path.stem for path in REFERENCE.glob("*.txt")} == set(NAMES)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITH_MENUS])
def test_a_page_looks_as_the_reference_shows_it(name: str) -> None:
    assert stripped(show(page(name), 0, n_lines=100_000)) == stripped(reference(name))


@pytest.mark.parametrize("name", NAMES)
def test_links_have_the_ids_of_the_reference(name: str) -> None:
    known = json.loads((REFERENCE / f"{name}.json").read_text(encoding="utf-8"))
    assert page(name).links == known["links"]


def test_the_main_text_comes_before_menus() -> None:
    """The same lines as in the reference, in another order."""
    numbers = re.compile(r"^L\d+: ", re.MULTILINE)
    ours = numbers.sub("", show(page("article"), 0, n_lines=1000)).split("\n")[3:]
    theirs = numbers.sub("", reference("article")).split("\n")[3:]
    begin = theirs.index(next(line for line in theirs if line.startswith("# The lighthouse")))
    end = next(n for n, line in enumerate(theirs) if line.startswith("See the top"))
    main = stripped("\n".join(theirs[begin : end + 1]))
    assert stripped("\n".join(ours))[: len(main) + 2] == ["", f"URL: {SITE}article.html", *main]
    rest = stripped("\n".join(ours))[len(main) + 2 :]
    assert rest[:3] == ["", "* * *", ""]
    assert sorted(filter(None, rest[3:])) == sorted(
        filter(None, stripped("\n".join([*theirs[2:begin], *theirs[end + 1 :]])))
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_view_ends_about_where_the_reference_ends_it(name: str) -> None:
    known = json.loads((REFERENCE / f"{name}.json").read_text(encoding="utf-8"))
    end, last = map(int, re.findall(r"- (\d+)\] of (\d+)", known["default_view_ends"])[0])
    found = re.search(r"- (\d+)\] of (\d+)", show(page(name), 0))
    assert found is not None
    if end == last:
        assert found[1] == found[2]
    else:
        assert abs(int(found[1]) - end) <= 0.25 * end


class Pages:
    """A fetcher of the saved pages: their real layout is compared here, not HTTP."""

    async def fetch(self, url: str) -> Fetched:
        path = PAGES / url.rpartition("/")[2]
        if not path.is_file():
            raise UsageError(f"Error fetching URL `{url}`: not found")
        return Fetched(url, "text/html", path.read_bytes())


class Results:
    """An engine with the results that the reference got."""

    about = "a test"

    async def search(self, query: str, n_results: int) -> Content:
        first = SearchResult("https://a.example/1", "First † result", "A summary of two lines")
        second = SearchResult("https://b.example:8443/x?y=1", "Second", "Another one")
        again = SearchResult("https://a.example/1", "First again", "")
        return results_page(query, [first, second, again])


async def test_a_conversation_has_the_cursors_and_messages_of_the_reference() -> None:
    """Except for the hint that an error adds."""
    steps = json.loads((REFERENCE / "steps.json").read_text(encoding="utf-8"))
    fetcher: Any = Pages()
    engine: Any = Results()
    model = Model(Browser(Settings(), is_on=True, fetcher=fetcher, engine=engine))
    for step in steps:
        answer = await model.call(step["function"], **step["arguments"])
        expected = step["result"]
        if not expected.startswith("["):
            beginning = expected.partition(" on search")[0].rstrip(".")
            assert answer.startswith(f"Error: {beginning}"), step
        else:
            assert stripped(answer) == stripped(expected), step


def test_results_of_a_search_are_links() -> None:
    results = [SearchResult("https://a.example/【1†x】", "T † 【2†y】", "S 【3†L1】")]
    text = results_page("q 【4†L1】", results).text
    assert text.endswith("  * 【0†T ‡ 〖2‡y〗†a.example】 S 〖3†L1〗")


def test_lines_are_wrapped_in_time() -> None:
    lines = wrap_lines("x" * 2_000_000)
    assert len(lines) == 25_000
    assert wrap_lines("x" * 161) == ["x" * 80, "x" * 80, "x"]
    words = "word " * 40_000
    assert "".join(wrap_lines(words)) == words
    assert max(map(len, wrap_lines(words))) == 80


def test_a_view_never_exceeds_what_a_result_may_have() -> None:
    """Otherwise the toolbox would cut lines out of its middle."""
    long = Content(url="https://a.example/", title="T", text="\n".join(["word " * 16] * 2000))
    text = show(long, 3, loc=7, n_lines=1500)
    assert len(text) < 32 * 1024
    found = re.search(r"viewing lines \[7 - (\d+)\] of 1999", text)
    assert found is not None
    assert text.split("\n")[-1].startswith(f"L{found[1]}: ")


def test_an_engine_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be 'google'") as raised:
        SearchEngine(Settings(search="google"))
    assert raised.value.hint == "Use searxng, exa, tavily, ddgs."
    with pytest.raises(UsageError, match="needs searxng_url"):
        Browser(Settings(search="searxng"))
