"""Answers drawn on a terminal: what is on the screen at the end is the whole answer, drawn."""

import io
import random
import re

import pytest

from gptoss_local.cli import _drawn
from gptoss_local.cli._drawn import DrawnText
from tests.cli.conftest import rows_left
from tests.tui.documents import BLOCKS, pieces
from tui.code_rows import ANSI_DARK
from tui.markdown_rows import markdown_rows

pytestmark = pytest.mark.quick

_CODES = re.compile(r"\x1b\[[\d;]*m|\x1b\]8;[^\x1b]*\x1b\\")


def on_screen(written: str) -> list[str]:
    """Return the rows that a terminal shows, which obeys what was written."""
    rows = rows_left(_CODES.sub("", written))
    assert not any("\x1b" in row for row in rows)
    return [row.rstrip() for row in rows]


def drawn(texts: list[str]) -> list[str]:
    stream = io.StringIO()
    text = DrawnText(stream)
    for each in texts:
        text.feed(each)
    text.end()
    return on_screen(stream.getvalue())


@pytest.mark.parametrize("rows", [24, 100])
def test_an_answer_in_pieces_is_drawn_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda: (61, rows))
    monkeypatch.setattr(_drawn, "_EVERY_S", -1)  # each piece is drawn
    monkeypatch.setattr(_drawn, "_MAX_SHARE", 1e9)
    rng = random.Random(1)
    whole = "\n\n".join(BLOCKS.values())
    for name, block in {**BLOCKS, "all": whole}.items():
        assert drawn(list(pieces(rng, block, 9))) == drawn([block]), name
    assert drawn(["A &#27;[2J \x1b[2J **b** &#x9b;1m"])[0].count("[2J") == 2
    assert drawn(["A **bold** word and `x`."]) == ["A bold word and x.", ""]
    for block in BLOCKS.values():
        typed = [row.content.plain.rstrip() for row in markdown_rows(block, 60, ANSI_DARK)]
        assert drawn([block])[:-1] == typed
