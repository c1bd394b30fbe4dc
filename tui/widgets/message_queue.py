"""Lines over the input: what waits, and messages that wait until the answer is complete."""

from collections.abc import Sequence

from textual.widgets import Static

from gptoss_local.base.printable import shown

_MAX_SHOWN = 3


class Tray(Static):
    DEFAULT_CSS = """
    Tray {
        height: auto; color: $text-muted; padding: 0 2; text-wrap: nowrap; text-overflow: ellipsis;
        &.-empty, &.-away { display: none; }
    }
    """

    def __init__(self) -> None:
        super().__init__(markup=False, classes="-empty")

    def put(self, lines: Sequence[str], keys: str) -> None:
        """Show the first lines, and below them what keys do."""
        n_more = len(lines) - _MAX_SHOWN
        more = [f"  and {n_more} more"] if n_more > 0 else []
        self.update("\n".join([*(shown(line) for line in lines[:_MAX_SHOWN]), *more, f"  {keys}"]))
        self.set_class(not lines, "-empty")


class MessageQueue(Tray):
    def __init__(self) -> None:
        super().__init__()
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
        lines = [f"» {' '.join(text.split())}" for text in texts]
        self.put(lines, "sent when the answer is complete; Ctrl-S sends now, Esc takes it back")
