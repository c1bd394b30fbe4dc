"""Show text that grows and is not Markdown: reasoning, arguments and results of calls.

PERF: a line becomes rows when it is seen, and only the last line changes.
"""

from textual.geometry import Size
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget

from tui.rows import LineRows


class LineBlock(Widget):
    """Lines, each wrapped to the width; the height follows.

    Args:
        tail_rows: Show the last rows only; None shows all.
    """

    DEFAULT_CSS = """
    LineBlock { height: auto; width: 1fr; }
    """

    def __init__(self, *, tail_rows: int | None = None) -> None:
        super().__init__()
        self._tail_rows = tail_rows
        self._text = ""
        self._rows = LineRows()
        self._strips: dict[int, Strip] = {}
        self._style_key: object = None

    @property
    def text(self) -> str:
        return self._text

    def show(self, text: str) -> None:
        """Show a text, which continues the one before or replaces it."""
        if text == self._text:
            return
        n_rows, self._text = self._rows.n_rows, text
        self._rows.show(text)
        for y in [y for y in self._strips if y >= self._rows.n_same]:
            del self._strips[y]
        self.refresh(layout=self._rows.n_rows != n_rows)

    def set_tail(self, tail_rows: int | None) -> None:
        self._tail_rows = tail_rows
        self.refresh(layout=True)

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        self._fit(width)
        n_rows = self._rows.n_rows
        return n_rows if self._tail_rows is None else min(n_rows, self._tail_rows)

    def render_line(self, y: int) -> Strip:
        width = self.content_size.width
        self._fit(width)
        if self._tail_rows is not None:
            y += max(0, self._rows.n_rows - self._tail_rows)
        if y >= self._rows.n_rows:
            return Strip.blank(width, self.visual_style.rich_style)
        strip = self._strips.get(y)
        if strip is None:
            content = self._rows.row(y).content
            [strip] = Visual.to_strips(self, content, max(1, width), 1, self.visual_style, pad=True)
            self._strips[y] = strip
        return strip

    def _fit(self, width: int) -> None:
        key = (width, self.app.theme, self.visual_style)
        if key != self._style_key:
            self._style_key = key
            self._strips.clear()
            self._rows.fit(width)
