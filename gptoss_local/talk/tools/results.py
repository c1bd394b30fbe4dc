"""Define what a call comes to, and cut what is too long of it."""

from typing import NamedTuple

MAX_OUTPUT_CHARACTERS = 32 * 1024


class Page(NamedTuple):
    """A page that the model has read, and may cite as `【cursor†L3-L7】`.

    Attributes:
        cursor: Its number in the conversation.
        url: Where it was found; empty for a list of search results.
        title: Its own.
    """

    cursor: int
    url: str
    title: str


class ToolResult(NamedTuple):
    """The result of a call that the model gets.

    Attributes:
        text: What it reads.
        is_error: The call came to nothing, and `text` says why.
        seconds: How long it ran.
        pages: What can be cited from now on.
    """

    text: str
    is_error: bool = False
    seconds: float = 0.0
    pages: tuple[Page, ...] = ()


def cut_middle(text: str, n_max: int = MAX_OUTPUT_CHARACTERS) -> str:
    """Return text of at most about `n_max` characters: the beginning, what is missing, the end."""
    if len(text) <= n_max:
        return text
    half = n_max // 2
    n_missing = len(text) - 2 * half
    return f"{text[:half]}\n[... {n_missing:,} characters left out ...]\n{text[-half:]}"
