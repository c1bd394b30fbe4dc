"""Messages that wait until the answer is complete, shown over the input."""

from textual.widgets import Static

from gptoss_local.base.printable import shown

_MAX_SHOWN = 3


class MessageQueue(Static):
    DEFAULT_CSS = """
    MessageQueue {
        height: auto; color: $text-muted; padding: 0 2;
        text-wrap: nowrap; text-overflow: ellipsis;
        &.-empty, &.-away { display: none; }
    }
    """

    def __init__(self) -> None:
        super().__init__(markup=False, classes="-empty")
        self.texts: list[str] = []

    @property
    def is_empty(self) -> bool:
        return not self.texts

    def add(self, text: str, *, is_next: bool = False) -> None:
        self._hold([text, *self.texts] if is_next else [*self.texts, text])

    def take_first(self) -> str:
        first, *rest = self.texts
        self._hold(rest)
        return first

    def take_last(self) -> str:
        *rest, last = self.texts
        self._hold(rest)
        return last

    def take_all(self) -> str:
        text = "\n\n".join(self.texts)
        self._hold([])
        return text

    def _hold(self, texts: list[str]) -> None:
        self.texts = texts
        lines = [f"» {' '.join(shown(text).split())}" for text in texts]
        if len(lines) > _MAX_SHOWN:
            lines[_MAX_SHOWN:] = [f"  and {len(lines) - _MAX_SHOWN} more"]
        if lines:
            lines.append("  sent when the answer is complete; Ctrl-S sends now, Esc takes it back")
        self.update("\n".join(lines))
        self.set_class(not lines, "-empty")
