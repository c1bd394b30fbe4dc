"""Draw Markdown on a terminal as it comes: finished rows stay, the open block is drawn again."""

import shutil
import time
from contextlib import suppress
from functools import cache
from io import StringIO
from typing import TextIO

from rich.console import Console
from rich.errors import StyleSyntaxError
from rich.style import Style
from rich.text import Text

from gptoss_local.base.printable import printable, shown, write_style
from tui.code_rows import ANSI_DARK
from tui.markdown_rows import markdown_rows
from tui.markdown_splitter import Block, BlockSplitter
from tui.rows import Row

_EVERY_S = 0.1  # the open block is drawn
_MAX_SHARE = 0.1  # of the time is spent on that: a long block is drawn less often
_COLORS = {
    "$text-primary": "blue",
    "$text-accent": "cyan",
    "$text-success": "green",
    "$text-warning": "yellow",
    "$text-error": "red",
    "$text-muted": "bright_black",
    "$text-comment": "bright_black",
}
"""The terminal's own colours for those of a theme."""


class DrawnText:
    """Text for a terminal; `style` is under all of it."""

    def __init__(self, stream: TextIO, style: str = "") -> None:
        self._stream, self._style = stream, style
        self._width, height = shutil.get_terminal_size()
        self._n_rows_max = max(1, height - 1)  # that can be drawn again
        self._buffer = StringIO()
        self._console = Console(file=self._buffer, force_terminal=True, width=10_000)
        self._splitter = BlockSplitter()
        self._before: Block | None = None
        self._n_kept = 0  # rows of the open block that are above the screen
        self._n_open = 0  # its rows that are drawn again
        self._next_s = 0.0

    def feed(self, text: str) -> None:
        finished = self._splitter.feed(shown(text))
        if finished or time.monotonic() > self._next_s:
            self._draw(finished, self._splitter.open)

    def end(self) -> None:
        self._draw(self._splitter.close(), None)

    def _draw(self, finished: list[Block], opened: Block | None) -> None:
        begun_s = time.monotonic()
        if self._n_open:
            self._buffer.write(f"\x1b[{self._n_open}F\x1b[J")
        for block in finished:
            for row in self._rows(block)[self._n_kept :]:
                self._print(row)
            self._n_kept, self._before = 0, block if block.text.strip() else self._before
        rows = self._rows(opened)[self._n_kept :] if opened else []
        for row in rows:
            self._print(row)
        self._n_open = min(len(rows), self._n_rows_max)
        self._n_kept += len(rows) - self._n_open
        write_style(self._stream, self._buffer.getvalue())  # of clean text: see `feed`
        self._buffer.seek(0)
        self._buffer.truncate()
        self._stream.flush()
        now_s = time.monotonic()
        self._next_s = now_s + max(_EVERY_S, (now_s - begun_s) / _MAX_SHARE)

    def _rows(self, block: Block) -> list[Row]:
        if not block.text.strip():
            return []
        rows = markdown_rows(block.text, max(10, self._width - 1), ANSI_DARK, block.number)
        before = self._before
        are_items = before is not None and before.kind == block.kind == "item"
        is_apart = before is not None and (before.ends_blank or not are_items)
        return [Row(), *rows] if is_apart else rows

    def _print(self, row: Row) -> None:
        plain = row.content.plain.rstrip()
        text = Text(printable(plain), self._style, end="")  # `&#27;` has become a control
        for start, end, style in row.content.spans if text.plain == plain else ():
            given = _style(style) if isinstance(style, str) else Style(link=style.link)
            text.stylize(given, start, end)
        self._console.print(text, soft_wrap=True)


@cache
def _style(named: str) -> Style:
    style = Style()
    for word in named.split():
        with suppress(StyleSyntaxError):
            style += Style.parse(_COLORS.get(word, word.removeprefix("ansi_")))
    return style
