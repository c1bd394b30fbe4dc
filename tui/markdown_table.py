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


def table_rows(cells: list[list[Cell]], width: int) -> list[Row]:
    """Return the rows of a table; the first of `cells` is the header, and all are as long."""
    cells = [[cell._replace(content=_spaced(cell.content)) for cell in row] for row in cells]
    cells[0] = [cell._replace(content=cell.content.stylize_before("bold")) for cell in cells[0]]
    columns = list(zip(*cells, strict=True))
    widths = column_widths(
        [max(_longest_line(cell) for cell in column) for column in columns],
        [max(_longest_word(cell) for cell in column) for column in columns],
        width - len(_BETWEEN) * (len(columns) - 1),
    )
    if widths is None:
        return _records(cells, width)
    blocks = [_table_row(row, widths) for row in cells]
    rule = Row(Content.styled("─┼─".join("─" * column for column in widths), "$text-muted"))
    is_ruled = any(len(block) > 1 for block in blocks[1:])
    rows = [*blocks[0], rule]
    for n, block in enumerate(blocks[1:]):
        rows += [rule, *block] if n and is_ruled else block
    return rows


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


def _spaced(content: Content) -> Content:
    return content if content else Content(" ")


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


def _records(cells: list[list[Cell]], width: int) -> list[Row]:
    """Return a table that is too narrow for columns: each row as lines of `header: cell`."""
    header, *body = cells
    rows: list[Row] = []
    for record in body or [[Cell(Content("")) for _ in header]]:
        if rows:
            rows.append(Row())
        for head, cell in zip(header, record, strict=True):
            rows += wrapped(head.content + ": " + cell.content, width)
    return rows
