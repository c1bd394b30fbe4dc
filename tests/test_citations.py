"""Citations in answers, and the links that are made of them."""

import re
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from gptoss_local.talk.citations import Citation, find_citations, linked
from gptoss_local.talk.tools import Page

pytestmark = pytest.mark.quick

A, B = Page(1, "https://a.example/x", "A"), Page(2, "https://b.example:8443/", "B")
PAGES = [A, B, Page(3, "", "results"), Page(4, "javascript:alert(1)", "no page")]
LINK_A, LINK_B = "[a.example ↗](https://a.example/x)", "[b.example:8443 ↗](https://b.example:8443/)"


@pytest.mark.parametrize(
    ("citation", "cursor"),
    [
        ("【1†L3-L7】", 1),
        ("【1†L3】", 1),
        ("【1†L3-7】", 1),
        ("【1†L3–L7】", 1),
        ("【1†L9-L7】", 1),
        ("【1†L3, L7】", 1),
        ("【1†source】", 1),
        ("【1†】", 1),
        ("【12:0†source】", 12),
        ("【1†L3-L7†a.example】", 1),
    ],
)
def test_what_models_write(citation: str, cursor: int) -> None:
    found = find_citations(f"é {citation}.")
    assert found == [Citation(2, 2 + len(citation), cursor)]


@pytest.mark.parametrize(
    "text",
    [
        *("", "【1】", "【†L3】", "【a†L3】", "【1†a link†a.example】", "【1†L3", "【1†L3-L7"),
        *("【1†\nL3】", "【1234567†L3】", "[1†L3]", "`【1†L3】`", "``a ` 【1†L3】``"),
        *("```\n【1†L3】\n```", "~~~\n【1†L3】", "- x\n  ```py\n  【1†L3】\n  ```"),
        *("> ```\n> 【1†L3】\n", "text\n\n    【1†L3】\n", "a `span\nover 【1†L3】 lines`"),
    ],
)
def test_what_is_no_citation(text: str) -> None:
    assert find_citations(text) == []
    assert linked(text, PAGES) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("So it is【1†L3-L7】.", f"So it is {LINK_A}."),
        ("**【1】**", "**【1】**"),
        ("**【1†L3】**", f"**{LINK_A}**"),
        ("a *【1†L3】*", f"a *{LINK_A}*"),
        ("**so**【1†L3】", f"**so** {LINK_A}"),
        ("【1†L3】", LINK_A),
        ("a 【1†L3-L7】【2†L1-L2】 b", f"a {LINK_A} {LINK_B} b"),
        ("(【2†source】)", f"({LINK_B})"),
        ("x【3†L1】 【4†L1】 【9†L1】 y", "x【3†L1】 【4†L1】 【9†L1】 y"),
        ("【9†L1】【1†L1】", f"【9†L1】 {LINK_A}"),
        ("`【1†L3】` 【1†L3】 【1†L", f"`【1†L3】` {LINK_A} 【1†L"),
        ("a ` tick 【1†L3】", f"a ` tick {LINK_A}"),
        (r"a \`【1†L3】\` b", rf"a \` {LINK_A}\` b"),
        ("```\n【1†L3】\n```\n\n【1†L3】\n", f"```\n【1†L3】\n```\n\n{LINK_A}\n"),
        ("- a\n\n  b 【1†L3】\n", f"- a\n\n  b {LINK_A}\n"),
        ("| a |\n|---|\n| 【1†L3】 |\n", f"| a |\n|---|\n| {LINK_A} |\n"),
        ("a\r\n```\r\n【1†L3】\r\n```\r\n【2†】", f"a\r\n```\r\n【1†L3】\r\n```\r\n{LINK_B}"),
        ("# Title 【1†L3】\n> quote 【2†L1】", f"# Title {LINK_A}\n> quote {LINK_B}"),
    ],
)
def test_links(text: str, expected: str) -> None:
    assert linked(text, PAGES) == expected


@pytest.mark.parametrize(
    "url",
    [
        "https://a.example/a_(b)/c d?q=\"x\"&y='z'#<f>",
        "https://a.example/)](javascript:alert(1)",
        "https://a.example/?a=1&copy;=2&amp;b",
        "https://a.example/ü/例?x=[1]*_`|\\",
        "https://a.example/%20%28",
        "http://[2001:db8::1]:8080/",
        "https://ex_am*ple*.example/",
        "https://user:pw@a.example/",
        "https://a.example/\n\n# Title",
    ],
)
def test_urls_stay_whole_in_markdown(url: str) -> None:
    made = linked("**So** 【1†L3】 *it* is", [Page(1, url, "T")])
    (inline,) = [token for token in MarkdownIt().parse(made) if token.type == "inline"]
    links = [child for child in inline.children or [] if child.type == "link_open"]
    assert len(links) == 1
    href = str(links[0].attrs["href"])
    assert href.startswith(("https://", "http://"))
    assert unquote(href) == unquote(url)
    assert inline.content.startswith("**So** [")
    assert inline.content.endswith(") *it* is")


@pytest.mark.parametrize(
    "url", ["", "ftp://a.example/", "data:text/html,x", "https://", "http://[x"]
)
def test_only_pages_of_the_web_are_linked(url: str) -> None:
    assert linked("a 【1†L3】", [Page(1, url, "T")]) == "a 【1†L3】"


def test_the_last_page_of_a_cursor_counts() -> None:
    pages = [A, Page(1, "https://new.example/", "new")]
    assert linked("【1†】", pages) == "[new.example ↗](https://new.example/)"


PIECES = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        (
            *("【1†L3-L7】", "【2†L1】", "【7†L1】", "【1†source】", "【", "】", "†", "`", "```"),
            *("~~~", "\n", "\r\n", "    ", "- ", "> ", "\\", "L3", "(", "[", "1", "| "),
        )
    ),
)


@given(st.lists(PIECES, max_size=25).map("".join), st.integers(0, 200))
def test_no_character_is_lost_wherever_a_stream_is_cut(text: str, cut: int) -> None:
    """Without its links, the result equals the text without its citations."""
    text = text[:cut]
    made = linked(text, PAGES)
    citations = [each for each in find_citations(text) if each.cursor in (1, 2)]
    left, end = "", 0
    for citation in citations:
        left += text[end : citation.start] + "\0"
        end = citation.end
    left += text[end:]
    without = made.replace(LINK_A, "\0").replace(LINK_B, "\0")
    assert without.count("\0") == left.count("\0")
    assert re.sub(r" ?\0", "\0", without) == re.sub(r" ?\0", "\0", left)
