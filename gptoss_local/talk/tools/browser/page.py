"""The text of one page, as the browser keeps it and as its reader's process sends it."""

from typing import Literal, NamedTuple

import msgspec

MAX_TEXT_CHARACTERS = 2_000_000
SOURCE_PREFIX = "view-source:"


class Fetched(NamedTuple):
    """A site's answer, after redirects; `content_type` is in lower case with its parameters."""

    url: str
    content_type: str
    body: bytes


class Request(msgspec.Struct, frozen=True):
    """The page to read: as it is shown, as it was sent, or a file that was attached."""

    page: Fetched
    what: Literal["page", "source", "pdf", "docx"]


class Content(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A page as the model sees it."""

    url: str  # empty for results of a search
    title: str
    text: str  # unwrapped, with links as `【id†text†domain】`
    links: list[str] = []  # URLs or keys by link id
    link_lines: list[int] = []  # of results of `find`: the lines at which links open their page
    is_found: bool = False


class Attached(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The text of a PDF or a Word document, with a note if cut; `length` is its pages or words."""

    title: str
    text: str
    length: str


class Unreadable(msgspec.Struct, frozen=True, tag=True):
    why: str
    hint: str = ""


def without_markup(text: str) -> str:
    """Replace signs of links and citations of the model, and drop control characters."""
    return text.translate(_REPLACED)


_REPLACED: dict[int, str | None] = {
    **{code: None for code in range(32) if chr(code) not in "\n\t"},
    ord("\r"): "\n",
    0x7F: None,
    0x200B: None,  # zero width space
    ord("【"): "〖",
    ord("】"): "〗",
    ord("◼"): "◾",
    **dict.fromkeys(range(55296, 57344), "�"),  # halves of a character
}
"""Source: `_replace_special_chars` of gpt_oss.tools.simple_browser.page_contents."""
