"""Messages that wait until the answer is complete, shown over the input."""

from collections.abc import Sequence

from textual.widgets import Static

from gptoss_local.printable import printable

_MAX_SHOWN = 3


class QueueView(Static):
    """Shows them in order; hidden when there are none."""

    DEFAULT_CSS = """
    QueueView {
        height: auto; display: none; color: $text-muted; padding: 0 2;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    def __init__(self) -> None:
        super().__init__(markup=False)

    def show(self, texts: Sequence[str]) -> None:
        """Show the first few, and how many more there are."""
        lines = [f"» {' '.join(printable(text).split())}" for text in texts]
        if len(lines) > _MAX_SHOWN:
            lines[_MAX_SHOWN:] = [f"  and {len(lines) - _MAX_SHOWN} more"]
        if lines:
            lines.append("  sent when the answer is complete; Ctrl-S sends now, Esc takes it back")
        self.update("\n".join(lines))
        self.display = bool(lines)
