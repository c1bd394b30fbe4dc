"""Finished Markdown. Imports Textual's widget with its parser: see `answer_view.rendered`."""

from textual.content import Content
from textual.widgets import Markdown
from textual.widgets.markdown import MarkdownFence


class _Fence(MarkdownFence):
    """Without a language nothing is highlighted: Pygments needs up to 0.3 s for its guess."""

    @classmethod
    def highlight(cls, code: str, language: str, ansi: bool = False, dark: bool = False) -> Content:
        return super().highlight(code, language or "text", ansi=ansi, dark=dark)


class AnswerMarkdown(Markdown):
    """Finished Markdown. Links are shown and not opened: a model wrote them."""

    DEFAULT_CSS = "AnswerMarkdown { padding: 0; }"
    BLOCKS = Markdown.BLOCKS | {"fence": _Fence, "code_block": _Fence}

    def __init__(self, text: str) -> None:
        super().__init__(text, open_links=False)
