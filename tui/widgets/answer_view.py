"""Show an answer in Markdown: finished blocks are rendered once, only the open one repeatedly."""

import re
from bisect import bisect_right
from typing import TYPE_CHECKING

from gptoss_local.base.printable import shown
from tui.code_rows import DARK, CodeRows, CodeStyle, label_rows, look_of
from tui.markdown_blocks import is_table
from tui.markdown_splitter import FENCE, Block, BlockSplitter
from tui.rows import LineRows, Row
from tui.widgets.line_block import RowsView

if TYPE_CHECKING:
    from tui.markdown_rows import LongTable

_MAX_OPEN = 4000  # PERF: characters; a longer block is shown as it is typed while it is open
_MAX_RENDERED = 30_000  # PERF: a longer one stays so; Markdown of that length takes 0.2 s
_PER_BRACKET = 30  # PERF: a bracket takes the parser as long as so many other characters, or longer


class AnswerView(RowsView):
    DEFAULT_CSS = "AnswerView { height: auto; }"

    def __init__(self, text: str = "", *, is_complete: bool = False) -> None:
        super().__init__()
        self._splitter = BlockSplitter()
        self._n_shown = 0
        self._parts: list[_TextPart | _FencePart] = []
        self._starts: list[int] = []  # the row at which each part starts
        self._open: _TextPart | _FencePart | None = None
        self._n_rows = 0
        self._width = 0  # until the rows are made
        self.auto_links = False  # links are shown and not opened: a model wrote them
        self._add(text, is_complete=is_complete)

    async def show(self, text: str, *, is_complete: bool = False) -> None:
        n_rows = self._n_rows
        self._add(text, is_complete=is_complete)
        self.refresh(layout=self._n_rows != n_rows or not self._width)

    def _add(self, text: str, *, is_complete: bool) -> None:
        n_known = len(text) - (text.endswith("\r") and not is_complete)  # half a line's end
        finished = self._splitter.feed(shown(text[self._n_shown : n_known]))
        self._n_shown = n_known
        if is_complete:
            finished += self._splitter.close()
        n_same = len(self._parts) - (self._open is not None)
        for block in finished:
            self._put(block, is_complete=True)
            self._open = None
        if self._splitter.open.text.strip():
            self._put(self._splitter.open, is_complete=False)
        self._place(n_same)

    def _put(self, block: Block, *, is_complete: bool) -> None:
        if not block.text.strip():
            return
        part = self._open
        if part is None or not part.show(block, is_complete=is_complete):
            if part is not None:
                self._parts.pop()
            part = _FencePart() if block.kind == "fence" else _TextPart()
            part.show(block, is_complete=is_complete)
            self._parts.append(part)
        self._open = part

    def _place(self, first: int) -> None:
        if not self._width:
            return
        look = look_of(self.app)
        start_before = self._starts[first : first + 1]
        del self._starts[first:]
        row = self._starts[-1] + self._parts[first - 1].n_rows if first else 0
        n_same = row
        for n, part in enumerate(self._parts[first:], first):
            part.fit(self._width, look)
            row += n > 0 and self._is_apart(n)
            self._starts.append(row)
            if n == first:
                n_same = row + part.n_same if start_before == [row] else min(row, n_same)
            row += part.n_rows
        self.drop_from(n_same)
        self._n_rows = row + bool(self._parts)  # and a blank row below

    def _is_apart(self, n: int) -> bool:
        """Return whether a blank row is before a part: items are as close as they were typed."""
        before, block = self._parts[n - 1].block, self._parts[n].block
        are_items = before.kind == block.kind == "item"
        return before.ends_blank if are_items else True

    def wrap(self, width: int) -> None:
        self._width = width
        self._place(0)

    @property
    def n_rows(self) -> int:
        return self._n_rows

    def row(self, y: int) -> Row:
        n = bisect_right(self._starts, y) - 1
        y -= self._starts[n] if n >= 0 else 0
        return self._parts[n].row(y) if n >= 0 and y < self._parts[n].n_rows else Row()


class _TextPart:
    """A block of Markdown; a very long one stays as it was typed."""

    block: Block
    n_rows = n_same = 0  # `fit` leaves the first `n_same` unchanged

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._typed: LineRows | None = None
        self._table: LongTable | None = None
        self._made_for: tuple[int, CodeStyle] | None = None

    def show(self, block: Block, *, is_complete: bool) -> bool:
        if block.kind == "fence":
            return False
        self.block, self._made_for = block, None
        n_brackets = block.text.count("[") + block.text.count("\\(")
        cost = max(len(block.text), n_brackets * _PER_BRACKET)
        is_long = cost > (_MAX_RENDERED if is_complete else _MAX_OPEN)
        if self._table is None and is_long and is_table(block.text):
            from tui.markdown_rows import LongTable  # PERF: as below

            self._table = LongTable()
        if is_long and self._table is None:
            self._typed = self._typed or LineRows()
            self._typed.show(block.text.rstrip() if is_complete else block.text)
        else:
            self._typed = None
        return True

    def fit(self, width: int, look: CodeStyle) -> None:
        if self._typed is not None:
            self._typed.fit(width)
            self.n_rows, self._rows = self._typed.n_rows, []
            self.n_same = self._typed.n_same
        elif self._made_for != (width, look):
            from tui.markdown_rows import markdown_rows  # PERF: the first prompt comes before it

            before, self._made_for = self._rows, (width, look)
            if self._table is not None:
                self._rows = self._table.rows(self.block.text, width, look)
            else:
                self._rows = markdown_rows(self.block.text, width, look, self.block.number)
            self.n_rows = len(self._rows)
            pairs = enumerate(zip(before, self._rows, strict=False))
            self.n_same = next((n for n, (a, b) in pairs if not a.content.is_same(b.content)),
                               min(len(before), self.n_rows))  # fmt: skip

    def row(self, y: int) -> Row:
        return self._typed.row(y) if self._typed is not None else self._rows[y]


class _FencePart:
    """A fence: its lines are highlighted when they are seen, and all of them once it is closed."""

    block: Block
    n_rows = n_same = 0

    def __init__(self) -> None:
        self._code = CodeRows("", DARK)
        self._label: list[Row] = []
        self._made_as: tuple[str, CodeStyle] | None = None
        self._is_complete = False

    def show(self, block: Block, *, is_complete: bool) -> bool:
        if block.kind != "fence":
            return False
        self.block, self._is_complete = block, is_complete
        return True

    def fit(self, width: int, look: CodeStyle) -> None:
        info, code = _code_of(self.block.text, is_complete=self._is_complete)
        is_new = (info, look) != self._made_as
        if is_new:
            self._made_as, self._code = (info, look), CodeRows(info, look)
        self._label = label_rows(info, width, look)
        self._code.show(code)
        self._code.fit(width)
        if self._is_complete:
            self._code.close()
        self.n_rows = len(self._label) + self._code.n_rows
        self.n_same = 0 if is_new or self._is_complete else len(self._label) + self._code.n_same

    def row(self, y: int) -> Row:
        n_label = len(self._label)
        return self._label[y] if y < n_label else self._code.row(y - n_label)


def _code_of(text: str, *, is_complete: bool) -> tuple[str, str]:
    opener, _, code = text.lstrip("\n").partition("\n")
    while not opener.strip():
        opener, _, code = code.partition("\n")
    found = FENCE.match(opener)
    assert found is not None
    indent, marker, info = found.groups()
    lines = code.split("\n")
    if indent:
        lines = [re.sub(rf"^ {{1,{len(indent)}}}", "", line) for line in lines]
    while len(lines) > 1 and is_complete and not lines[-1].strip():
        lines.pop()
    least = len(marker) if is_complete else 1  # a line that may become the end is not shown yet
    if re.fullmatch(rf" {{0,3}}{re.escape(marker[0])}{{{least},}}\s*", lines[-1]):
        lines.pop()
    return info.strip(), "\n".join(lines)
