"""Turn code into rows of a screen: highlighted, tinted, with a mark where a line is broken."""

import re
from typing import Any, NamedTuple

from pygments.token import Token
from rich.cells import chop_cells
from textual.app import App
from textual.content import Content
from textual.highlight import (
    ANSIDarkHighlightTheme,
    ANSILightHighlightTheme,
    HighlightTheme,
    highlight,
)

from tui.rows import TAB, LineRows, Row, wrapped

_DIM = "italic $text-comment"  # of tui.app

_OURS = (Token.Generic.Deleted, Token.Generic.Inserted,
         Token.Comment.Preproc, Token.Comment.PreprocFile)  # fmt: skip
_COLORS = dict(
    zip(_OURS, ("$text-error", "$text-success", "$text-accent", "$text-success"), strict=True)
)
_ANSI = dict(zip(_OURS, ("ansi_red", "ansi_green", "ansi_magenta", "ansi_green"), strict=True))


class _Tokens(HighlightTheme):
    """Textual's colours at their full strength: some would be too pale to read."""

    STYLES = {
        token: _DIM if token in Token.Comment else re.sub(r" \d+%", "", style)
        for token, style in HighlightTheme.STYLES.items()
    } | _COLORS


class _AnsiDark(ANSIDarkHighlightTheme):
    STYLES = ANSIDarkHighlightTheme.STYLES | _ANSI


class _AnsiLight(ANSILightHighlightTheme):
    STYLES = ANSILightHighlightTheme.STYLES | _ANSI


class CodeStyle(NamedTuple):
    """The look of code in a theme: its colours, and the styles under a block and within a line."""

    tokens: type[HighlightTheme]
    block: str
    inline: str


DARK = CodeStyle(_Tokens, "on black 15%", "$text-warning on $warning 10%")
LIGHT = CodeStyle(_Tokens, "on white 40%", "$text-error on $error 5%")
ANSI_DARK = CodeStyle(_AnsiDark, "", "$text-warning")
ANSI_LIGHT = CodeStyle(_AnsiLight, "", "$text-error")


def look_of(app: App[Any]) -> CodeStyle:
    is_dark = app.current_theme.dark
    if app.native_ansi_color:
        return ANSI_DARK if is_dark else ANSI_LIGHT
    return DARK if is_dark else LIGHT


_MARK = "↪ "
_PAD = 1
_MAX_HIGHLIGHTED = 400  # PERF: longer code is highlighted line by line, when it is seen


def code_rows(lines: list[str], info: str, width: int, look: CodeStyle) -> list[Row]:
    """Return all rows of complete code, of `width` cells at most.

    `lines` are without their ends; `info` is the text after the fence's marker: the language first.
    """
    rows = label_rows(info, width, look)
    language = _language(info)
    contents = _highlighted(lines, language, look)
    for content in contents or [_styled(line, language, look) for line in lines]:
        rows += _folded(content, width, look)
    return rows


def label_rows(info: str, width: int, look: CodeStyle) -> list[Row]:
    label = Content.styled(" ".join(info.split()), _DIM)
    rows = wrapped(label, max(4, width - 2 * _PAD)) if label else []
    return [_tinted(row.content, width, look, n_mark=len(row.content)) for row in rows]


class CodeRows(LineRows):
    n_padding = 2 * _PAD

    def __init__(self, info: str, look: CodeStyle) -> None:
        super().__init__()
        self._language_name = _language(info)
        self._look = look
        self._contents: list[Content] | None = None

    def close(self) -> None:
        """Highlight all of it together: a string may span several lines."""
        self._contents = _highlighted(self.lines, self._language_name, self._look)
        self._rows.clear()

    def rows_of(self, n: int, line: str, width: int) -> list[Row]:
        if self._contents is not None:
            return _folded(self._contents[n], width, self._look)
        content = _styled(line, self._language_name, self._look)
        return _folded(content, width, self._look)


def _language(info: str) -> str:
    words = info.replace("{", " ").replace("}", " ").replace(",", " ").split()
    return words[0].lstrip(".").lower() if words else "text"


def _highlighted(lines: list[str], language: str, look: CodeStyle) -> list[Content] | None:
    """Highlight code as a whole; None if it is too long for that, or has odd line ends."""
    if len(lines) > _MAX_HIGHLIGHTED:
        return None
    code = "\n".join(lines).expandtabs(TAB)
    contents = highlight(code, language=language, theme=look.tokens).split("\n", allow_blank=True)
    return contents if len(contents) == len(lines) else None


def _styled(line: str, language: str, look: CodeStyle) -> Content:
    """PERF: without a language nothing is highlighted; a guess takes Pygments up to 0.3 s."""
    line = line.expandtabs(TAB)
    return highlight(line, language=language, theme=look.tokens) if line.strip() else Content(line)


def _folded(content: Content, width: int, look: CodeStyle) -> list[Row]:
    inner = max(4, width - 2 * _PAD)
    if content.cell_length <= inner:
        return [_tinted(content, width, look)]
    offsets, position = [], 0
    for piece in chop_cells(content.plain, inner - len(_MARK)):
        position += len(piece)
        offsets.append(position)
    first, *more = content.divide(offsets[:-1])
    mark = Content.styled(_MARK, "$text-muted")
    return [
        _tinted(first, width, look),
        *(_tinted(mark + part, width, look, n_mark=len(_MARK), joins="") for part in more),
    ]


def _tinted(
    content: Content, width: int, look: CodeStyle, *, n_mark: int = 0, joins: str | None = None
) -> Row:
    padded = content.pad(_PAD, max(0, width - _PAD - content.cell_length))
    return Row(padded.stylize_before(look.block), _PAD + n_mark, joins)
