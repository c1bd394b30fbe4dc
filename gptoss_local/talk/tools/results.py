"""Results of calls, cut where they are too long."""

from typing import NamedTuple

MAX_OUTPUT_CHARACTERS = 32 * 1024


class Page(NamedTuple):
    """A page that the model may cite as `【cursor†L3-L7】`; search results have no `url`."""

    cursor: int
    url: str
    title: str


class ToolResult(NamedTuple):
    """The result of a call; `text` is for the model, and says why if it `is_error`."""

    text: str
    is_error: bool = False
    seconds: float = 0.0
    pages: tuple[Page, ...] = ()


def cut_middle(text: str) -> str:
    """Cut a text to about `MAX_OUTPUT_CHARACTERS`: its beginning, a note, its end."""
    if len(text) <= MAX_OUTPUT_CHARACTERS:
        return text
    half = MAX_OUTPUT_CHARACTERS // 2
    n_missing = len(text) - 2 * half
    return f"{text[:half]}\n[... {n_missing:,} characters left out ...]\n{text[-half:]}"
