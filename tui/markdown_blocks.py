"""Split a growing Markdown text into finished blocks, rendered once, and the open one.

A block is a fence, an item of a list, or anything else up to a place where Markdown certainly
begins something new, so it renders the same alone. In doubt the block is longer.
"""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

Kind = Literal["fence", "item", "text"]

FENCE = re.compile(r"^( {0,3})(`{3,}|~{3,})(.*)$", re.DOTALL)
_HEADING = re.compile(r"^ {0,3}#{1,6}(\s|$)")
_ITEM = re.compile(r"^( {0,3})(?:([-*+])|(\d{1,9})([.)]))( {1,4}(?=\S)|\s|$)")
_RULE = re.compile(r"^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$")
_INTERRUPTS = re.compile(r"^ {0,3}([-*+]|1[.)])\s+\S")  # a list begins without a blank line
_PERHAPS_ITEM = re.compile(r"^ {0,3}([-*+]|\d{1,9}[.)]?)?$")
_VERBATIM = (  # begin and end of a stretch without blocks, and whether a blank line ends it
    (r"<(?:script|pre|style|textarea)(?=\s|>|$)", r"</(?:script|pre|style|textarea)>", False),
    (r"<!--", r"-->", False),
    (r"<\?", r"\?>", False),
    (r"<!\[CDATA\[", r"\]\]>", False),
    (r"<(?:/?[a-z]|![a-z])", r"(?!)", True),
    (r"\\\[", r"\\\]\s*$", True),
    (r"\$\$", r"\$\$\s*$", True),
)
_VERBATIM_BEGINS = [re.compile(rf"^ {{0,3}}{begin}", re.I) for begin, _, _ in _VERBATIM]
_VERBATIM_ENDS = [
    re.compile(rf"{end}|^\s*$" if is_blank_end else end, re.I) for _, end, is_blank_end in _VERBATIM
]
_TABLE_RULE = re.compile(r"\|?(?:\s*:?-+:?\s*\|)+(?:\s*:?-+:?)?")
_TAB = 4


class Block(NamedTuple):
    """A stretch of the text, with its line ends; `number` is for an item of an ordered list."""

    kind: Kind
    text: str
    number: int | None = None

    @property
    def ends_blank(self) -> bool:
        return self.text[len(self.text.rstrip()) :].count("\n") > 1


def is_table(text: str) -> bool:
    """Return whether a block is a table from its first line on."""
    head, _, rest = text.lstrip("\n").partition("\n")
    rule = rest.partition("\n")[0].strip()
    n_cells = [len(line.strip().strip("|").split("|")) for line in (head, rule)]
    return "|" in head and bool(_TABLE_RULE.fullmatch(rule)) and n_cells[0] == n_cells[1]


def code_blocks(text: str) -> list[str]:
    from markdown_it import MarkdownIt  # PERF: 30 ms, and rarely needed

    return [token.content for token in MarkdownIt().parse(text) if token.type == "fence"]


_ADDRESS = re.compile(r"(?:https?://|mailto:)[!-~]+")
_BARE = re.compile(r"https?://[^\s<>\"'`\[\]{}]*[^\s<>\"'`\[\]{}.,;:!?*_]")


def is_openable(address: str) -> bool:
    """Return whether a terminal or a browser may get an address: the web's, without controls."""
    return bool(_ADDRESS.fullmatch(address))


def bare_addresses(text: str) -> Iterator[tuple[int, int]]:
    """Yield where addresses stand in a text; a bracket that they close belongs to them."""
    for found in _BARE.finditer(text):
        address = found[0]
        while address.count(")") > address.count("("):
            address = address[: address.rindex(")")]
        if is_openable(address):
            yield found.start(), found.start() + len(address)


def links_of(text: str) -> list[str]:
    from markdown_it import MarkdownIt  # PERF: 30 ms, and rarely needed

    found: list[str] = []
    for token in MarkdownIt().parse(text):
        for child in token.children or ():
            if child.type == "link_open":
                found.append(str(child.attrs["href"]))
            elif child.type == "text":
                found += [child.content[a:b] for a, b in bare_addresses(child.content)]
    return [address for address in dict.fromkeys(found) if is_openable(address)]


def shown_number(typed: int, typed_before: int, shown_before: int) -> int:
    """Return the number of an item: as it was typed, or counted where all have the same."""
    return shown_before + 1 if typed == typed_before else typed


class BlockSplitter:
    """Splits a text that comes in pieces; the blocks do not depend on the pieces."""

    def __init__(self) -> None:
        self._lines: list[str] = []  # complete lines of the open block
        self._partial = ""  # the last line, while it has no end
        self._kind: Kind | None = None  # of the open block; None while it is only blank lines
        self._fence = ""  # the marker that opened the fence we are in, or may be in
        self._indent = 0  # of lines of the open block: an item, or indented code
        self._verbatim_end: re.Pattern[str] | None = None
        self._is_lazy = False  # the item has a line that may belong to it, or not
        self._is_unsure = False  # a list may have begun within the block
        self._number: int | None = None  # of the open item
        self._list = ("", 0, 0)  # marker of the item before, its number as typed and as shown

    @property
    def open(self) -> Block:
        kind, number = self._kind, self._number
        if kind is None:
            kind, number = self._begins(self._partial)
        return Block(kind, "".join(self._lines) + self._partial, number)

    def feed(self, piece: str) -> list[Block]:
        finished: list[Block] = []
        *whole, rest = (self._partial + piece).split("\n")
        self._partial = ""
        for line in whole:
            finished += self._add_line(line + "\n")
        if rest and self._ends_before(rest, is_partial=True):
            finished += self._finish()
        self._partial = rest
        return finished

    def close(self) -> list[Block]:
        if self._partial:
            line, self._partial = self._partial, ""
            return self._add_line(line) + self._finish()
        return self._finish()

    def _add_line(self, line: str) -> list[Block]:
        finished = self._finish() if self._ends_before(line, is_partial=False) else []
        self._lines.append(line)
        if not line.strip():
            if self._verbatim_end and self._verbatim_end.search(line):
                self._verbatim_end = None
        elif self._kind is None:
            self._begin(line)
            if self._kind == "text" and _HEADING.match(line):
                finished += self._finish()
        elif self._fence:
            if _closes(line, self._fence):
                self._fence = ""
                if self._kind == "fence":
                    finished += self._finish()
        elif self._is_lazy or not self._is_inside(line):
            self._look_for_verbatim(line)
            self._is_lazy = True
            self._is_unsure |= not self._verbatim_end and bool(_ITEM.match(line))
            self._fence = _fence(line)  # of HTML perhaps: the block ends after it in any case
        return finished

    def _begin(self, line: str) -> None:
        self._kind, self._number = self._begins(line)
        if self._kind == "fence":
            self._fence = _fence(line)
        elif self._kind == "item":
            item = _ITEM.match(line)
            self._indent = item.end() if item else 0
        else:
            self._indent = _TAB if _indent(line) >= _TAB else 0
            self._look_for_verbatim(line)

    def _begins(self, line: str) -> tuple[Kind, int | None]:
        if _fence(line):
            return "fence", None
        item = _ITEM.match(line)
        if item is None or _RULE.match(line):
            return "text", None
        if item[3] is None:
            return "item", None
        marker, typed, shown = self._list
        number = int(item[3])
        return "item", shown_number(number, typed, shown) if marker == item[4] else number

    def _look_for_verbatim(self, line: str) -> None:
        """Find stretches of HTML and mathematics, in which nothing begins a block."""
        if self._verbatim_end is not None:
            if self._verbatim_end.search(line):
                self._verbatim_end = None
            return
        for begin, end in zip(_VERBATIM_BEGINS, _VERBATIM_ENDS, strict=True):
            if found := begin.match(line):
                rest = line[found.end() :]
                self._verbatim_end = None if rest.strip() and end.search(rest) else end
                return

    def _ends_before(self, line: str, *, is_partial: bool) -> bool:
        """Return whether the open block is over when `line` follows, which may be partial."""
        if self._kind is None or self._fence or self._verbatim_end or not line.strip():
            return False
        if self._is_inside(line):
            return False
        if not self._lines[-1].strip():
            return True
        if self._is_unsure:
            return not is_partial and bool(_fence(line) or _HEADING.match(line)) and line[0] != " "
        if is_partial:
            return self._begins_item(line) and not _PERHAPS_ITEM.match(line)
        return self._begins_item(line) or bool(_fence(line) or _HEADING.match(line))

    def _is_inside(self, line: str) -> bool:
        least = 1 if self._is_unsure else self._indent
        return least > 0 and _indent(line) >= least

    def _begins_item(self, line: str) -> bool:
        is_sure = self._kind == "item" and not self._is_lazy
        return bool((_ITEM if is_sure else _INTERRUPTS).match(line))

    def _finish(self) -> list[Block]:
        block = Block(self._kind or "text", "".join(self._lines), self._number)
        first = next((line for line in self._lines if line.strip()), "")
        self._list = ("", 0, 0)
        if block.number is not None and not self._is_unsure and (item := _ITEM.match(first)):
            self._list = (item[4], int(item[3]), block.number)
        self._lines, self._fence, self._indent = [], "", 0
        self._is_lazy = self._is_unsure = False
        self._kind = self._number = self._verbatim_end = None
        return [block] if block.text else []


def _fence(line: str) -> str:
    marker = FENCE.match(line)
    return marker[2] if marker and not (marker[2][0] == "`" and "`" in marker[3]) else ""


def _closes(line: str, fence: str) -> bool:
    marker = FENCE.match(line)
    return marker is not None and marker[2].startswith(fence) and not marker[3].strip()


def _indent(line: str) -> int:
    expanded = line.expandtabs(_TAB)
    return len(expanded) - len(expanded.lstrip())
