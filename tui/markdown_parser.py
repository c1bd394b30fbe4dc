r"""Parse a block of Markdown, with mathematics. Imports markdown-it, which takes 30 ms.

Mathematics is what stands in `\( \)`, `\[ \]`, `$ $` and `$$ $$`. Dollar amounts are not
mathematics: a formula between single dollars touches both, and no letter or digit touches them from
outside. Definitions of links are not looked for, as each block is parsed alone: they stay text.
"""

import re
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_block.table import escapedSplit
from markdown_it.rules_inline import StateInline
from markdown_it.tree import SyntaxTreeNode

MAX_NESTING: Final = 100

_INLINE = re.compile(
    r"\\\((?P<paren>.+?)\\\)"
    r"|\\\[(?P<bracket>.+?)\\\]"
    r"|\$\$(?P<double>(?:\\.|[^$\\])+?)\$\$"
    r"|(?<![\w$\\])\$(?P<single>(?=[^\s$])(?:\\.|[^$\\\n])+?)(?<!\s)\$(?![\w$])",
    re.DOTALL,
)
_DELIMITER = re.compile(r"\\[()\[\]]")
_CLOSERS = {"\\[": "\\]", "$$": "$$"}


def parse(text: str) -> SyntaxTreeNode:
    """Return the tree of a Markdown text."""
    return SyntaxTreeNode(_PARSER.parse(text))


def normal_link(target: object) -> str:
    """Return the address of a link as people read it: no `%E6`."""
    return _PARSER.normalizeLinkText(str(target))


def surplus_cells(line: str, n_columns: int) -> list[str]:
    """Return the cells of a table's row beyond its columns, which Markdown drops."""
    cells = [cell.strip() for cell in escapedSplit(line.strip().lstrip("> "))]
    if cells and not cells[0]:
        cells.pop(0)
    if cells and not cells[-1]:
        cells.pop()
    return cells[n_columns:]


def _math_inline(state: StateInline, silent: bool) -> bool:
    """Take a formula, or a delimiter without its partner, which would lose its backslash."""
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
    r"""Take lines from one that begins with `\[` or `$$` to one that ends with its partner."""
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


def _make_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"maxNesting": MAX_NESTING})
    parser.enable(["table", "strikethrough"]).disable("reference")
    parser.inline.ruler.before("escape", "math_inline", _math_inline)
    parser.block.ruler.before(
        "fence", "math_block", _math_block, {"alt": ["paragraph", "blockquote", "list"]}
    )
    return parser


_PARSER = _make_parser()
