"""Find citations of pages in an answer."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from gptoss_local.tools import Page

_MARK = re.compile(r"【(\d+)†L(\d+)(?:-L?(\d+))?】")


class Citation(NamedTuple):
    """A mark such as `【1†L3-L7】`: where it stands, and what it points to."""

    start: int
    end: int
    cursor: int
    first: int
    last: int


def find_citations(text: str) -> list[Citation]:
    """Return the marks in a text, in order."""
    return [
        Citation(
            found.start(), found.end(), int(found[1]), int(found[2]), int(found[3] or found[2])
        )
        for found in _MARK.finditer(text)
    ]


def annotations(text: str, pages: Mapping[int, Page]) -> list[dict[str, Any]]:
    """Return a `url_citation` for each mark of a page that has an address.

    The marks stay in the text, as the model wrote it; an annotation's range is that of its mark.
    """
    return [
        {
            "type": "url_citation",
            "start_index": mark.start,
            "end_index": mark.end,
            "url": page.url,
            "title": page.title or page.url,
        }
        for mark in find_citations(text)
        if (page := pages.get(mark.cursor)) and page.url
    ]
