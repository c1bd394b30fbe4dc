"""Words stay whole at the edge of a terminal, and code stays as it is."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gptoss_local.cli._printer import WordWrap
from tests.prose import PROSE, Piece
from tests.tui.documents import pieces

WIDTH = 30
LONG = "a long line of some words that is wider than the terminal"
TOO_LONG = "x" * 70


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))


def printed(text: str, n_max: int = 5) -> str:
    wrap = WordWrap()
    cut = pieces(random.Random(len(text)), text, n_max)
    return "".join(wrap.feed(piece) for piece in cut) + wrap.flush()


@given(st.lists(PROSE, min_size=1, max_size=4))
def test_each_digit_letter_and_operator_is_printed(lines: list[Piece]) -> None:
    text = "\n".join(markdown for markdown, _ in lines)
    assert "".join(printed(text).split()) == "".join(text.split())


@pytest.mark.parametrize(
    "code",
    [
        f"```py\n{LONG}\n\n{LONG}\n```\n",
        f"~~~\n{LONG}\n```\n{LONG}\n~~~\n",
        f"````md\n```\n{LONG}\n```\n{LONG}\n````\n",
        f"> ````\n> {LONG}\n> ```\n> {LONG}\n> ````\n",
        f"> > ~~~~ py\n> > {LONG}\n> > ~~~~\n",
        f"\n    {LONG}\n\n    {LONG}\n",
        f"\n\t{LONG}\n",
        f"1. ```sh\n   {LONG}\n   ```\n",
        f"- item\n\n  ```sh\n  {LONG}\n  ```\n",
        f"| {LONG} |\n|---|\n| {LONG} |\n",
        f"> | {LONG} |\n> |---|\n",
    ],
)
def test_code_and_tables_stay_as_they_are(code: str) -> None:
    for n_max in (1, 3, 80):
        assert printed(code, n_max) == code
    after = printed(f"{code}\n{LONG}\n")
    assert after.startswith(code)
    assert max(map(cell_len, after.removeprefix(code).split("\n"))) <= WIDTH


@pytest.mark.parametrize(
    "text",
    [
        LONG,
        f"> {LONG}",
        f"- item\n    - {LONG}",
        f"A paragraph.\n    {LONG}",
        f"~~struck~~ {LONG}",
        f"``code`` {LONG}",
        "\u26a0\ufe0f " * 30,
        "careful\u26a0\ufe0f " * 30,
        "a\tb\tcde\tf\tg\th\ti\tj\tk",
        "\U0001f469\u200d\U0001f469\u200d\U0001f467 family " * 8,
        "1\ufe0f\u20e3 first " * 9,
        "日本語の文章はとても長く、空白なしで続いていくので、折り返します。",
        TOO_LONG,
    ],
)
def test_rows_are_never_wider_than_the_terminal(text: str) -> None:
    for n_max in (1, 2, 3, 80):
        shown = printed(text, n_max)
        rows = [row.expandtabs(8) for row in shown.split("\n")]
        if text != TOO_LONG:  # the terminal itself breaks that
            assert max(map(cell_len, rows)) <= WIDTH, n_max
        assert "".join(shown.split()) == "".join(text.split())
