"""The pages of a conversation, by key (a URL or a name of ours) and cursor, one per display."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from gptoss_local.errors import UsageError
from gptoss_local.talk.tools.browser.page import Content
from gptoss_local.talk.tools.results import Page

MAX_PAGES = 50
MAX_CHARACTERS = 10_000_000
"""Limit of all texts that are kept; a character takes 1 to 4 bytes."""


class Shown(NamedTuple):
    key: str
    page: Page


class Stack:
    """Numbers displays, with those of a stored chat, and keeps the pages used last."""

    def __init__(
        self,
        known: Iterable[Page] = (),
        *,
        n_pages: int = MAX_PAGES,
        n_characters: int = MAX_CHARACTERS,
    ) -> None:
        self._shown = {page.cursor: Shown(page.url, page) for page in known}
        self._contents: OrderedDict[str, Content] = OrderedDict()
        self._n_pages, self._n_characters = n_pages, n_characters

    @property
    def next_cursor(self) -> int:
        return max(self._shown, default=-1) + 1

    def shown(self, cursor: int = -1) -> Shown:
        """Return a display; without a cursor, the last one."""
        last = self.next_cursor - 1
        if last < 0:
            raise UsageError("No pages to access!")
        found = self._shown.get(last if cursor == -1 else cursor)
        if found is None:
            raise UsageError(
                f"Cursor `{cursor}` is out of range. Available cursor indices: [0 - {last}]."
            )
        return found

    def content(self, key: str) -> Content | None:
        if key in self._contents:
            self._contents.move_to_end(key)
        return self._contents.get(key)

    def keep(self, key: str, content: Content) -> None:
        """Keep a page, and drop the least recently used ones over the limits."""
        self._contents.pop(key, None)
        self._contents[key] = content
        sizes = [len(each.text) for each in self._contents.values()]
        n_characters = sum(sizes)
        for size in sizes[:-1]:
            if len(self._contents) <= self._n_pages and n_characters <= self._n_characters:
                break
            self._contents.popitem(last=False)
            n_characters -= size

    def add(self, key: str, page: Page) -> None:
        self._shown[page.cursor] = Shown(key, page)
