"""Messages that wait until the answer is complete."""

from collections.abc import Callable, Sequence


class MessageQueue:
    """Holds them in order.

    Args:
        on_change: Called with all of them whenever they change.
    """

    def __init__(self, on_change: Callable[[Sequence[str]], None]) -> None:
        self._texts: list[str] = []
        self._on_change = on_change

    @property
    def is_empty(self) -> bool:
        return not self._texts

    def add(self, text: str, *, is_next: bool = False) -> None:
        """Let a message wait, as the last one or as the next."""
        self._texts.insert(0 if is_next else len(self._texts), text)
        self._on_change(self._texts)

    def take_first(self) -> str:
        text = self._texts.pop(0)
        self._on_change(self._texts)
        return text

    def take_last(self) -> str:
        text = self._texts.pop()
        self._on_change(self._texts)
        return text

    def take_all(self) -> str:
        """Take all of them as one text; empty if there are none."""
        texts, self._texts = self._texts, []
        self._on_change(self._texts)
        return "\n\n".join(texts)
