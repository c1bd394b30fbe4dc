"""Break text into rows that fit the screen."""

import re
from bisect import bisect_right
from typing import NamedTuple

from rich.cells import cell_len, chop_cells
from textual.content import Content

TAB = 4
_WIDE = r"[\u2e80-\u9fff\uf900-\ufaff\uff01-\uff60\U00020000-\U0003fffd]"
_CLOSING = r"[、。，．・：；？！）］｝」』】〉》ー]"  # none of these begins a row
_CHUNK = re.compile(rf"{_WIDE}{_CLOSING}*\s*|(?:(?!{_WIDE})\S)+{_CLOSING}*\s*|\s+")
"""A piece that is not broken: a word, or one Chinese or Japanese character."""


class Row(NamedTuple):
    """One row of a screen."""

    content: Content = Content("")
    n_mark: int = 0  # characters at its beginning that are not copied: bars, marks
    joins: str | None = None  # what is between the row before and this one, unless a line end

    def after(self, prefix: Content, *, is_mark: bool = False) -> "Row":
        n_mark = len(prefix) + self.n_mark if is_mark or self.n_mark else 0
        return self._replace(content=prefix + self.content, n_mark=n_mark)


def wrapped(content: Content, width: int) -> list[Row]:
    """Return the rows of a text, broken between words, or within a word wider than a row."""
    rows: list[Row] = []
    for line in content.split("\n", allow_blank=True):
        if "\t" in line.plain:
            line = line.expand_tabs(TAB)
        line = line.rstrip()
        if line.cell_length <= width:
            rows.append(Row(line))
            continue
        joins: str | None = None
        for part in line.divide(_breaks(line.plain, max(2, width))):
            rows.append(Row(part.rstrip(), joins=joins))
            joins = " " if part.plain.endswith(" ") else ""
    return rows


def _breaks(text: str, width: int) -> list[int]:
    """Return where rows of a line begin. More text at its end changes only the last row."""
    breaks: list[int] = []
    used = 0
    for chunk in _CHUNK.finditer(text):
        start, word = chunk.start(), chunk[0].rstrip()
        if used and used + cell_len(word) > width:
            breaks.append(start)
            used = 0
        if cell_len(word) > width:
            *pieces, last = chop_cells(word, width)
            for piece in pieces:
                start += len(piece)
                breaks.append(start)
            used = cell_len(last) + len(chunk[0]) - len(word)
        else:
            used += cell_len(chunk[0])
    return breaks


class LineRows:
    """Lines that grow at their end, and their rows, broken when they are seen.

    `n_padding` cells of a row have no text.
    """

    n_padding = 0

    def __init__(self) -> None:
        self._text = ""
        self.lines = [""]
        self._starts: list[int] = []  # the row at which each line starts, for `_width`
        self._rows: dict[int, list[Row]] = {}
        self._width = 0
        self.n_rows = 0
        self.n_same = 0
        """Rows that `show` and `fit` left as they were."""

    def rows_of(self, _n: int, line: str, width: int) -> list[Row]:
        return wrapped(Content(line), width)

    def show(self, text: str) -> None:
        if not text.startswith(self._text):
            self._text, self.lines, self._starts, self.n_rows = "", [""], [], 0
            self._rows.clear()
        first, *more = text[len(self._text) :].split("\n")
        self._text = text
        self._extend(first)
        self.lines += more
        self._measure()

    def fit(self, width: int) -> None:
        width = max(2, width)  # a terminal can be narrower than our margins
        if width != self._width:
            self._width, self._starts = width, []
            self._rows.clear()
            self._measure()

    def row(self, y: int) -> Row:
        line_idx = bisect_right(self._starts, y) - 1
        return self._rows_at(line_idx)[y - self._starts[line_idx]]

    def _extend(self, piece: str) -> None:
        """Add to the last line. PERF: of a long line only the last row is wrapped again."""
        last = len(self.lines) - 1
        line = self.lines[last]
        self.lines[last] += piece
        rows = self._rows.pop(last, None)
        if not rows or self.n_padding or "\t" in line + piece:
            return
        *same, row = rows
        start = len(line.rstrip()) - len(row.content.plain.rstrip())
        if line.startswith(row.content.plain.rstrip(), start):
            more = wrapped(Content(line[start:] + piece), self._width)
            self._rows[last] = [*same, more[0]._replace(joins=row.joins), *more[1:]]

    def _measure(self) -> None:
        if not self._width:
            return
        first = max(0, len(self._starts) - 1)
        row = self.n_same = self._starts[first] if self._starts else 0
        del self._starts[first:]
        for line_idx in range(first, len(self.lines)):
            self._starts.append(row)
            row += self._height(line_idx)
        self.n_rows = row

    def _height(self, line_idx: int) -> int:
        line = self.lines[line_idx]
        if not line.strip() and line_idx == len(self.lines) - 1:
            return 0  # not begun yet
        room = self._width - self.n_padding
        if "\t" not in line and len(line) <= room and cell_len(line) <= room:
            return 1
        return len(self._rows_at(line_idx))

    def _rows_at(self, line_idx: int) -> list[Row]:
        rows = self._rows.get(line_idx)
        if rows is None:
            rows = self.rows_of(line_idx, self.lines[line_idx], self._width)
            self._rows[line_idx] = rows
        return rows
