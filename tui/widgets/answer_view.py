"""An answer in Markdown: finished blocks are rendered once, the open one by `LineBlock`."""

from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical

from tui.markdown_blocks import Block, BlockSplitter
from tui.widgets.line_block import LineBlock

if TYPE_CHECKING:
    from tui.widgets.answer_markdown import AnswerMarkdown

_MAX_LINES = {"fence": 400, "table": 40, "text": 1000}
"""PERF: longer blocks stay as they streamed; Textual's Markdown blocks keys for 0.2 s at that."""

_MAX_MARKDOWN = 2000  # characters of text in one widget


class AnswerView(Vertical):
    """Shows a text that grows.

    Args:
        text: What is there when it is mounted, complete if `is_complete`.
    """

    BLANK = True  # PERF: else all its rows are rendered, however few are seen
    DEFAULT_CSS = "AnswerView { height: auto; }"

    def __init__(self, text: str = "", *, is_complete: bool = False) -> None:
        super().__init__()
        self._splitter = BlockSplitter()
        self._n_shown = 0
        self._open: LineBlock | None = None
        self._last: AnswerMarkdown | None = None  # takes more blocks, if there is one
        self._initial: list[Block] = []
        if text:
            self._n_shown = len(text)
            self._initial = self._splitter.feed(text)
            if is_complete:
                self._initial += self._splitter.close()

    def compose(self) -> ComposeResult:
        text = ""  # small blocks share one widget
        for block in self._initial:
            if _is_small(block):
                text += block.text
                continue
            if text.strip():
                yield rendered(text)
            text = ""
            lines = self._lines_of(block)
            yield lines
        if text.strip():
            yield rendered(text)

    async def show(self, text: str, *, is_complete: bool = False) -> None:
        """Show the text so far; it begins with what was shown before."""
        finished = self._splitter.feed(text[self._n_shown :])
        self._n_shown = len(text)
        if is_complete:
            finished += self._splitter.close()
        with self.app.batch_update():
            for block in finished:
                await self._finish(block)
            await self._show_open(self._splitter.open)

    async def _finish(self, block: Block) -> None:
        old = self._open
        if _is_small(block):
            await self._render_block(block)
            if old is not None:
                await old.remove()
            self._open = None
            return
        self._open = self._last = None
        if old is None:
            await self.mount(self._lines_of(block))
        else:
            old.show(block.text)
            old.close()

    async def _render_block(self, block: Block) -> None:
        """Render a finished block.

        PERF: text joins the widget before it, as each layout costs by the number of widgets.
        """
        if self._last is not None and block.kind == "text":
            await self._last.append(block.text)
        elif block.text.strip():
            self._last = rendered(block.text)
            await self.mount(self._last, before=self._open)
        if self._last is not None and len(self._last.source) > _MAX_MARKDOWN:
            self._last = None

    async def _show_open(self, block: Block) -> None:
        if not block.text.strip():
            return
        if self._open is not None and self._open.kind != block.kind:
            await self._open.remove()  # the first characters looked like something else
            self._open = None
        if self._open is None:
            self._open = LineBlock(block.kind, self._splitter.fence_info)
            await self.mount(self._open)
        self._open.show(block.text)

    def _lines_of(self, block: Block) -> LineBlock:
        words = block.text.split("\n", 1)[0].strip(" `~").split()
        lines = LineBlock(block.kind, words[0] if words and block.kind == "fence" else "")
        lines.show(block.text)
        lines.close()
        return lines


def rendered(text: str) -> "AnswerMarkdown":
    """Finished Markdown as a widget."""
    # PERF: the first prompt is there 60 ms sooner; the chat screen imports it right after that.
    from tui.widgets.answer_markdown import AnswerMarkdown

    return AnswerMarkdown(text)


def _is_small(block: Block) -> bool:
    return block.n_lines <= _MAX_LINES[block.kind]
