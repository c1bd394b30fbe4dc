"""Markdown of a growing text: nothing is lost, and it is drawn as the whole text would be."""

import random
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from texicode.symbols_art import symbols
from textual.content import Content

from tests.prose import PROSE, Piece
from tests.tui.documents import at_random, every_pair
from tui.code_rows import DARK
from tui.markdown_math import formula, formula_rows
from tui.markdown_rows import markdown_rows, parse
from tui.markdown_splitter import Block, BlockSplitter
from tui.markdown_table import Cell, column_widths, table_rows
from tui.rows import LineRows
from tui.widgets.answer_view import AnswerView

pytestmark = pytest.mark.quick

_LINES = st.sampled_from(
    ["", "a word", "  ", "# title", "- item", "  more", "2. two", "12", "```py", "```", "~~~~",
     "| a | b |", "|---|---|", "x = `1`", "    code", "-", "*bold*", "1.", "``", "> quoted", "---",
     "10. ten", "   - nested", "<div>", "<!-- c", "-->", "<b>", "\\[", "\\]", "$$", "```a`b"]
)  # fmt: skip
_TEXTS = st.one_of(st.text(max_size=80), st.lists(_LINES, max_size=25).map("\n".join))


def split(pieces: list[str]) -> list[Block]:
    splitter = BlockSplitter()
    return [block for piece in pieces for block in splitter.feed(piece)] + splitter.close()


@given(_TEXTS)
def test_blocks_make_the_text_again_at_every_moment(text: str) -> None:
    splitter, done = BlockSplitter(), ""
    for n, character in enumerate(text, 1):
        done += "".join(block.text for block in splitter.feed(character))
        assert done + splitter.open.text == text[:n]
    assert done + "".join(block.text for block in splitter.close()) == text
    assert splitter.open.text == ""


@given(_TEXTS, st.data())
def test_blocks_do_not_depend_on_the_pieces(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert split(pieces) == split([text]) == split(list(text))


def test_numbers_are_those_that_were_typed() -> None:
    for typed, shown in (("123", "123"), ("111", "123"), ("357", "357"), ("121", "121")):
        blocks = split(["".join(f"{n}. item\n" for n in typed)])
        assert [block.number for block in blocks] == [int(n) for n in shown]


@given(st.lists(_LINES, max_size=4).map("\n".join))
def test_blocks_are_to_markdown_what_the_whole_is(text: str) -> None:
    apart = [token for block in split([text]) for token in tokens_of(block.text)]
    assert apart == tokens_of(text)


def test_all_kinds_of_blocks_are_to_markdown_what_the_whole_is() -> None:
    rng = random.Random(3)
    for text in [*every_pair(rng), *(at_random(rng, 12) for _ in range(20))]:
        text = text.replace("\r", "")
        apart = [token for block in split([text]) for token in tokens_of(block.text)]
        assert apart == tokens_of(text)


def tokens_of(text: str) -> list[tuple[str, str, str]]:
    """The structure that Markdown sees in a text, but for where lists begin and end: items are
    blocks here.
    """
    return [
        (token.type, token.content.rstrip("\n"), token.markup)
        for node in parse(text).walk(include_self=False)
        if node.type not in ("bullet_list", "ordered_list")
        for token in (node.to_tokens()[0],)
    ]


def text_of(markdown: str) -> str:
    rows = markdown_rows(markdown, 60, DARK)
    return "".join((row.joins or "") + row.content.plain for row in rows)


@given(PROSE)
def test_each_digit_letter_and_operator_is_on_the_screen(prose: Piece) -> None:
    markdown, shown = prose
    assert text_of(markdown).split() == shown.split()


@pytest.mark.parametrize(
    ("markdown", "style", "part"),
    [
        ("a **bold** word", "bold", "bold"),
        ("an *italic* word", "italic", "italic"),
        ("**太字**です", "bold", "太字"),
        ("**굵게**는", "bold", "굵게"),
        ("10**6 is **big**", "bold", "big"),
        ("*args is **one**", "bold", "one"),
    ],
)
def test_emphasis_is_drawn(markdown: str, style: str, part: str) -> None:
    (row,) = markdown_rows(markdown, 60, DARK)
    (span,) = row.content.spans
    assert (span.style, row.content.plain[span.start : span.end]) == (style, part)


@pytest.mark.parametrize(
    ("markdown", "rows"),
    [
        ("Best regards,\n• one\n• two", ["Best regards,", "• one", "• two"]),
        ("|a|b|\n|-|-|\n|`ps | grep x`|y|\n|`a \\| b`|*y* | z|",
         ["a           │ b", "────────────┼──────", "ps | grep x │ y", "a | b       │ y | z"]),
        ("- | a | b |\n  |---|---|\n  | 1 | 2 |", ["• a │ b", "  ──┼──", "  1 │ 2"]),
    ],
)  # fmt: skip
def test_lines_and_cells_are_those_that_were_written(markdown: str, rows: list[str]) -> None:
    assert [row.content.plain.rstrip() for row in markdown_rows(markdown, 60, DARK)] == rows


_PIECES = st.lists(st.sampled_from(
    ["word", " ", "  ", "\n", "\t", "日本語", "a-very-long-word-without-a-space", "🎉", "x", ". "]
), max_size=60)  # fmt: skip


@given(_PIECES, st.integers(2, 30))
@example(["a-very-long-word-without-a-space", " ", *["word"] * 7], 30)
def test_growing_lines_have_the_rows_of_the_whole(pieces: list[str], width: int) -> None:
    growing, whole, text = LineRows(), LineRows(), ""
    growing.fit(width)
    for piece in pieces:
        text += piece
        growing.show(text)
    whole.show(text)
    whole.fit(width)
    rows = [whole.row(y) for y in range(whole.n_rows)]
    assert [growing.row(y).content.plain for y in range(growing.n_rows)] == [
        row.content.plain for row in rows
    ]
    assert all(row.content.cell_length <= width for row in rows)
    assert "".join("".join(row.content.plain for row in rows).split()) == "".join(text.split())


def table(*rows: tuple[str, ...]) -> list[list[Cell]]:
    return [[Cell(Content(text)) for text in row] for row in rows]


NUMBERS = table(
    ("name", "year", "what it is and does, in a long header", "share", "説明"),
    ("gpt-oss-20b", "2024", "words " * 20, "1,234.56", "日本語の長い説明文です"),
    ("gpt-oss-120b", "2025", "short", "-0.5%", "短い"),
)


@pytest.mark.parametrize("width", [58, 78, 192])
def test_numbers_and_words_of_a_wide_table_stay_whole(width: int) -> None:
    rows = [row.content for row in table_rows(NUMBERS, width)]
    assert all(cell_len(row.plain) <= width for row in rows)
    text = "\n".join(row.plain for row in rows)
    for whole in ("2024", "2025", "1,234.56", "-0.5%", "gpt-oss-20b", "gpt-oss-120b", "year"):
        assert whole in text
    assert text.count("words") == 20
    assert "…" not in text


def test_a_table_with_too_many_columns_becomes_lines() -> None:
    header = tuple(f"column {n}" for n in range(12))
    rows = table_rows(table(header, tuple(str(n * 1_000_001) for n in range(12))), 40)
    assert [row.content.plain for row in rows][:2] == ["column 0: 0", "column 1: 1000001"]


@given(
    st.lists(st.tuples(st.integers(1, 90), st.integers(1, 20)), min_size=1, max_size=8),
    st.integers(8, 200),
)
def test_columns_share_the_width(columns: list[tuple[int, int]], width: int) -> None:
    wanted = [want for want, _ in columns]
    least = [min(columns[n]) for n in range(len(columns))]
    widths = column_widths(wanted, least, width)
    if widths is None:
        assert sum(least) > width
        return
    assert sum(widths) == min(sum(wanted), width)
    for got, want, low in zip(widths, wanted, least, strict=True):
        assert low <= got <= want


FORMULAS = r"""
\frac{1}{2} | 1/2
\frac{a+b}{2} | (a + b)/2
\frac12 mv^2 | 1/2 mv²
\frac{n!}{k!(n-k)!} | n!/(k!(n - k)!)
x = \frac{-b \pm \sqrt{b^2-4ac}}{2a} | x = (-b ± √(b² - 4ac))/(2a)
\frac{\partial^2 f}{\partial x^2} | ∂²f/∂x²
\mu = \frac{1}{N}\sum_{i=1}^N x_i | μ = 1/N ∑ᵢ₌₁ᴺ xᵢ
e^{i\pi}+1=0 | e^(iπ) + 1 = 0
e^{-x^2/2} | e^(-x²/2)
2^{2^n} | 2^(2ⁿ)
x^{\frac{1}{2}} | x^(1/2)
10^{-6} | 10⁻⁶
90^\circ | 90°
V_C = IR | V_C = IR
x_{i,j} | x_(i,j)
a_{\text{max}} | aₘₐₓ
x_1, x_2, \ldots, x_n | x₁, x₂, …, xₙ
\sum_{k=0}^{\infty} \frac{x^k}{k!} | ∑ₖ₌₀^∞ xᵏ/k!
\prod_{k=1}^n k = n! | ∏ₖ₌₁ⁿ k = n!
\int_0^\infty e^{-x} dx = 1 | ∫₀^∞ e⁻ˣ dx = 1
\lim_{x \to 0} \frac{\sin x}{x} = 1 | lim_(x→0) (sin x)/x = 1
\binom{n}{k} | C(n, k)
\sqrt{a^2 + b^2} | √(a² + b²)
\sqrt{\frac{a}{b}} | √(a/b)
\frac{1}{(1+x)^2} | 1/(1 + x)²
\sqrt{x}^2 | (√x)²
\sqrt[3]{27} = 3 | ∛27 = 3
\left(\frac{a}{b}\right)^n | (a/b)ⁿ
O(n \log n) | O(n log n)
f'(x) = 2x | f′(x) = 2x
2\times 3 = 6 \approx 6.0 | 2 × 3 = 6 ≈ 6.0
\hat{y} = \sigma(Wx + b) | ŷ = σ(Wx + b)
a \equiv b \pmod{n} | a ≡ b (mod n)
\{1, 2, 3\} \subseteq \mathbb{N} | {1, 2, 3} ⊆ ℕ
\nabla \cdot \vec{E} = \frac{\rho}{\varepsilon_0} | ∇ · E⃗ = ρ/ε₀
f: X \to Y | f: X → Y
p \implies \neg q | p ⇒ ¬q
-x < 1{,}000 | -x < 1,000
50\% | 50%
\text{if } x > 0 | if x > 0
"""


@pytest.mark.parametrize("row", FORMULAS.strip().split("\n"))
def test_everyday_formulas_in_a_line(row: str) -> None:
    tex, line = row.split(" | ")
    assert formula(tex) == line


@pytest.mark.parametrize(
    "tex",
    [r"\frac{1}{2", "&", r"\sqrt[", "5 and 6", "foo", "x is even", ""],
)
def test_formulas_that_stay_as_they_were_typed(tex: str) -> None:
    """Incomplete formulas, dollar amounts as in $5 and 6$, a group of a regex."""
    assert formula(tex) is None


@pytest.mark.parametrize(
    ("tex", "rows"),
    [
        (r"x = \frac{-b \pm \sqrt{b^2-4ac}}{2a}",
         ["       ┌──────╴", "   -b±╰┘b²-4ac", "x=╶────────────╴", "        2a"]),
        (r"\begin{pmatrix} a & b \\ c & d \end{pmatrix}", ["⎛a b⎞", "⎝c d⎠"]),
        (r"\begin{aligned} x + y &= 5 \\ x - y &= 1 \end{aligned}", ["x+y=5", "x-y=1"]),
        (r"\boxed{42}", ["┌────┐", "│ 42 │", "└────┘"]),
        (r"\underbrace{a+b}_{c}", ["(a + b)⏟(c)"]),
        (r"\unknown{a+b}", None),
        ("x+" * 60 + "x", None),  # wider than the window
    ],
)  # fmt: skip
def test_formulas_in_rows(tex: str, rows: list[str] | None) -> None:
    assert formula_rows(tex, 70) == rows


WRITTEN = (Path(__file__).parent / "formulas.txt").read_text(encoding="utf-8").splitlines()
"""Formulas as models write them, with their text in a line, or how else they are shown."""
ALSO = {"circ": "∘°˚", "cdot": "·⋅", "int": "∫⌠", "sum": "∑┰", "prod": "∏┰", "not": "≠∉",
        "in": "∈∉", "iff": "⇔", "lfloor": "⌊⎣", "rfloor": "⌋⎦"}  # fmt: skip


@pytest.mark.parametrize("row", WRITTEN)
def test_formulas_are_drawn_whole_or_stay_as_typed(row: str) -> None:
    tex, expected = row.split("\t")
    line, rows = formula(tex), formula_rows(tex, 100)
    assert expected == (line or ("(in rows)" if rows else "(as typed)"))
    plain = "\n".join(row.content.plain for row in markdown_rows(f"\\[\n{tex}\n\\]", 120, DARK))
    if not rows:
        assert tex in plain
        return
    for shown in filter(None, (line, plain)):
        assert not re.search(r"\\|\{[^}]*\\|[_^]\{", shown), shown
        for name in re.findall(r"\\([A-Za-z]+)", tex):
            sign = "".join(symbols.get(name, "")).strip()
            signs = ALSO.get(name, sign)
            assert not sign or sign.isalpha() or any(each in shown for each in signs), (name, shown)


LINES = (Path(__file__).parents[1] / "written.txt").read_text(encoding="utf-8").splitlines()
"""Lines as models write them, behind a tab their text on the screen if it differs."""


@pytest.mark.parametrize("line", LINES)
def test_signs_stay_as_they_were_written(line: str) -> None:
    markdown, _, shown = line.partition("\t")
    rows = markdown_rows(markdown, 200, DARK)
    assert " ".join(row.content.plain for row in rows) == (shown or markdown)


@pytest.mark.parametrize("width", [100, 60, 14])
async def test_a_long_table_stays_a_table_while_it_streams(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its columns stay as they were once it is long; no cell is lost."""
    cells = [(str(n), f"**name** {n}", "some words " * (n % 5)) for n in range(400)]
    head = "| n | name | about |\n|---|:-:|---|\n"
    text = head + "".join(f"| {' | '.join(row)} |\n" for row in cells)
    view, widths = AnswerView(), set()
    monkeypatch.setattr(AnswerView, "app", None)
    monkeypatch.setattr("tui.widgets.answer_view.look_of", lambda _: DARK)
    view.drop_from = lambda y: None  # type: ignore[method-assign]
    view.wrap(width)
    for end in range(len(head), len(text), 977):
        view._add(text[:end], is_complete=False)
        rows = [view.row(y).content.plain for y in range(view.n_rows)]
        assert not [row for row in rows if "|" in row]
        widths |= {tuple(map(len, row.split("┼"))) for row in rows if end > 6000 and "┼" in row}
    view._add(text, is_complete=True)
    rows = [view.row(y).content.plain for y in range(view.n_rows)]
    words = Counter(" ".join(rows).replace("│", " ").split())
    assert not Counter(" ".join(map(" ".join, cells)).replace("**", "").split()) - words
    assert len(widths) == (width > 14)
    assert view.row(0).content.plain.split()[0] == ("n" if width > 14 else "n:")
