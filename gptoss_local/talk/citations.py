"""Makes links of an answer's citations: `【1†L3-L7】`, `【1†L3】`, `【1†source】` and `【1†】`."""

import re
from bisect import bisect
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from gptoss_local.talk.tools import Page

_CITATION = re.compile(
    r"""
    【(?P<cursor>\d{1,6})(?::\d{1,6})?†[ \t]*
    (?:
        L\d{1,9}(?:[ \t]*[-–—][ \t]*L?\d{1,9})?[^【】†\n`]{0,80}
        |source|
    )
    [ \t]*(?:†[^【】†\n`]{0,200})?】
    """,
    re.VERBOSE,
)
_NEWLINE = re.compile(r"\r\n?|\n")
_TICKS = re.compile(r"`+")
_NOT_QUOTED = "!#$%&'*+,-./:;=?@[]_~"  # parentheses, quotes and spaces end a link's URL
_ENTITY = re.compile(r"&(?=#?\w+;)")
_MARKS = re.compile(r"([\\\[\]*_`<>])")


class Citation(NamedTuple):
    start: int
    end: int
    cursor: int


def find_citations(text: str) -> list[Citation]:
    found = list(_CITATION.finditer(text))
    if not found:
        return []
    code = sorted(_code(text))
    starts = [start for start, _ in code]
    return [
        Citation(each.start(), each.end(), int(each["cursor"]))
        for each in found
        if not (n := bisect(starts, each.start())) or code[n - 1][1] <= each.start()
    ]


def linked(text: str, pages: "Iterable[Page]") -> str:
    """Return Markdown with citations of known pages as links; of equal cursors the last counts."""
    citations = find_citations(text)
    if not citations:
        return text
    links = {page.cursor: _link(page.url) for page in pages}
    parts: list[str] = []
    end = 0
    for citation in citations:
        if link := links.get(citation.cursor):
            before = text[end : citation.start]
            # An emphasis that begins there must not be parted from the text that it marks.
            follows = before.rstrip("*_~")[-1:] or ("】" if parts and not before else " ")
            parts += [before, "" if follows.isspace() or follows in "([" else " ", link]
            end = citation.end
    return "".join([*parts, text[end:]])


def _link(url: str) -> str:
    try:
        parts = urlsplit(url)
        domain = parts.netloc.rpartition("@")[2]
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not domain:
        return ""
    safe = _ENTITY.sub("&amp;", quote(url, safe=_NOT_QUOTED, errors="replace"))
    name = _MARKS.sub(r"\\\1", domain)
    return f"[{name} ↗]({safe})"


def _code(text: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges of code: blocks, and spans in the text between them."""
    from markdown_it import MarkdownIt  # PERF: 30 ms, and rarely needed

    starts = [0, *(newline.end() for newline in _NEWLINE.finditer(text)), len(text)]
    for token in MarkdownIt("commonmark").disable("inline").parse(text):
        if not token.map:
            continue
        start, end = starts[token.map[0]], starts[min(token.map[1], len(starts) - 1)]
        if token.type in ("fence", "code_block"):
            yield start, end
        elif token.type == "inline":
            yield from _spans(text, start, end)


def _spans(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    runs = list(_TICKS.finditer(text, start, end))
    n = 0
    while n < len(runs):
        length = len(runs[n][0])
        is_escaped = runs[n].start() > start and text[runs[n].start() - 1] == "\\"
        closing = next((m for m in range(n + 1, len(runs)) if len(runs[m][0]) == length), None)
        if closing is None or is_escaped:
            n += 1
            continue
        yield runs[n].start(), runs[closing].end()
        n = closing + 1
