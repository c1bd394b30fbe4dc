"""Turns what a model cites of pages into links."""

import re
from collections.abc import Iterable
from urllib.parse import quote, urlsplit

from gptoss_local.tools import Page

_CITATION = re.compile(r"【(\d+)†(?:L\d+(?:-L\d+)?)?[^】\n]*】")


def linked(text: str, pages: Iterable[Page]) -> str:
    """Return Markdown in which each `【1†L3-L7】` of a known page is a link to it.

    Args:
        text: An answer.
        pages: What it may cite; of two with one number the later one is meant.
    """
    urls = {page.cursor: page.url for page in pages if page.url.startswith(("http://", "https://"))}

    def link(found: re.Match[str]) -> str:
        url = urls.get(int(found[1]))
        if url is None:
            return found[0]
        return f"[{urlsplit(url).hostname or url}](<{quote(url, safe=_SAFE)}>)"

    return _CITATION.sub(link, text)


_SAFE = "!#$%&'()*+,/:;=?@[]~"
