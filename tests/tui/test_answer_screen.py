"""The screen has the model's words: streamed, opened again, and as it is stored.

Everything here looks at the cells of a real screen.
"""

import random
import re
import unicodedata
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import islice

import pytest
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.pilot import Pilot
from textual.selection import Selection

from tests.tui.documents import BLOCKS, at_random, every_pair, pieces
from tui.widgets.answer_view import AnswerView
from tui.widgets.line_block import LineBlock


class Page(App[None]):
    """One answer below the other, in a window that is high enough for all of it."""

    CSS = "VerticalScroll { scrollbar-size-vertical: 0; }"

    def compose(self) -> ComposeResult:
        yield VerticalScroll()


class Screen:
    """Shows answers, and reads the cells."""

    def __init__(self, app: Page, pilot: Pilot[None]) -> None:
        self.app = app
        self._pilot = pilot

    async def opened(self, text: str) -> list[str]:
        """The rows of a stored answer."""
        await self._mount(AnswerView(text, is_complete=True))
        return await self._settled()

    async def streamed(self, text: str, rng: random.Random, n_max: int = 50) -> list[str]:
        """The rows of an answer that came piece by piece, and was painted now and then."""
        view = AnswerView()
        await self._mount(view)
        shown = ""
        for piece in pieces(rng, text, n_max):
            shown += piece
            await view.show(shown)
            if rng.random() < 0.03:
                await self._pilot.pause()
                assert missing(shown.rsplit("\n", 1)[0], self.rows()) == Counter()
        await view.show(text, is_complete=True)
        return await self._settled()

    async def resized(self, width: int) -> list[str]:
        await self._pilot.resize_terminal(width, self.app.size.height)
        await self._pilot.pause()
        return self.rows()

    def rows(self) -> list[str]:
        strips = self.app.screen._compositor.render_strips()
        rows = [strip.text.rstrip() for strip in strips]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    async def _mount(self, view: AnswerView) -> None:
        page = self.app.query_one(VerticalScroll)
        await page.remove_children()
        await page.mount(view)

    async def _settled(self) -> list[str]:
        await self._pilot.pause()
        rows = self.rows()
        assert len(rows) < self.app.size.height, "the window is too low for this text"
        return rows


@asynccontextmanager
async def screen(width: int = 80, height: int = 260) -> AsyncIterator[Screen]:
    app = Page()
    async with app.run_test(size=(width, height)) as pilot:
        yield Screen(app, pilot)


def missing(source: str, rows: list[str]) -> Counter[str]:
    """Letters and digits of a text that are not on the screen."""
    drawn = re.sub(r"</?(?:br|kbd)>", "", source)
    return _signs(drawn) - _signs("".join(rows))


def _signs(text: str) -> Counter[str]:
    return Counter(c for c in unicodedata.normalize("NFKD", text) if c.isalnum())


async def test_each_block_alone() -> None:
    rng = random.Random(1)
    async with screen(height=60) as shown:
        for block in BLOCKS.values():
            text = f"Before.\n\n{block}\n\nAfter."
            opened = await shown.opened(text)
            assert missing(text, opened) == Counter()
            assert await shown.streamed(text, rng, 3) == opened, text


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.nightly)])
async def test_every_kind_of_block_after_every_other(step: int) -> None:
    rng = random.Random(2)
    async with screen() as shown:
        for text in islice(every_pair(rng), None, None, step):
            opened = await shown.opened(text)
            assert missing(text, opened) == Counter()
            assert await shown.streamed(text, rng) == opened, text


@pytest.mark.parametrize("width", [20, 194])
async def test_random_blocks_nested_and_cut_off(width: int) -> None:
    rng = random.Random(width)
    async with screen(width) as shown:
        for _ in range(6):
            text = at_random(rng, 200 // width + 4)
            opened = await shown.opened(text)
            assert missing(text, opened) == Counter(), text
            assert await shown.streamed(text, rng) == opened, text


@pytest.mark.parametrize(
    "text",
    [
        "words of one paragraph " * 400,
        "| a | b |\n|---|---|\n" + "| 1 | two words |\n" * 250,
        "- item\n\n" + "  A paragraph of it.\n\n" * 250,
        "```\n" + "line\n" * 1000,
        "> " * 120 + "deep",
        "".join("  " * n + "- deep\n" for n in range(70)),
        "![" * 3000,
    ],
    ids=["long", "table", "item", "code", "quotes", "lists", "brackets"],
)
async def test_long_and_deep_blocks(text: str) -> None:
    rng = random.Random(4)
    async with screen(80, 1200) as shown:
        opened = await shown.opened(text)
        assert missing(text, opened) == Counter()
        assert await shown.streamed(text, rng, 400) == opened


async def test_what_is_selected_is_the_text() -> None:
    """Rows that were one line are one line again, and our own signs are left out."""
    prose = "Some words of a paragraph that takes more than one row in a window this narrow."
    code = "value = compute(first_argument, second_argument)"
    async with screen(40) as shown:
        await shown.opened(f"{prose}\n\n```python\n{code}\n```\n\n> quoted")
        selected = shown.app.query_one(AnswerView).get_selection(Selection(None, None))
        assert selected is not None
        lines = [line for line in selected[0].split("\n") if line]
        assert lines == [prose, code, "quoted"]
    async with (app := Page()).run_test(size=(30, 20)) as pilot:
        await app.query_one(VerticalScroll).mount(block := LineBlock())
        block.show(f"{prose}\nAnd reasoning.")
        await pilot.pause()
        assert block.get_selection(Selection(None, None)) == (f"{prose}\nAnd reasoning.", "\n")


async def test_widths_and_themes() -> None:
    text = "\n\n".join(BLOCKS.values())
    async with screen(194) as shown:
        rows = await shown.opened("words " * 100 + "\n\n```\n" + "x" * 180 + "\n```\n")
        assert max(len(row) for row in rows if "words" in row) <= 100  # prose is read
        assert any("x" * 180 in row for row in rows)
        await shown.resized(80)
        before = await shown.opened(text)
        assert missing(text, await shown.resized(40)) == Counter()
        assert await shown.resized(80) == before
        shown.app.theme = "ansi-light"
        assert await shown.resized(80) == before
        await shown.opened("\n\n".join([BLOCKS["table"], BLOCKS["python"], BLOCKS["cjk"]]))
        for width in (9, 5, 3, 2, 1):
            await shown.resized(width)
        await shown.resized(80)
        assert "Done" in "".join(await shown.opened("Done"))
