"""Rows of text that grows: the same as of the whole text, and nothing is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.content import Content

from tui.markdown_math import formula, formula_rows
from tui.markdown_table import Cell, column_widths, table_rows
from tui.rows import LineRows, wrapped

_PIECES = st.lists(st.sampled_from(
    ["word", " ", "  ", "\n", "\t", "日本語", "a-very-long-word-without-a-space", "🎉", "x", ". "]
), max_size=60)  # fmt: skip


@given(_PIECES, st.integers(2, 30))
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


def test_rows_join_to_the_line_they_were() -> None:
    rows = wrapped(Content("two words and a-word-that-is-broken"), 10)
    text = "".join((row.joins or "") + row.content.plain for row in rows)
    assert text == "two words and a-word-that-is-broken"


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


# Formulas of the kinds that answers have: as one line, as rows, or as they were typed (None).
@pytest.mark.parametrize(
    ("tex", "shown"),
    [
        ("a^2+b^2=c^2", "a²+b²=c²"),
        (r"O(n \log n)", "O(n log n)"),
        (r"\log_2 n", "log₂n"),
        (r"x \in \mathbb{R}^n", "x∈ℝⁿ"),
        (r"2\times 3 = 6 \approx 6.0", "2×3=6≈6.0"),
        (r"A^{-1}", "A⁻¹"),
        (r"a_{\text{max}}", "aₘₐₓ"),
        (r"\hat{y} = \sigma(Wx + b)", "ŷ=σ(Wx+b)"),
        (r"a \equiv b \pmod{n}", "a≡b (mod n)"),
        (r"\{1, 2, 3\}", "{1,2,3}"),
        (r"x \in [0, 1]", "x∈[0,1]"),
        (r"p \implies q", "p⇒q"),
        (r"50\%", "50%"),
        (r"\ce{H2O}", None),  # chemistry
        (r"\overline{AB} \parallel \overline{CD}", None),
        (r"\color{red}{x}", None),
        (r"\frac{1}{2", None),
        ("5 and 6", None),  # dollar amounts: $5 and 6$
        ("foo", None),  # a group of a regular expression
        ("x is even", None),
        (r"\text{if } x > 0", "if x>0"),
        (r"\frac{1}{2}", None),  # it takes three rows
        ("", None),
    ],
)
def test_formulas_in_a_line(tex: str, shown: str | None) -> None:
    assert formula(tex) == shown


@pytest.mark.parametrize(
    ("tex", "rows"),
    [
        (r"x = \frac{-b \pm \sqrt{b^2-4ac}}{2a}",
         ["       ┌──────╴", "   -b±╰┘b²-4ac", "x=╶────────────╴", "        2a"]),
        (r"\begin{pmatrix} a & b \\ c & d \end{pmatrix}", ["⎛a b⎞", "⎝c d⎠"]),
        (r"\begin{aligned} x + y &= 5 \\ x - y &= 1 \end{aligned}", ["x+y=5", "x-y=1"]),
        (r"\boxed{42}", ["┌────┐", "│ 42 │", "└────┘"]),
        (r"\underbrace{a+b}_{c}", None),
        ("x+" * 60 + "x", None),  # wider than the window
    ],
)  # fmt: skip
def test_formulas_in_rows(tex: str, rows: list[str] | None) -> None:
    assert formula_rows(tex, 70) == rows
