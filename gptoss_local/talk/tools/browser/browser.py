"""The source of the tools `browser.search`, `browser.open` and `browser.find`.

Cursors, layout and error messages are those of training. Source:
gpt_oss.tools.simple_browser.simple_browser_tool.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import msgspec

from gptoss_local.base.errors import UsageError
from gptoss_local.base.formats.trained_tools import BROWSER_FUNCTIONS
from gptoss_local.base.settings import Settings
from gptoss_local.base.validation import in_words
from gptoss_local.talk.tools.browser.page import SOURCE_PREFIX, Content
from gptoss_local.talk.tools.browser.view import find_in_page, show
from gptoss_local.talk.tools.tool import Arguments, Page, Run, RunnableTool, ToolResult, ToolSource

if TYPE_CHECKING:  # PERF: httpx takes 110 ms, and many chats open no page
    from gptoss_local.talk.tools.browser.fetching import Fetcher
    from gptoss_local.talk.tools.browser.searching import SearchEngine

MAX_PAGES = 50
MAX_CHARACTERS = 10_000_000  # limit of all texts that are kept; a character takes 1 to 4 bytes


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


_WEB_PAGES = ("http://", "https://")
_CONTEXT_LINES = 4  # above a match of `find` that is opened
_Loc = Annotated[int, msgspec.Meta(le=10_000_000)]


class _Search(msgspec.Struct):
    query: Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
    topn: float = 10


class _Open(msgspec.Struct):
    id: int | float | str = -1
    cursor: int = -1
    loc: _Loc = -1
    num_lines: _Loc = -1
    view_source: bool = False


class _Find(msgspec.Struct):
    pattern: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    cursor: int = -1


_ArgumentsT = TypeVar("_ArgumentsT", _Search, _Open, _Find)


class Browser(ToolSource):
    """The pages and cursors of one conversation. UsageError: `search` names no usable engine."""

    name = "browser"
    description = "Searches the web, opens pages and finds text in them."

    def __init__(
        self,
        settings: Settings,
        *,
        is_on: bool = False,
        fetcher: "Fetcher | None" = None,
        engine: "SearchEngine | None" = None,
    ) -> None:
        self.is_on = is_on
        self._may_be_private = settings.browser_private
        self._fetcher = fetcher
        if engine is None and settings.search:
            from gptoss_local.talk.tools.browser.searching import SearchEngine

            engine = SearchEngine(settings)
        self._engine = engine
        self._stack = Stack()
        opens = "opens web pages" + (", also private ones" if settings.browser_private else "")
        searches = f"searches by {self._engine.about} and " if self._engine else ""
        self.about = f"is built in, and {searches}{opens}"
        self._tools = self._declare(f"{opens}, whose addresses the model chooses")

    async def tools(self) -> Sequence[RunnableTool]:
        return self._tools

    async def new_chat(self, pages: Iterable[Page] = ()) -> None:
        """Forget all pages; pages of a stored chat are fetched again when they are used."""
        self._stack = Stack(pages)

    def _declare(self, opens: str) -> list[RunnableTool]:
        def tool(name: str, run: Run, about: str, **facts: Any) -> RunnableTool:
            described = BROWSER_FUNCTIONS[name]
            full = f"{self.name}.{name}"
            return RunnableTool(full, *described, run, about, self.name, is_built_in=True, **facts)

        finds = "finds text in a page that was opened"
        identity = "private" if self._may_be_private else "public"
        tools = [
            tool("open", self._open, opens, identity=identity, resolve=self._resolve_open),
            tool("find", self._find, finds, asks=False, resolve=self._resolve_find),
        ]
        if self._engine is not None:
            about = f"sends a query to {self._engine.about}"
            tools.insert(0, tool("search", self._search, about, identity=self._engine.about))
        return tools

    async def _search(self, arguments: Arguments) -> ToolResult:
        from gptoss_local.talk.tools.browser.searching import MAX_RESULTS

        asked = _convert(arguments, _Search)
        assert self._engine is not None  # or the tool would not be there
        n_results = int(min(max(1.0, asked.topn), MAX_RESULTS))
        content = await self._engine.search(asked.query, n_results)
        key = f"search:{self._stack.next_cursor}"
        self._stack.keep(key, content)
        return self._show(key, content, "")

    def _resolve_open(self, arguments: Arguments) -> Arguments:
        """Fill in the address; with a cursor the page is fetched only if it is not kept."""
        asked = _convert(arguments, _Open)
        link, cursor, loc = _link_of(asked.id), -1, asked.loc
        if isinstance(link, str):
            key = link
        else:
            shown = self._stack.shown(asked.cursor)
            key, cursor = shown.key, shown.page.cursor
            if link >= 0:
                if (content := self._stack.content(key)) is None:
                    _address(key, is_link=True)
                    raise UsageError(f"Page `{cursor}` is not kept any more. Open it again first.")
                if link >= len(content.links):
                    ids = f"Available link ids: [0 - {len(content.links) - 1}]."
                    there = ids if content.links else "The page has no links."
                    raise UsageError(f"Invalid link id `{link}`. {there}")
                key = content.links[link]
                if loc < 0 and content.link_lines:
                    loc = content.link_lines[link]
                    loc -= _CONTEXT_LINES if loc > _CONTEXT_LINES else 0
        if asked.view_source and not key.startswith(SOURCE_PREFIX):
            key = f"{SOURCE_PREFIX}{key}"
        if cursor == -1 or not self._stack.content(key):
            key = _address(key, is_link=cursor != -1)
        resolved = {"id": key, "cursor": cursor, "loc": loc, "num_lines": asked.num_lines}
        return {name: value for name, value in resolved.items() if value != -1}

    async def _open(self, arguments: Arguments) -> ToolResult:
        key = arguments["id"]
        kept = self._stack.content(key) if "cursor" in arguments else None
        content = kept or await self._fetch(key)
        url = content.url.removeprefix(SOURCE_PREFIX)
        loc, n_lines = arguments.get("loc", 0), arguments.get("num_lines", -1)
        return self._show(key, content, url, max(loc, 0), n_lines)

    def _resolve_find(self, arguments: Arguments) -> Arguments:
        shown = self._stack.shown(_convert(arguments, _Find).cursor)
        given = {name: value for name, value in arguments.items() if name != "id"}
        is_kept = self._stack.content(shown.key)
        return given if is_kept else given | {"id": _address(shown.key, is_link=True)}

    async def _find(self, arguments: Arguments) -> ToolResult:
        asked = _convert(arguments, _Find)
        shown = self._stack.shown(asked.cursor)
        page_key = arguments.get("id", shown.key)
        page = self._stack.content(page_key) or await self._fetch(page_key)
        if page.is_found:
            raise UsageError(
                "Cannot run `find` on find results page. Use the `cursor` of the page itself."
            )
        found = find_in_page(asked.pattern, page, page_key)
        key = f"find:{self._stack.next_cursor}"
        self._stack.keep(key, found)
        return self._show(key, found, shown.page.url)

    async def _fetch(self, key: str) -> Content:
        from gptoss_local.talk.tools.browser.reader import read

        if self._fetcher is None:
            from gptoss_local.talk.tools.browser.fetching import Fetcher

            self._fetcher = Fetcher(may_be_private=self._may_be_private)
        url = key.removeprefix(SOURCE_PREFIX)
        page = await self._fetcher.fetch(url)
        content = await read(page, is_source=url != key)
        self._stack.keep(key, content)
        return content

    def _show(
        self, key: str, content: Content, url: str, loc: int = 0, n_lines: int = -1
    ) -> ToolResult:
        cursor = self._stack.next_cursor
        text = show(content, cursor, loc, n_lines)
        page = Page(cursor, url, content.title)
        self._stack.add(key, page)
        return ToolResult(text, pages=(page,))


def _convert(arguments: Arguments, wanted: type[_ArgumentsT]) -> _ArgumentsT:
    given = {name: value for name, value in arguments.items() if value is not None}
    try:
        return msgspec.convert(given, wanted, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(in_words(error, given)) from error


def _link_of(given: int | float | str) -> int | str:
    if isinstance(given, str):
        text = given.strip()
        if not text or text.removeprefix("-").isdecimal():
            return int(text[:10] or -1)
        return text
    if not -1e9 < given < 1e9 or given != int(given):
        raise UsageError(f"`id` should be an integer or a URL, not `{given}`")
    return int(given)


def _address(key: str, *, is_link: bool) -> str:
    """Return the URL of a key as it is sent; raise UsageError if it may not be opened."""
    from gptoss_local.talk.tools.browser.addresses import check_url

    url = key.removeprefix(SOURCE_PREFIX)
    if is_link and not url.startswith(_WEB_PAGES):
        raise UsageError("These results are not kept any more. Search again.")
    return f"{key[: len(key) - len(url)]}{check_url(url)}"
