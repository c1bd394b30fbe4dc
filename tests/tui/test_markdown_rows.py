"""Markdown on the screen: signs of arithmetic, paths and names stay; emphasis is drawn."""

import pytest
from hypothesis import given

from tests.prose import PROSE, Piece
from tui.code_rows import DARK
from tui.markdown_rows import markdown_rows

pytestmark = pytest.mark.quick


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
