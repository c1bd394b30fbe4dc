"""Find citations of pages in an answer."""

from collections.abc import Mapping
from typing import Any

from gptoss_local.talk.citations import find_citations
from gptoss_local.talk.tools import Page


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
