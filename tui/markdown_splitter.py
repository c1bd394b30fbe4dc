"""Split a growing Markdown text into finished blocks, rendered once, and the open one."""

import re
from itertools import accumulate, zip_longest
from typing import TYPE_CHECKING, Literal, NamedTuple

from tui.markdown_blocks import shown_number

if TYPE_CHECKING:
    from markdown_it.token import Token

_MAX_LOOKED_INTO = 4000  # PERF: characters; a longer block is parsed when it has grown by a quarter
FENCE = re.compile(r"^( {0,3})(`{3,}|~{3,})(.*)$", re.DOTALL)
_FORMULA = re.compile(r" {0,3}(?:\\\[|\$\$)")
Kind = Literal["fence", "item", "text"]


class Block(NamedTuple):
    """A stretch of the text, with its line ends; `number` is for an item of an ordered list."""

    kind: Kind
    text: str
    number: int | None = None

    @property
    def ends_blank(self) -> bool:
        return self.text[len(self.text.rstrip()) :].count("\n") > 1


class BlockSplitter:
    """Splits a text into blocks, which do not depend on the pieces in which it comes.

    A block is a fence, an item of a list, or another block of Markdown, so it renders the same
    alone. More text changes only the last one; in doubt several are in `open`.
    """

    def __init__(self) -> None:
        self.open = Block("text", "")
        self._fence = ""  # the marker that opened `open`
        self._n_looked = 0  # characters of `open` when it was parsed
        self._list = ("", 0, 0)  # marker of the item before, its number as typed and as shown

    def feed(self, piece: str) -> list[Block]:
        before, text = self.open.text, self.open.text + piece
        self.open = self.open._replace(text=text)
        known, whole = before.rfind("\n") + 1, text.rfind("\n") + 1
        last = text[text.rfind("\n", 0, max(0, whole - 1)) + 1 : whole]
        is_begun = last.isspace() and bool(text[whole:].strip())  # a line after a blank one
        is_new = known < whole or (is_begun and not before[known:].strip())
        if self._fence:
            is_new = any(_closes(line, self._fence) for line in text[known:whole].split("\n"))
        is_due = len(text) < max(_MAX_LOOKED_INTO, self._n_looked * 5 // 4)
        is_due = is_due or is_begun or "\n\n" in text[max(0, len(before) - 1) :]
        return self._split(len(text) if is_begun else whole) if is_new and is_due else []

    def close(self) -> list[Block]:
        blocks = [*self._split(len(self.open.text), is_over=True), self.open]
        self.open = Block("text", "")
        return [block for block in blocks if block.text]

    def _split(self, n: int, *, is_over: bool = False) -> list[Block]:
        """Finish the blocks of the first `n` characters that are certainly complete."""
        from tui.markdown_rows import block_tokens  # PERF: the first prompt comes before it

        text, lines = self.open.text, self.open.text[:n].split("\n")
        starts = [0, *accumulate(len(line) + 1 for line in lines)]
        doubt = len(lines)  # from here on a formula may be, if it ends before a blank line
        for k in range(0 if is_over else len(lines) - 1, -1, -1):
            if _FORMULA.match(lines[k]):
                doubt = k
            elif not lines[k].strip() and k < len(lines) - 1:
                break
        blocks, at = list[Block](), 0
        tokens = block_tokens(text[:n])
        self.open, self._fence = Block("text", text), ""
        for token, after in zip_longest(tokens, tokens[1:]):
            assert token.map is not None
            sure, end = token.map
            item = self._numbered(token) if token.type == "list_item_open" else ("", 0, 0)
            kind: Kind = "fence" if token.type == "fence" else "item" if item[0] else "text"
            is_numbered = kind == "item" and bool(token.info)
            self.open = Block(kind, text[at:], item[2] if is_numbered else None)
            if kind != "fence" or sure == end - 1 or not _closes(lines[end - 1], token.markup):
                if after is None or after.map is None:
                    self._fence = token.markup if kind == "fence" else ""
                    break
                sure = end = after.map[0]
            if sure > doubt:
                break
            blocks.append(self.open._replace(text=text[at : starts[end]]))
            at, self._list = starts[end], item
            self.open = Block("text", text[at:])
        self._n_looked = len(self.open.text)
        return blocks

    def _numbered(self, item: "Token") -> tuple[str, int, int]:
        marker, typed, shown = self._list
        number = int(item.info or 0)
        is_next = marker == item.markup
        return item.markup, number, shown_number(number, typed, shown) if is_next else number


def _closes(line: str, fence: str) -> bool:
    marker = FENCE.match(line)
    return marker is not None and marker[2].startswith(fence) and not marker[3].strip()
