"""Show rows of text. PERF: only rows that are seen, and changed, are rendered."""

import re
from abc import abstractmethod
from bisect import bisect_left, bisect_right

from textual.geometry import Size
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.visual import Visual
from textual.widget import Widget

from gptoss_local.base.printable import shown
from tui.rows import LineRows, Row


class RowsView(Widget):
    """The base of widgets with one row of text below the other; the height follows."""

    def __init__(self) -> None:
        super().__init__()
        self._strips: dict[int, Strip] = {}
        self._marks: dict[int, list[tuple[int, int]]] = {}  # columns of a row
        self._made_for: object = None  # the width and theme of the rows

    @property
    @abstractmethod
    def n_rows(self) -> int: ...

    @abstractmethod
    def row(self, y: int) -> Row: ...

    @abstractmethod
    def wrap(self, width: int) -> None: ...

    def drop_from(self, y: int) -> None:
        for old in [old for old in self._strips if old >= y]:
            del self._strips[old]

    def mark(self, words: str, n: int = 0) -> int | None:
        """Mark the words wherever they are, also across rows; return the row of the `n`-th."""
        text, starts = "", list[int]()
        for y in range(self.n_rows if words else 0):
            row = self.row(y)
            text += ("\n" if row.joins is None else row.joins) if y else ""
            starts.append(len(text))
            text += row.content.plain[row.n_mark :]
        self._marks = {}
        self._strips.clear()
        self.refresh()
        found = list(re.finditer(re.escape(words), text, re.IGNORECASE)) if words else []
        for each in found:
            for y in range(bisect_right(starts, each.start()) - 1, bisect_left(starts, each.end())):
                first = starts[y] - self.row(y).n_mark
                span = max(each.start(), starts[y]) - first, each.end() - first
                self._marks.setdefault(y, []).append(span)
        return bisect_right(starts, found[min(n, len(found) - 1)].start()) - 1 if found else None

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        self._fit(width)
        return self.n_rows

    def render_line(self, y: int) -> Strip:
        self._fit(self.content_size.width)
        strip = self._strips.get(y)
        if strip is None:
            strip = self._strips[y] = self._strip(y)
        return strip

    def selection_updated(self, selection: Selection | None) -> None:
        self._strips.clear()
        self.refresh()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the selected text: rows that were one line are one line again."""
        text = ""
        for y in range(self.n_rows):
            if (span := selection.get_span(y)) is None:
                continue
            row = self.row(y)
            start, end = span
            end = len(row.content) if end == -1 else end
            if text:
                text += "\n" if row.joins is None else row.joins
            text += row.content.plain[max(start, row.n_mark) : max(end, row.n_mark)].rstrip()
        return text, "\n"

    def _fit(self, width: int) -> None:
        made_for = (width, self.app.theme, self.visual_style)
        if made_for != self._made_for:
            self._made_for = made_for
            self._strips.clear()
            self._marks.clear()
            self.wrap(max(2, width))

    def _strip(self, y: int) -> Strip:
        content = self.row(y).content if y < self.n_rows else Row().content
        for start, end in self._marks.get(y, ()):
            content = content.stylize("reverse", start, end)
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(y)) is not None:
            start, end = span
            style = Style.from_styles(self.screen.get_component_styles("screen--selection"))
            content = content.stylize(style, start, len(content) if end == -1 else end)
        width = max(1, self.content_size.width)
        [strip] = Visual.to_strips(
            self, content, width, 1, self.visual_style, apply_selection=False, pad=True
        )
        return strip.apply_offsets(0, y)


class LineBlock(RowsView):
    """Lines, each wrapped to the width; only the last `tail_rows` are shown, or all for None."""

    DEFAULT_CSS = "LineBlock { height: auto; width: 1fr; }"

    def __init__(self, *, tail_rows: int | None = None) -> None:
        super().__init__()
        self._tail_rows = tail_rows
        self._text = ""
        self._rows = LineRows()

    @property
    def n_rows(self) -> int:
        n_rows = self._rows.n_rows
        return n_rows if self._tail_rows is None else min(n_rows, self._tail_rows)

    def row(self, y: int) -> Row:
        return self._rows.row(y + self._rows.n_rows - self.n_rows)

    def wrap(self, width: int) -> None:
        self._rows.fit(width)

    def show(self, text: str) -> None:
        if text == self._text:
            return
        n_rows, self._text = self._rows.n_rows, text
        self._rows.show(shown(text))
        self.drop_from(self._rows.n_same if self._tail_rows is None else 0)
        self.refresh(layout=self._rows.n_rows != n_rows)

    def set_tail(self, tail_rows: int | None) -> None:
        if tail_rows != self._tail_rows:
            self._tail_rows = tail_rows
            self.drop_from(0)
        self.refresh(layout=True)


class DiffBlock(LineBlock):
    """Lines of a patch: what it adds is green, what it takes away is red."""

    def row(self, y: int) -> Row:
        from pygments.token import Token  # PERF: after the first prompt

        from tui.code_rows import look_of

        row = first = super().row(y)
        while first.joins is not None:
            y -= 1
            first = super().row(y)
        generic = Token.Generic
        kind = {"+": generic.Inserted, "-": generic.Deleted}.get(first.content.plain[:1])
        style = kind and look_of(self.app).tokens.STYLES[kind]
        return row._replace(content=row.content.stylize(style)) if style else row
