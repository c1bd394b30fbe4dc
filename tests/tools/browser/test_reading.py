"""The text of pages that others write: kinds of markup, and markup that is none."""

import re

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gptoss_local.talk.documents import UnreadableFile
from gptoss_local.talk.tools.browser.page import Content, Fetched
from gptoss_local.talk.tools.browser.reading import read_content


def content(html: str) -> Content:
    page = Fetched("https://a.example/d/", "text/html", html.encode("utf-8", "surrogatepass"))
    return read_content(page, is_source=False)


def text(html: str) -> str:
    return content(html).text.removeprefix("\nURL: https://a.example/d/\n")


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<pre>a<br>b<div>c</div>d\n\n  e</pre>", "a\n    b\n    c\n    d\n\n      e"),
        ("x<pre>\ncode</pre>y", "x\n\n    code\n\ny"),
        ("<blockquote><p>a<br>b</p><pre>x</pre></blockquote>z", "> a\n> b\n\n>     x\n\nz"),
        ("<ol start=3><li><p>one<li>two<ul><li>x</ul></ol>p", "3. one\n\n  4. two\n    * x\n\np"),
        ("<table><tr><td>a b</td><td>c</td></tr><tr><td>d<td>e</table>", "a b c\nd e"),
        ("<p>a <code> x </code>b<code></code>c <code> </code>d", "a `x` bc d"),
        ("<p><code>`</code>. <code>a<br>b</code>", "```. a\nb"),
        ("<h2> <a href=/x>Head</a> </h2>text", "## 【0†Head】\n\ntext"),
        ("<p>x<sup>2</sup>, y<sub>i</sub>, z<sup>a b</sup>", "x^{2}, y_{i}, za b"),
        ("<p>a<b>b</b> <i>c</i>d&nbsp;e", "ab cd e"),
        ("a<p>b</p>c<section>d</section>e", "a\n\nb\n\nc\n\nd\n\ne"),
        ("<a href=/x><img alt='A 【b】'></a><img title=t>", "[Image 0: A 〖b〗][Image 1: t]"),
        ("<a href=/x aria-label='Next † page'><i></i></a>", "【0†Next ‡ page】"),
        ("<script>no</script><style>no</style><svg><text>no</text></svg>yes", "yes"),
        ("&#12304;1&dagger;x&#12305;", "〖1†x〗"),
    ],
)
def test_markup(html: str, expected: str) -> None:
    assert text(html) == expected


def test_a_base_changes_where_links_lead() -> None:
    made = content("<base href='https://b.example/x/'><a href=y>y</a><a href='/z'>z</a>")
    assert made.links == ["https://b.example/x/y", "https://b.example/z"]


PARAGRAPH = "<p>Some sentences make a paragraph, which has commas, and is long. It is enough.</p>"
MENU = "<div class=menu><ul><li><a href=/a>Menu</a><li><a href=/b>Other</a></ul></div>"


@pytest.mark.parametrize(
    "html",
    [
        f"{MENU}<div id=content><h1>Title</h1>{PARAGRAPH * 5}</div>",
        f"<div><div>{MENU}</div><div><article><h1>Title</h1>{PARAGRAPH * 5}</article></div></div>",
        f"<nav>{MENU}</nav><h1>Title</h1>{PARAGRAPH * 5}",
        f"<main><aside><nav>{MENU}</nav></aside><h1>Title</h1>{PARAGRAPH * 5}</main>",
        f"<header>{MENU}</header><main><h1>Title</h1>{PARAGRAPH * 5}</main>",
    ],
)
def test_menus_come_last_and_are_neither_lost_nor_repeated(html: str) -> None:
    made = text(html)
    assert made.startswith("# Title\n\nSome sentences")
    main, _, rest = made.partition("\n\n* * *\n\n")
    assert main.count("Some sentences") == 5
    assert "【0†Menu】" in rest
    assert "【1†Other】" in rest
    assert made.count("【0†Menu】") == 1


PIECES = st.sampled_from(
    (
        *("<div>", "</div>", "<p>", "</p>", "<ul>", "<li>", "</ul>", "<ol start=-1>", "<pre>"),
        *("</pre>", "<code>", "</code>", "<table>", "<tr>", "<td>", "</table>", "<a href=/x>"),
        *("<a href='http://[bad'>", "</a>", "<img alt='【x】'>", "<img>", "<br>", "<hr>", "<h1>"),
        *("</h1>", "<blockquote>", "</blockquote>", "<script>", "</script>", "<!-- c -->"),
        *("<![CDATA[x]]>", "&#0;", "&#xD800;", "&nbsp;", "text ", "【1†x】", " ", "\n", "\t", "é"),
        *("日本", "\x01", "\u200b", "<svg><title>t</title></svg>", "<sup>2</sup>", "\ud800"),
        *("<base href='http://[x'>", "<title>T", "</title>", "<nav>", "<body>", "<frameset>"),
        *("<dl><dt>a<dd>b", "<?pi?>", "<textarea>", "<option>a", "<main>", PARAGRAPH),
    )
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(PIECES, max_size=40).map("".join))
def test_any_page_becomes_text_with_links_of_its_own_only(html: str) -> None:
    try:
        made = content(html)
    except UnreadableFile:
        return
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=Content) == made
    links = re.findall(r"【(\d+)†[^†【】]+(?:†[^†【】]+)?】", made.text.replace("\n", ""))
    assert made.text.count("【") == len(links) == made.text.count("】")
    assert all(int(link) < len(made.links) for link in links)
    assert max(map(len, made.text.split("\n"))) <= 80
