"""Messages that wait until the answer is complete, shown over the input."""

from textual.widgets import Static

from tui.printable import printable

_MAX_SHOWN = 3


class QueueView(Static):
    """Holds them in order; hidden when there are none."""

    DEFAULT_CSS = """
    QueueView {
        height: auto; display: none; color: $text-muted; padding: 0 2;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._texts: list[str] = []

    @property
    def is_empty(self) -> bool:
        return not self._texts

    def add(self, text: str, *, is_next: bool = False) -> None:
        """Let a message wait, as the last one or as the next."""
        self._texts.insert(0 if is_next else len(self._texts), text)
        self._show()

    def take_first(self) -> str:
        text = self._texts.pop(0)
        self._show()
        return text

    def take_last(self) -> str:
        text = self._texts.pop()
        self._show()
        return text

    def take_all(self) -> str:
        """All of them as one text; empty if there are none."""
        texts, self._texts = self._texts, []
        self._show()
        return "\n\n".join(texts)

    def _show(self) -> None:
        lines = [f"» {' '.join(printable(text).split())}" for text in self._texts]
        if len(lines) > _MAX_SHOWN:
            lines[_MAX_SHOWN:] = [f"  and {len(lines) - _MAX_SHOWN} more"]
        if lines:
            lines.append("  sent when the answer is complete; Ctrl-S sends now, Esc takes it back")
        self.update("\n".join(lines))
        self.display = bool(lines)
