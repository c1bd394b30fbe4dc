"""Writes a parsed page as text, in the way of Markdown, its links as the model refers to them.

gpt-oss was trained with html2text's layout; `tests/tools/browser/test_layout.py` compares them.
"""

import copy
import logging
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin, urlsplit

from gptoss_local.talk.tools.browser.page import without_markup

Node = Any  # an lxml element; the library has no types

_SPACES = re.compile(r"\s+")


def domain_of(url: str) -> str:
    try:
        return urlsplit(url).netloc.rpartition("@")[2]
    except ValueError:
        return ""


def mark_links(root: Node, page_url: str) -> list[str]:
    """Replace each link by `【id†text†domain】`, or `【id†text】` if local; return URLs by id.

    Source: `_clean_links` of gpt_oss.tools.simple_browser.page_contents.
    """
    base, own_domain = _base_url(root, page_url), domain_of(page_url)
    ids: dict[str, int] = {}
    for link in list(root.iter("a")):
        href = (link.get("href") or "").strip()
        text = text_of(link)
        if not href.startswith("#"):  # of a place on the same page, which has its text already
            text = text or clean(link.get("aria-label") or "")
        text = text.replace("†", "‡")
        if not href or not text or link.getparent() is None:  # without text: an image, most often
            continue
        if href.startswith("#"):
            _replace(link, text)
            continue
        url = _absolute(base, href)
        if domain := domain_of(url):
            link_id = ids.setdefault(url, len(ids))
            end = "" if domain == own_domain else f"†{without_markup(domain)}"
            _replace(link, f"【{link_id}†{text}{end}】")
    return list(ids)


def clean_texts(root: Node) -> None:
    """Replace false links in all texts, before real ones are marked."""
    for node in root.iter():
        if node.text:
            node.text = without_markup(node.text)
        if node.tail:
            node.tail = without_markup(node.tail)


def mark_images(root: Node) -> None:
    for n, image in enumerate(list(root.iter("img"))):
        name = clean(image.get("alt") or image.get("title") or "")
        _replace(image, f"[Image {n}: {name}]" if name else f"[Image {n}]")


def text_of(node: Node) -> str:
    parts = [part for part in node.itertext() if isinstance(part, str)]
    return _SPACES.sub(" ", " ".join(parts)).strip()


def clean(text: str) -> str:
    return _SPACES.sub(" ", without_markup(text)).strip()


def _base_url(root: Node, page_url: str) -> str:
    for base in root.iter("base"):
        if href := base.get("href"):
            return _absolute(page_url, href) or page_url
    return page_url


def _absolute(base: str, href: str) -> str:
    try:
        url = urljoin(base, href)
        is_page = urlsplit(url).scheme in ("http", "https")
    except ValueError:
        return ""
    return url if is_page else ""


def _replace(node: Node, text: str) -> None:
    parent, previous = node.getparent(), node.getprevious()
    if parent is None:
        return
    text += node.tail or ""
    if previous is None:
        parent.text = (parent.text or "") + text
    else:
        previous.tail = (previous.tail or "") + text
    node.tail = None
    parent.remove(node)


_HEADINGS = {f"h{n}": "#" * n + " " for n in range(1, 7)}
_APART = frozenset(
    (
        *("address", "article", "aside", "details", "dialog", "div", "dl", "fieldset"),
        *("figcaption", "figure", "footer", "form", "header", "hgroup", "legend", "main", "nav"),
        *("p", "search", "section", "summary", "table"),
    )
)
_QUIET = frozenset(("head", "iframe", "math", "object", "script", "style", "svg", "template"))
_CODE = frozenset(("code", "kbd", "samp", "tt"))
_LISTS = frozenset(("ul", "ol", "menu"))
_WORD = re.compile(r"[\w-]+")
_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*\n)+")
_MAX_DEPTH = 150  # of elements; deeper ones are written as text only


def text_of_page(root: Node, skipped: frozenset[Node] = frozenset()) -> str:
    writer = _Writer(skipped)
    writer.write(root, 0)
    lines = (line.rstrip() for line in "".join(writer.pieces).split("\n"))
    return _BLANK_LINES.sub("\n\n", "\n".join(lines)).strip()


class _Writer:
    def __init__(self, skipped: frozenset[Node]) -> None:
        self.pieces: list[str] = []
        self._skipped = skipped
        self._n_breaks = 2  # that the text ends with
        self._has_space = True  # no other is written
        self._prefix = ""  # of each line
        self._lists: list[int] = []  # of those that are open, the number of the last item; -1: ul

    def write(self, node: Node, depth: int) -> None:
        tag = node.tag
        if not isinstance(tag, str) or tag in _QUIET or node in self._skipped:
            return
        if depth > _MAX_DEPTH:
            self._text(" ".join(part for part in node.itertext() if isinstance(part, str)))
        elif tag in _HEADINGS:
            self._apart(node, depth, _HEADINGS[tag])
        elif tag in _LISTS:
            self._list(node, depth)
        elif tag == "li":
            self._item(node, depth)
        elif tag == "pre":
            self._preformatted(node)
        elif tag == "blockquote":
            self._quote(node, depth)
        elif tag in _APART:
            self._apart(node, depth)
        else:
            self._inline(node, depth, tag)

    def _inline(self, node: Node, depth: int, tag: str) -> None:
        if tag == "br":
            self._break(1)
        elif tag == "hr":
            self._break(2)
            self._raw("* * *")
            self._break(2)
        elif tag in ("tr", "dt", "option", "caption"):
            self._break(1)
            self._inside(node, depth)
            self._break(1)
        elif tag == "dd":
            self._break(1)
            self._raw("    ")
            self._has_space = True
            self._inside(node, depth)
            self._break(1)
        elif tag in ("td", "th"):
            self._text(" ")
            self._inside(node, depth)
            self._text(" ")
        elif tag in _CODE and not _has_blocks(node):
            self._code(node, depth)
        elif tag in ("sup", "sub") and _WORD.fullmatch(node.text or "") and not len(node):
            self._raw(("^{" if tag == "sup" else "_{") + node.text + "}")
        else:
            self._inside(node, depth)

    def _inside(self, node: Node, depth: int) -> None:
        self._text(node.text or "")
        for child in node:
            self.write(child, depth + 1)
            self._text(child.tail or "")

    def _apart(self, node: Node, depth: int, beginning: str = "") -> None:
        self._break(2)
        if beginning:
            self._raw(beginning)
            self._has_space = True
        self._inside(node, depth)
        self._break(2)

    def _list(self, node: Node, depth: int) -> None:
        self._break(1 if self._lists else 2)
        self._lists.append(_first_number(node) - 1 if node.tag == "ol" else -1)
        self._inside(node, depth)
        self._lists.pop()
        self._break(1 if self._lists else 2)

    def _item(self, node: Node, depth: int) -> None:
        if not self._lists:
            self._lists.append(-1)
        self._break(1)
        marker = "*"
        if self._lists[-1] >= 0:
            self._lists[-1] += 1
            marker = f"{self._lists[-1]}."
        self._raw("  " * len(self._lists) + marker + " ")
        self._n_breaks, self._has_space = 2, True  # so that a paragraph begins on this line
        self._inside(node, depth)
        self._break(1)

    def _preformatted(self, node: Node) -> None:
        self._break(2)
        for line in "".join(_lines_as_they_are(node)).strip("\n").split("\n"):
            self._raw(f"    {line}".rstrip())
            self.pieces.append("\n")
        self._n_breaks = 1
        self._break(2)

    def _quote(self, node: Node, depth: int) -> None:
        self._break(2)
        outer, self._prefix = self._prefix, f"{self._prefix}> "
        self._inside(node, depth)
        self._prefix = outer
        self._break(2)

    def _code(self, node: Node, depth: int) -> None:
        self._raw("`")
        n_before = len(self.pieces)
        self._has_space = True  # none at the beginning
        self._inside(node, depth)
        ends_apart = self.pieces[-1] == " "
        if ends_apart:
            self.pieces.pop()
        if len(self.pieces) == n_before:
            self.pieces.pop()  # there is no code
            self._has_space = False
        else:
            self._raw("`")
        if ends_apart:
            self._text(" ")

    def _text(self, text: str) -> None:
        """Write text of which runs of spaces are one."""
        words = text.split()
        if not words:
            if text and not self._has_space:
                self.pieces.append(" ")
                self._has_space = True
            return
        begins_apart = text[0].isspace() and not self._has_space
        self._raw((" " if begins_apart else "") + " ".join(words))
        if text[-1].isspace():
            self.pieces.append(" ")
            self._has_space = True

    def _raw(self, text: str) -> None:
        if self._prefix and self.pieces[-1:] in ([], ["\n"]):
            self.pieces.append(self._prefix)
        self.pieces.append(text)
        self._n_breaks, self._has_space = 0, False

    def _break(self, n: int) -> None:
        while self._n_breaks < n:
            self.pieces.append("\n")
            self._n_breaks += 1
        self._has_space = True


def _lines_as_they_are(node: Node) -> Iterator[str]:
    is_apart = node.tag in _APART or node.tag == "li"
    yield "\n" if node.tag == "br" or is_apart else ""
    if isinstance(node.tag, str) and node.tag not in _QUIET:
        yield node.text or ""
        for child in node:
            yield from _lines_as_they_are(child)
            yield child.tail or ""
    yield "\n" if is_apart else ""


def _has_blocks(node: Node) -> bool:
    return any(child.tag in _APART or child.tag in ("br", "pre") for child in node.iter())


def _first_number(node: Node) -> int:
    start = node.get("start") or "1"
    return int(start) if start.isascii() and start.isdigit() and len(start) < 10 else 1


_MAX_ELEMENTS = 30_000  # PERF: readability takes 2 s for as many, and rarely helps with such pages
_CONTAINERS = ("article", "center", "div", "form", "main", "section")
_ASIDES = ("nav", "footer", "aside")
_MENUS = ("div", "form", "header", "ol", "section", "table", "ul")
_ENOUGH = 0.95  # of readability's text
_ENOUGH_OF_PAGE = 0.5  # of its text outside links; readability may take one comment of many
_MARK = "data-gptoss"


def main_part(body: Node) -> tuple[Node, list[Node]]:
    """Return the smallest element with the main text, and the menus and the like in it."""
    nodes = list(body.iter())
    if len(nodes) > _MAX_ELEMENTS:
        return body, []
    found = _found_by_readability(body)
    main, prose, links = Counter[Node](), Counter[Node](), Counter[Node]()
    for n, node in enumerate(nodes):
        path = [node, *node.iterancestors()]
        texts = (node.text, *(child.tail for child in node))
        length = len(" ".join("".join(filter(None, texts)).split()))
        is_link = any(each.tag == "a" for each in path)
        for each in path:
            main[each] += length * (n in found)
            links[each] += length * is_link
            prose[each] += length * (not is_link)
    part, inner = body, body
    while inner is not None:
        part = inner
        inner = next(
            (
                each
                for each in part.iterchildren(*_CONTAINERS)
                if 0 < main[body] * _ENOUGH <= main[each]
                and prose[each] >= prose[body] * _ENOUGH_OF_PAGE
            ),
            None,
        )
    asides: list[Node] = []
    for each in part.iter(*_ASIDES, *_MENUS):
        is_menu = each.tag in _ASIDES or prose[each] < links[each] < main[body]
        is_inside = any(outer in asides or outer.tag == "a" for outer in each.iterancestors())
        if each is not part and is_menu and not main[each] and not is_inside:
            asides.append(each)
    return part, asides


def _found_by_readability(body: Node) -> set[int]:
    from readability import Document

    marked = copy.deepcopy(body)
    for n, node in enumerate(marked.iter()):
        node.set(_MARK, str(n))
    logging.getLogger("readability").setLevel(logging.CRITICAL + 1)
    try:
        found = Document(marked).summary(html_partial=True)
    except ValueError:  # of its own kind
        return set()
    return {int(n) for n in re.findall(rf'{_MARK}="(\d+)"', found)}
