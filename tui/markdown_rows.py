r"""Turn Markdown, with mathematics, into rows that fit the width, without losing a character.

A formula in single dollars touches both, and no letter or digit touches them from outside. Link
definitions stay text. PERF: markdown-it takes 30 ms, so import this after the first prompt.
"""

import re
from typing import Final, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_block.table import escapedSplit
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode
from textual.content import Content, Span
from textual.style import Style

from tui.code_rows import CodeStyle, code_rows
from tui.markdown_blocks import bare_addresses, is_openable, shown_number
from tui.markdown_math import formula, formula_rows
from tui.markdown_signs import backslash, stars
from tui.markdown_table import Cell, Table, table_rows
from tui.rows import Row, wrapped

_BULLETS = "•◦▪"
_LEAST_WIDTH = 16  # blocks nested deeper are not indented any more
_READING_WIDTH = 100  # of prose, however wide the window is

_HEADINGS = {
    "h1": "bold underline $text-primary",
    "h2": "bold underline $text-primary",
    "h3": "bold $text-primary",
    "h4": "bold $text-primary",
    "h5": "bold",
    "h6": "bold",
}
_STYLES = {"strong": "bold", "em": "italic", "s": "strike", "link": "underline"}


_TAG = re.compile(r"</?(?P<name>br|kbd|sub|sup)\s*/?>", re.IGNORECASE)
_RAISED = {  # the letters that Unicode has
    "sub": str.maketrans("0123456789+-=()aeijnx", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑᵢⱼₙₓ"),
    "sup": str.maketrans("0123456789+-=()abcdehinrstx", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ᵃᵇᶜᵈᵉʰⁱⁿʳˢᵗˣ"),
}


class _Nesting(NamedTuple):
    width: int
    lines: list[str]
    look: CodeStyle
    n_lists: int = 0


def markdown_rows(text: str, width: int, look: CodeStyle, number: int | None = None) -> list[Row]:
    """Return the rows of Markdown; `number` is for the first item of an ordered list."""
    tree = parse(text)
    if any(node.level >= MAX_NESTING - 2 for node in tree.walk(include_self=False)):
        return wrapped(Content(text.rstrip("\n")), width)  # the parser has left something out
    place = _Nesting(width, text.split("\n"), look)
    rows: list[Row] = []
    for node in tree.children:
        if rows:
            rows.append(Row())
        rows += _block(node, place, number)
        number = None
    return rows


_N_TOGETHER = 20  # rows of a table that are parsed together


class LongTable:
    """A table of many rows that grows: its beginning decides about its columns."""

    def __init__(self) -> None:
        self._made_for: tuple[int, CodeStyle] | None = None
        self._table: Table
        self._done: list[Row] = []
        self._n_done = 0  # lines

    def rows(self, text: str, width: int, look: CodeStyle) -> list[Row]:
        """Return the rows of all of it. PERF: those of its first lines are kept."""
        lines = text.strip("\n").split("\n")
        head, lines = lines[:2], lines[2:]

        def cells_of(part: list[str]) -> list[list[Cell]]:
            typed = [*head, *part]
            return _cells(parse("\n".join(typed)).children[0], _Nesting(width, typed, look))

        if self._made_for != (width, look):
            self._made_for, self._n_done = (width, look), 0
            self._table = Table(cells_of(lines), width)
            self._done = self._table.head
        while len(lines) - self._n_done > _N_TOGETHER:
            part = lines[self._n_done : self._n_done + _N_TOGETHER]
            self._done += self._table.body(cells_of(part)[1:], is_first=not self._n_done)
            self._n_done += _N_TOGETHER
        rest = cells_of(lines[self._n_done :])[1:]
        return self._done + self._table.body(rest, is_first=not self._n_done)


def _block(node: SyntaxTreeNode, place: _Nesting, number: int | None = None) -> list[Row]:
    match node.type:
        case "paragraph":
            return _prose(_inline(node, place), place)
        case "heading":
            return _prose(_inline(node, place).stylize_before(_HEADINGS[node.tag]), place)
        case "bullet_list" | "ordered_list":
            return _list(node, place, number)
        case "blockquote":
            bar = Content.styled("▌ ", "$text-primary")
            inner = place._replace(width=place.width - 2)
            if inner.width < _LEAST_WIDTH:
                return _children(node, place)
            rows = _children(node, inner) or [Row()]
            return [row.after(bar, is_mark=True) for row in rows]
        case "fence" | "code_block":
            lines = node.content.rstrip("\n").split("\n")
            return code_rows(lines, node.info, place.width, place.look)
        case "table":
            return table_rows(_cells(node, place), place.width)
        case "hr":
            return [Row(Content.styled("─" * min(place.width, _READING_WIDTH), "$text-muted"))]
        case "math_block":
            if (drawn := formula_rows(node.info, place.width - 4)) is None:
                return _lines(node.content, place)
            return [Row(Content.styled(f"  {row}", "italic")) for row in drawn]
        case _:  # HTML
            return _lines(node.content, place)


def _children(node: SyntaxTreeNode, place: _Nesting) -> list[Row]:
    rows: list[Row] = []
    for child in node.children:
        if rows and child.map is not None and not place.lines[child.map[0] - 1].strip(" \t>"):
            rows.append(Row())
        rows += _block(child, place)
    return rows


def _list(node: SyntaxTreeNode, place: _Nesting, number: int | None) -> list[Row]:
    rows: list[Row] = []
    typed_before = -1
    for item in node.children:
        if node.type == "ordered_list":
            if rows or number is None:
                number = shown_number(int(item.info), typed_before, number or 0)
            typed_before, mark = int(item.info), f"{number}{item.markup} "
        else:
            mark = f"{_BULLETS[min(place.n_lists, len(_BULLETS) - 1)]} "
        if rows and item.map is not None and not place.lines[item.map[0] - 1].strip(" \t>"):
            rows.append(Row())
        is_deep = place.width - len(mark) < _LEAST_WIDTH
        indent = 0 if is_deep else len(mark)
        inner = place._replace(width=place.width - indent, n_lists=place.n_lists + 1)
        own = _children(item, inner) or [Row()]
        if is_deep:
            rows += wrapped(Content.styled(mark, "$text-primary"), place.width) + own
            continue
        rows.append(own[0].after(Content.styled(mark, "$text-primary")))
        rows += [row.after(Content(" " * indent)) for row in own[1:]]
    return rows


def _prose(content: Content, place: _Nesting) -> list[Row]:
    return wrapped(content, min(place.width, _READING_WIDTH))


def _lines(text: str, place: _Nesting) -> list[Row]:
    return wrapped(Content(text.rstrip("\n")), place.width)


def _cells(table: SyntaxTreeNode, place: _Nesting) -> list[list[Cell]]:
    rows = [row for part in table.children for row in part.children]
    cells = [
        [Cell(_inline(cell, place), _alignment(cell)) for cell in row.children] for row in rows
    ]
    for row, node in zip(cells, rows, strict=True):
        line = place.lines[node.map[0]] if node.map else ""
        if len(typed := _typed_cells(line)) <= len(row):
            continue
        whole = _typed_cells(_CODE.sub(lambda found: found[0].replace("|", r"\|"), line))
        if len(whole) == len(row):  # a bar in code ends no cell: `ps | grep x`
            nodes = [SyntaxTreeNode(_PARSER.parseInline(text)).children[0] for text in whole]
            contents = [_inline(node, place) for node in nodes]
        else:  # Markdown would drop the last ones
            surplus = Content(" | ".join(["", *typed[len(row) :]]))
            contents = [*(cell.content for cell in row[:-1]), row[-1].content + surplus]
        row[:] = [cell._replace(content=c) for cell, c in zip(row, contents, strict=True)]
    return cells


def _alignment(cell: SyntaxTreeNode) -> str:
    return str(cell.attrs.get("style", "")).removeprefix("text-align:") or "left"


def _inline(block: SyntaxTreeNode, place: _Nesting) -> Content:
    builder = _Inline(place.look)
    for child in block.children:
        builder.add(child)
    return Content("".join(builder.parts), builder.spans)


class _Inline:
    def __init__(self, look: CodeStyle) -> None:
        self._styles = _STYLES | {"code_inline": look.inline}
        self.parts: list[str] = []
        self.spans: list[Span] = []
        self._n = 0
        self._tags: dict[str, tuple[int, int]] = {}  # parts and characters before an open one

    def add(self, node: SyntaxTreeNode) -> None:
        start = self._n
        match node.type:
            case "softbreak" | "hardbreak":  # models do not wrap their lines
                self._append("\n")
            case "math_inline":
                self._add_formula(node)
            case "html_inline" if found := _TAG.fullmatch(node.content):
                self._add_tag(node.content, found["name"].lower())
            case "image":
                self._append(f"🖼 {node.content} ({normal_link(node.attrs['src'])})")
            case _ if node.children:
                for child in node.children:
                    self.add(child)
            case _:
                self._append(node.content)
                for a, b in bare_addresses(node.content) if node.type == "text" else ():
                    link = Style(link=node.content[a:b])
                    self.spans.append(Span(start + a, start + b, link))
        if node.type in self._styles and self._n > start:
            self.spans.append(Span(start, self._n, self._styles[node.type]))
        if node.type == "link":
            target = normal_link(node.attrs["href"])
            if target.removeprefix("mailto:") != "".join(self.parts)[start:]:
                self._append(f" ({target})")
            if is_openable(href := str(node.attrs["href"])):
                self.spans.append(Span(start, self._n, Style(link=href)))

    def _add_tag(self, tag: str, name: str) -> None:
        """Draw `<br>`, `<kbd>`, `<sub>` and `<sup>`; without its partner, a tag stays as typed."""
        if name == "br":
            self._append("\n")
            return
        if tag[1] != "/" or name not in self._tags:
            self._tags |= {} if tag[1] == "/" else {name: (len(self.parts), self._n)}
            self._append(tag)
            return
        first, start = self._tags.pop(name)
        opener, *inner = self.parts[first:]
        text = "".join(inner)
        n = len(opener)
        self.spans = [
            Span(a - n * (a > start), b - n * (b > start), style) for a, b, style in self.spans
        ]
        if name == "kbd":
            self.spans.append(Span(start, start + len(text), "reverse"))
        else:
            raised = text.translate(_RAISED[name])
            is_whole = not any(sign in text for sign in raised)
            text = raised if is_whole else f"{'_^'[name == 'sup']}({text})"
        self.parts[first:] = [text]
        self._n = start + len(text)

    def _add_formula(self, node: SyntaxTreeNode) -> None:
        shown = formula(node.info)
        start = self._n
        self._append(node.content if shown is None else shown)
        if shown is not None:
            self.spans.append(Span(start, self._n, "italic"))

    def _append(self, text: str) -> None:
        self.parts.append(text)
        self._n += len(text)


MAX_NESTING: Final = 100

_INLINE = re.compile(
    r"\\\((?P<paren>.+?)\\\)"
    r"|\\\[(?P<bracket>.+?)\\\]"
    r"|\$\$(?P<double>(?:\\.|[^$\\])+?)\$\$"
    r"|(?<![\w$\\])\$(?P<single>(?=[^\s$])(?:\\.|[^$\\\n])+?)(?<!\s)\$(?![\w$])",
    re.DOTALL,
)
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
_CONTAINERS = re.compile(r"(?:(?:>|[-+*]\s|\d+[.)]\s)\s*)*")  # before the first line of a table
_DELIMITER = re.compile(r"\\[()\[\]]")
_CLOSERS = {"\\[": "\\]", "$$": "$$"}


def parse(text: str) -> SyntaxTreeNode:
    return SyntaxTreeNode(_PARSER.parse(text))


def block_tokens(text: str) -> list[Token]:
    """Return the tokens that begin the outermost blocks, of lists those of their items."""
    return [
        token
        for token in _BLOCK_PARSER.parse(text.replace("\r", " "))
        if (token.level == 0 and token.map and not token.type.endswith("list_open"))
        or (token.level == 1 and token.type == "list_item_open")
    ]


def normal_link(target: object) -> str:
    """Return the address of a link as people read it: no `%E6`."""
    return _PARSER.normalizeLinkText(str(target))


def _typed_cells(line: str) -> list[str]:
    cells = [cell.strip() for cell in escapedSplit(_CONTAINERS.sub("", line.strip()))]
    if cells and not cells[0]:
        cells.pop(0)
    if cells and not cells[-1]:
        cells.pop()
    return cells


def _math_inline(state: StateInline, silent: bool) -> bool:
    """Parse a formula, or a delimiter without its partner, which would lose its backslash."""
    if state.src[state.pos] not in "\\$":
        return False
    found = _INLINE.match(state.src, state.pos) or _DELIMITER.match(state.src, state.pos)
    if found is None or found.end() > state.posMax:
        return False
    if not silent:
        token = state.push("math_inline" if found.re is _INLINE else "text", "", 0)
        token.content = found[0]
        token.info = next(filter(None, found.groups()), "")
    state.pos = found.end()
    return True


def _math_block(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    r"""Parse lines from one that begins with `\[` or `$$` to one that ends with its partner."""
    if state.is_code_block(start_line):
        return False
    closer = None
    for line in range(start_line, end_line):
        if state.isEmpty(line) or state.sCount[line] < state.blkIndent:
            return False
        text = state.getLines(line, line + 1, state.blkIndent, False).strip()
        if closer is None:
            closer, text = _CLOSERS.get(text[:2]), text[2:]
            if closer is None:
                return False
        if text.endswith(closer):
            if not silent:
                token = state.push("math_block", "", 0)
                token.block, token.map = True, [start_line, line + 1]
                token.content = state.getLines(start_line, line + 1, state.blkIndent, False)
                token.info = token.content.strip()[2:-2]
            state.line = line + 1
            return True
    return False


class _Parser(MarkdownIt):
    def validateLink(self, url: str) -> bool:  # else `calls[0](x)` loses its brackets
        return is_openable(url) or url.startswith("mailto:")


def _make_parser() -> MarkdownIt:
    parser = _Parser("commonmark", {"maxNesting": MAX_NESTING})
    parser.enable(["table", "strikethrough"]).disable("reference")
    parser.inline.ruler.before("escape", "math_inline", _math_inline)
    parser.inline.ruler.before("escape", "backslash", backslash)
    parser.inline.ruler.before("emphasis", "stars", stars)
    parser.block.ruler.before(
        "fence", "math_block", _math_block, {"alt": ["paragraph", "blockquote", "list"]}
    )
    return parser


_PARSER = _make_parser()
_BLOCK_PARSER = _make_parser().disable("inline")
