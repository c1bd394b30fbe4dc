"""The layout of a page as the model sees it: wrapped, numbered lines under a header.

Source: gpt_oss.tools.simple_browser.simple_browser_tool, which counts 1,024 tokens of o200k; here
they are estimated.
"""

import re
import textwrap
from collections.abc import Sequence
from urllib.parse import quote, unquote

from gptoss_local.base.errors import UsageError
from gptoss_local.talk.tools.browser.addresses import shortened
from gptoss_local.talk.tools.browser.page import Content, without_markup
from gptoss_local.talk.tools.tool import MAX_OUTPUT_CHARACTERS

WIDTH = 80
VIEW_TOKENS = 1024
_MAX_CHARACTERS = MAX_OUTPUT_CHARACTERS - 3 * 1024  # of lines; the header takes up to the rest
_LONG_LINE = 80 * WIDTH  # PERF: textwrap takes time with the square of a word's length
_N_SHOWN = 1024  # characters of a URL
_PIECE = re.compile(
    r"(?P<ascii>[A-Za-z]+)|(?P<digits>\d+)|(?P<wide>[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]+)"
    r"|(?P<letters>[^\W\d_]+)|(?P<marks>[^\w\s]+|_+)|(?P<line>\n)"
)
_CHARACTERS_PER_TOKEN = {
    "ascii": 9.0,
    "digits": 3.0,
    "wide": 1.4,
    "letters": 4.0,
    "marks": 2.5,
    "line": 1.0,
}


def wrap_lines(text: str) -> list[str]:
    return [wrapped for line in text.split("\n") for wrapped in _wrap(line)]


def _wrap(line: str) -> list[str]:
    if len(line) <= WIDTH:
        return [line]
    wrapper = textwrap.TextWrapper(WIDTH, replace_whitespace=False, drop_whitespace=False)
    return [wrapped for part in _parts(line) for wrapped in wrapper.wrap(part)]


def _parts(line: str) -> list[str]:
    parts = []
    start = 0
    while len(line) - start > _LONG_LINE:
        half, end = start + _LONG_LINE // 2, start + _LONG_LINE
        cut = line.rfind(" ", half, end) + 1 or end
        parts.append(line[start:cut])
        start = cut
    return [*parts, line[start:]]


def numbered(lines: Sequence[str], first: int = 0) -> str:
    return "\n".join(f"L{n}: {line}" for n, line in enumerate(lines, first))


def show(page: Content, cursor: int, loc: int = 0, n_lines: int = -1) -> str:
    """Return a part of a page under a header; without `n_lines`, as much as a view has room for."""
    lines = wrap_lines(page.text)
    last = len(lines) - 1
    if loc > last:
        raise UsageError(
            f"Invalid location parameter: `{loc}`. Cannot exceed page maximum of {last}."
        )
    end = _end(lines, loc, n_lines)
    url = shortened(" ".join(without_markup(unquote(page.url)).split()), _N_SHOWN)
    header = shortened(page.title, _N_SHOWN) + (f" ({url})" if url else "")
    scrollbar = f"**viewing lines [{loc} - {end - 1}] of {last}**"
    return f"[{cursor}] {header}\n{scrollbar}\n\n{numbered(lines[loc:end], loc)}"


def _end(lines: Sequence[str], loc: int, n_lines: int) -> int:
    most = min(loc + n_lines, len(lines)) if n_lines > 0 else len(lines)
    n_tokens, n_characters = 0.0, 0
    for n in range(loc, most):
        line = f"L{n}: {lines[n]}\n"
        n_tokens += tokens_about(line)
        n_characters += len(line)
        if n_characters > _MAX_CHARACTERS:
            return max(n, loc + 1)
        if n_lines <= 0 and n_tokens > VIEW_TOKENS:
            return n + 1
    return most


def tokens_about(text: str) -> float:
    """Return how many tokens of o200k a text takes, within about 15 %."""
    return sum(
        max(1.0, len(piece[0]) / _CHARACTERS_PER_TOKEN[piece.lastgroup or ""])
        for piece in _PIECE.finditer(text)
    )


_N_RESULTS = 50
_N_LINES = 4  # of each
_LINK = re.compile(r"【\d+†([^†】]+)(?:†[^†】]+)?】")
_LINK_END = re.compile(r"^[^【】]*】")
_LINK_BEGINNING = re.compile(r"【\d*(?:†([^†】]*)(?:†[^†】]*)?)?$")


def find_in_page(pattern: str, page: Content, key: str) -> Content:
    """Return a page of matches in any case, each a link to its place in the page `key`."""
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
    text = _LINK_END.sub("", text)
    text = _LINK_BEGINNING.sub(lambda found: found[1] or "", text)
    return _LINK.sub(r"\1", text)
