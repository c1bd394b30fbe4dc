"""Turn tables into rows of a screen: cells wrap, and numbers and short words stay whole."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from textual.content import Content

from tui.rows import Row, wrapped

_WORD = re.compile(r"[!-~]+")  # of scripts that put spaces between words
_LONGEST_WORD = 14  # that is not broken, except that no number is
_LONGEST_NUMBER = 30
_NARROWEST = 6  # unless all it holds is shorter
_BETWEEN = " │ "


class Cell(NamedTuple):
    content: Content
    alignment: str = "left"


class Table:
    """The columns of a table, as its first rows need them; the first of `cells` is the header."""

    def __init__(self, cells: list[list[Cell]], width: int) -> None:
        header, *body = map(_spaced, cells)
        self._header = [
            cell._replace(content=cell.content.stylize_before("bold")) for cell in header
        ]
        self._width = width
        columns = list(zip(self._header, *body, strict=True))
        self._widths = column_widths(
            [max(_longest_line(cell) for cell in column) for column in columns],
            [max(_longest_word(cell) for cell in column) for column in columns],
            width - len(_BETWEEN) * (len(columns) - 1),
        )
        widths = self._widths or []
        self._rule = Row(Content.styled("─┼─".join("─" * n for n in widths), "$text-muted"))
        self._is_ruled = bool(widths) and any(len(_table_row(row, widths)) > 1 for row in body)

    @property
    def head(self) -> list[Row]:
        return [*_table_row(self._header, self._widths), self._rule] if self._widths else []

    def body(self, cells: list[list[Cell]], *, is_first: bool) -> list[Row]:
        """Return the rows of the screen for rows of cells; `is_first`: just below the header."""
        rows: list[Row] = []
        for n, row in enumerate(map(_spaced, cells)):
            is_apart = n > 0 or not is_first
            if self._widths is None:
                rows += [Row()] if is_apart else []
                rows += _record(self._header, row, self._width)
            else:
                rows += [self._rule] if is_apart and self._is_ruled else []
                rows += _table_row(row, self._widths)
        return rows


def table_rows(cells: list[list[Cell]], width: int) -> list[Row]:
    """Return the rows of a whole table; all of its rows have as many cells."""
    table = Table(cells, width)
    return [*table.head, *table.body(cells[1:], is_first=True)]


def column_widths(wanted: Sequence[int], least: Sequence[int], width: int) -> list[int] | None:
    """Share the width among columns: the widest ones shrink first, none below its least.

    `wanted` are widths without wrapping, `least` without broken words. None if these do not fit.
    """
    if sum(wanted) <= width:
        return list(wanted)
    if sum(least) > width:
        return None
    level = 1
    while sum(_shared(wanted, least, level + 1)) <= width:
        level += 1
    widths = _shared(wanted, least, level)
    for n, want in enumerate(wanted):  # the rest, one cell each
        if widths[n] == level < want and sum(widths) < width:
            widths[n] += 1
    return widths


def _shared(wanted: Sequence[int], least: Sequence[int], level: int) -> list[int]:
    return [max(low, min(want, level)) for want, low in zip(wanted, least, strict=True)]


def _spaced(cells: Sequence[Cell]) -> list[Cell]:
    return [cell if cell.content else cell._replace(content=Content(" ")) for cell in cells]


def _longest_line(cell: Cell) -> int:
    return max(cell_len(line) for line in cell.content.plain.split("\n"))


def _longest_word(cell: Cell) -> int:
    lengths = [_NARROWEST]
    for word in _WORD.findall(cell.content.plain):
        is_number = any(character.isdigit() for character in word)
        most = _LONGEST_NUMBER if is_number else _LONGEST_WORD
        lengths.append(min(len(word), most))
    return min(max(lengths), _longest_line(cell))


def _table_row(cells: Sequence[Cell], widths: Sequence[int]) -> list[Row]:
    columns = [
        [_aligned(row.content, cell.alignment, width) for row in wrapped(cell.content, width)]
        for cell, width in zip(cells, widths, strict=True)
    ]
    between = Content.styled(_BETWEEN, "$text-muted")
    rows = []
    for y in range(max(map(len, columns))):
        parts = [
            column[y] if y < len(column) else Content(" " * width)
            for column, width in zip(columns, widths, strict=True)
        ]
        rows.append(Row(between.join(parts)))
    return rows


def _aligned(content: Content, alignment: str, width: int) -> Content:
    n_left = width - content.cell_length
    if alignment == "right":
        return content.pad_left(n_left)
    if alignment == "center":
        return content.pad(n_left // 2, n_left - n_left // 2)
    return content.pad_right(n_left)


def _record(header: Sequence[Cell], cells: Sequence[Cell], width: int) -> list[Row]:
    """Return a row of a table that is too narrow for columns, as lines of `header: cell`."""
    pairs = zip(header, cells, strict=True)
    return [
        row for head, cell in pairs for row in wrapped(head.content + ": " + cell.content, width)
    ]
