"""The documentation as its tests see it: fenced blocks with the notes above them, headings, links.

A note is an HTML comment in the line above a fence, which readers do not see:

    <!-- prints: Paris -->           a word that the block must print; several with ` | ` between
    <!-- not run: reason -->         of a ```console block, why no test runs it
    <!-- client: codex -->           tests/clients runs it, where that program is
    <!-- file: ~/.codex/x.toml -->   tests/clients writes it there before
"""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "bench").rglob("*.md")),
]

_FENCE = re.compile(
    r"^(?P<notes>(?:[ \t]*<!--.*?-->\n)*)"
    r"(?P<indent>[ \t]*)```(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
_NOTE = re.compile(r"<!--\s*([a-z ]+):\s*(.*?)\s*-->")
_LINK = re.compile(r"!?\[[^]]*\]\(([^()\s]+)\)")


@dataclass(frozen=True)
class Block:
    """One fenced block; `line` is the line of its fence."""

    page: Path
    line: int
    language: str
    text: str
    notes: dict[str, str]

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page,
            text.count("\n", 0, found.start("language")) + 1,
            found["language"],
            textwrap.dedent(found["text"]),
            dict(_NOTE.findall(found["notes"])),
        )
        for found in _FENCE.finditer(text)
    ]


def prose(page: Path) -> str:
    """A page without its fenced blocks and comments."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)


def links(page: Path) -> list[str]:
    """Targets of all links and pictures of a page."""
    return _LINK.findall(re.sub(r"`[^`\n]*`", "", prose(page)))


def anchors(page: Path) -> set[str]:
    """The targets of `#…` on a page, as GitHub makes them from headings."""
    return set(_slugs(page))


def _slugs(page: Path) -> Iterator[str]:
    seen: dict[str, int] = {}
    for heading in re.findall(r"^#+ (.+?)\s*$", prose(page), re.MULTILINE):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        n = seen[slug] = seen.get(slug, -1) + 1
        yield f"{slug}-{n}" if n else slug
