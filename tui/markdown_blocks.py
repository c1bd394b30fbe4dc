"""Split a growing Markdown text into finished blocks and the open one. Pure, no Textual.

A finished block never changes again, so it is rendered once; the open one is drawn by something
cheap. A block is what Markdown renders the same alone: a fence, a heading, a table, a paragraph,
or a whole list. Links that are defined in another block are not found; answers rarely have any.
"""

import re
from typing import Literal, NamedTuple

Kind = Literal["fence", "table", "text"]

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$", re.DOTALL)
_HEADING = re.compile(r"^ {0,3}#{1,6}(\s|$)")
_LIST_ITEM = re.compile(r"^ {0,3}([-*+]|\d{1,9}[.)])(\s|$)")
_INTERRUPTS = re.compile(r"^ {0,3}([-*+]|1[.)])\s+\S")  # a list begins without a blank line
_PERHAPS_LIST_ITEM = re.compile(r"^ {0,3}([-*+]|\d{1,9}[.)]?)?$")
_PERHAPS_FENCE = re.compile(r"^ {0,3}(`{1,2}|~{1,2})$")


class Block(NamedTuple):
    """A stretch of the text, with its line ends."""

    kind: Kind
    text: str

    @property
    def n_lines(self) -> int:
        return self.text.count("\n") + (not self.text.endswith("\n"))


def code_blocks(text: str) -> list[str]:
    """The code of all fences of a Markdown text, also of those within lists."""
    from markdown_it import MarkdownIt  # PERF: 30 ms, and rarely needed

    return [token.content for token in MarkdownIt().parse(text) if token.type == "fence"]


class BlockSplitter:
    """Takes a text in pieces. The blocks that `feed` returned and `open` make the text again.

    Which blocks there are does not depend on how the text was cut into pieces.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []  # complete lines of the open block
        self._partial = ""  # the last line, while it has no end
        self._fence = ""  # the marker that opened the fence we are in
        self._has_text = False  # blank lines alone go with what follows
        self._is_list = False

    @property
    def open(self) -> Block:
        """What is not finished yet; its text may be empty."""
        return Block(self._kind(), "".join(self._lines) + self._partial)

    @property
    def fence_info(self) -> str:
        """The language behind the marker of an open fence; empty if there is none."""
        found = _FENCE.match(self._lines[0]) if self._lines else None
        words = found[2].split() if found and self._fence else []
        return words[0] if words else ""

    def feed(self, piece: str) -> list[Block]:
        """Add a piece of the text and return the blocks that it finishes."""
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
        """The text is over: what was open is finished."""
        if self._partial:
            line, self._partial = self._partial, ""
            return self._add_line(line) + self._finish()
        return self._finish()

    def _add_line(self, line: str) -> list[Block]:
        finished = self._finish() if self._ends_before(line, is_partial=False) else []
        marker = _FENCE.match(line)
        if self._fence:
            self._lines.append(line)
            if marker and not marker[2].strip() and marker[1].startswith(self._fence):
                self._fence = ""
                finished += self._finish()
            return finished
        if line.strip() and not self._has_text:
            self._has_text, self._is_list = True, bool(_LIST_ITEM.match(line))
        self._lines.append(line)
        if marker and not self._is_list and not (marker[1][0] == "`" and "`" in marker[2]):
            self._fence = marker[1]
        elif _HEADING.match(line) and not self._is_list:
            finished += self._finish()
        return finished

    def _ends_before(self, line: str, *, is_partial: bool) -> bool:
        """Whether the open block is over when `line` follows; a partial line may leave it open."""
        if not self._has_text or self._fence or not line.strip():
            return False
        if is_partial and (_PERHAPS_LIST_ITEM.match(line) or _PERHAPS_FENCE.match(line)):
            return False
        is_indented = line[0] in " \t"
        if not self._lines[-1].strip():
            return not self._is_list or not (is_indented or _LIST_ITEM.match(line))
        if self._is_list and is_indented:
            return False
        if not self._is_list and _INTERRUPTS.match(line):
            return True
        return bool(_FENCE.match(line)) or (not is_partial and bool(_HEADING.match(line)))

    def _finish(self) -> list[Block]:
        block = Block(self._kind(), "".join(self._lines))
        self._lines, self._fence = [], ""
        self._has_text = self._is_list = False
        return [block] if block.text else []

    def _kind(self) -> Kind:
        first = next((line for line in [*self._lines, self._partial] if line.strip()), "")
        if self._fence or (_FENCE.match(first) and not self._is_list):
            return "fence"
        return "table" if first.lstrip().startswith("|") else "text"
