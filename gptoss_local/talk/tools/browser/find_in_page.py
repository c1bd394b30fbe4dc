"""Finds text in a page, and lists where.

Source: `run_find_in_page` of gpt_oss.tools.simple_browser.simple_browser_tool.
"""

import re
from urllib.parse import quote

from gptoss_local.talk.tools.browser.page import Content
from gptoss_local.talk.tools.browser.view import wrap_lines

_N_RESULTS = 50
_N_LINES = 4  # of each
_LINK = re.compile(r"【\d+†([^†】]+)(?:†[^†】]+)?】")
_LINK_END = re.compile(r"^[^【】]*】")
_LINK_BEGINNING = re.compile(r"【\d*(?:†([^†】]*)(?:†[^†】]*)?)?$")


def find_in_page(pattern: str, page: Content, key: str) -> Content:
    """Return a page of matches, each of them a link to its place.

    Args:
        pattern: What to find, as it is; case makes no difference.
        page: Where.
        key: Opens that page.
    """
    wanted = pattern.lower()
    lines = without_links("\n".join(wrap_lines(page.text))).split("\n")
    found: list[str] = []
    at: list[int] = []
    n = 0
    while n < len(lines) and len(at) < _N_RESULTS:
        if wanted not in lines[n].lower():
            n += 1
            continue
        found.append("\n".join([f"# 【{len(at)}†match at L{n}】", *lines[n : n + _N_LINES]]))
        at.append(n)
        n += _N_LINES
    return Content(
        url=f"{page.url}/find?pattern={quote(wanted)}",
        title=f"Find results for text: `{wanted}` in `{page.title}`",
        text="\n\n".join(found) or f"No `find` results for pattern: `{wanted}`",
        links=[key] * len(at),
        link_lines=at,
        is_found=True,
    )


def without_links(text: str) -> str:
    """Return what a page says, with the texts of its links only."""
    text = _LINK_END.sub("", text)
    text = _LINK_BEGINNING.sub(lambda found: found[1] or "", text)
    return _LINK.sub(r"\1", text)
