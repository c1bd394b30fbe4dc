"""Turns the links and images of a parsed page into text that the model can refer to."""

import re
from typing import Any
from urllib.parse import urljoin, urlsplit

from gptoss_local.talk.tools.browser.page import without_markup

Node = Any
"""An lxml element; the library has no types."""

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
