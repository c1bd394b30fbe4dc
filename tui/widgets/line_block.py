"""Text that grows at its end: an open code fence, table or paragraph, and reasoning.

PERF: Textual's Markdown renders a whole fence again for each piece, 217 ms at 400 lines. Here a
line is styled when it is seen, and only the last one changes.
"""

import re
from bisect import bisect_right

from rich.cells import cell_len
from textual.content import Content, Span
from textual.geometry import Size
from textual.highlight import ANSIDarkHighlightTheme, ANSILightHighlightTheme, highlight
from textual.highlight import HighlightTheme as PlainTheme
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget

from tui.markdown_blocks import Kind

_INLINE = re.compile(r"(\*\*.+?\*\*)|(`[^`]+`)|(^#{1,6} .*)")
_TAB = 4


class LineBlock(Widget):
    """Lines, each wrapped to the width; the height follows.

    Args:
        kind: `fence` highlights lines as code and hides the line that opened it.
        language: Of a fence.
        tail_rows: Show the last rows only; None shows all.
    """

    DEFAULT_CSS = """
    LineBlock {
        height: auto;
        width: 1fr;
        &.-fence { background: black 10%; padding: 1 2; margin: 1 0; }
        &.-fence:light { background: white 30%; }
        &.-fence:ansi { background: transparent; padding: 1 0; margin: 0; }
    }
    """

    def __init__(
        self, kind: Kind = "text", language: str = "", *, tail_rows: int | None = None
    ) -> None:
        super().__init__(classes=f"-{kind}")
        self.kind = kind
        self._language = language or "text"
        self._tail_rows = tail_rows
        self._text = ""
        self._lines = [""]
        self._starts: list[int] = []  # the row at which each line starts, for `_width`
        self._n_rows = 0
        self._width = 0
        self._strips: dict[int, list[Strip]] = {}
        self._style_key: object = None

    @property
    def text(self) -> str:
        return self._text

    def show(self, text: str) -> None:
        """Show `text`, which begins with what is shown already or replaces it."""
        if text == self._text:
            return
        if not text.startswith(self._text):
            self._text, self._lines, self._starts, self._n_rows = "", [""], [], 0
            self._strips.clear()
        first, *more = text[len(self._text) :].split("\n")
        self._text = text
        self._strips.pop(len(self._lines) - 1, None)
        self._lines[-1] += first
        self._lines += more
        old_rows = self._n_rows
        self._measure()
        self.refresh(layout=self._n_rows != old_rows)

    def close(self) -> None:
        """The text is complete: the line that closes a fence is hidden."""
        while len(self._lines) > 1 and not self._lines[-1].strip():
            self._lines.pop()
        if self.kind == "fence" and len(self._lines) > 1:
            self._lines.pop()
        self._starts = self._starts[: len(self._lines)]
        self._measure()
        self.refresh(layout=True)

    def set_tail(self, tail_rows: int | None) -> None:
        """Show only the last rows, or all with None."""
        self._tail_rows = tail_rows
        self.refresh(layout=True)

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        self._fit(width)
        return self._n_rows if self._tail_rows is None else min(self._n_rows, self._tail_rows)

    def render_line(self, y: int) -> Strip:
        width = self.content_size.width
        self._fit(width)
        if self._tail_rows is not None:
            y += max(0, self._n_rows - self._tail_rows)
        if y >= self._n_rows:
            return Strip.blank(width, self.visual_style.rich_style)
        line_idx = bisect_right(self._starts, y) - 1
        rows = self._rows(line_idx)
        return rows[min(y - self._starts[line_idx], len(rows) - 1)]

    def _fit(self, width: int) -> None:
        """Make rows for this width and the present theme."""
        width = max(1, width)  # a terminal can be narrower than our margins
        key = (self.app.theme, self.visual_style)
        if width != self._width or key != self._style_key:
            self._width, self._style_key = width, key
            self._strips.clear()
            self._starts = []
            self._measure()

    def _measure(self) -> None:
        """Find the rows of lines that are new, and of the one that was last."""
        if not self._width:
            return
        first = max(0, len(self._starts) - 1)
        row = self._starts[first] if self._starts else 0
        del self._starts[first:]
        for line_idx in range(first, len(self._lines)):
            self._starts.append(row)
            row += self._height(line_idx)
        self._n_rows = row

    def _height(self, line_idx: int) -> int:
        if self.kind == "fence" and line_idx == 0:
            return 0  # the marker and the language
        line = self._lines[line_idx]
        if not line.strip() and line_idx == len(self._lines) - 1:
            return 0  # not begun yet
        if "\t" not in line and cell_len(line) <= self._width:
            return 1
        return len(self._rows(line_idx))

    def _rows(self, line_idx: int) -> list[Strip]:
        rows = self._strips.get(line_idx)
        if rows is None:
            content = self._styled(self._lines[line_idx].expandtabs(_TAB))
            rows = Visual.to_strips(
                self, content, self._width, None, self.visual_style, pad=True
            ) or [Strip.blank(self._width, self.visual_style.rich_style)]
            self._strips[line_idx] = rows
        return rows

    def _styled(self, line: str) -> Content:
        if self.kind != "fence":
            return _inline(line) if self.kind == "text" else Content(line)
        theme = PlainTheme
        if self.app.native_ansi_color:
            is_dark = self.app.current_theme.dark
            theme = ANSIDarkHighlightTheme if is_dark else ANSILightHighlightTheme
        return highlight(line, language=self._language, theme=theme) if line else Content(" ")


def _inline(line: str) -> Content:
    """Bold, code and headings of one line, roughly: Markdown replaces it soon."""
    spans = [
        Span(found.start(), found.end(), "$text-warning" if found[2] else "bold")
        for found in _INLINE.finditer(line)
    ]
    return Content(line or " ", spans)
