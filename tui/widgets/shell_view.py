"""Shows the user's own commands, and the outputs that the next message may take."""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from gptoss_local.base.printable import shown
from tui.paste import FoldedTexts, label_of
from tui.shell import ShellCommand
from tui.widgets.line_block import LineBlock
from tui.widgets.message_queue import Tray

_TAIL_ROWS = 12
_PAINT_S = 0.1


class ShellView(Vertical):
    """One command with its output, of which the last rows are shown while it runs."""

    DEFAULT_CSS = """
    ShellView {
        height: auto; margin: 0 0 1 0; padding: 0 1 0 2;
        Static { height: auto; }
        LineBlock { padding: 0 0 0 2; }
        .meta { color: $text-muted; }
    }
    """

    def __init__(self, command: str) -> None:
        super().__init__()
        self.command = ShellCommand(command)
        self._lines = LineBlock(tail_rows=_TAIL_ROWS)
        self._meta = Static("runs; Esc ends it", classes="meta", markup=False)

    def compose(self) -> ComposeResult:
        yield Static(f"! {shown(self.command.command)}", markup=False)
        yield self._lines
        yield self._meta

    def on_mount(self) -> None:
        self.set_interval(_PAINT_S, self._paint)

    async def run(self) -> None:
        try:
            await self.command.run()
        finally:
            self._lines.set_tail(None)
            self._paint()

    def _paint(self) -> None:
        if self.is_attached:
            command = self.command
            self._lines.show(command.text.expandtabs())
            self._meta.update(command.outcome if command.is_over else "runs; Esc ends it")


class ShellTray(Tray):
    """The commands that run, and the outputs that go with the next message."""

    def __init__(self, folded: FoldedTexts) -> None:
        super().__init__()
        self._folded = folded
        self._commands: list[ShellCommand] = []
        self._chips: list[str] = []

    async def run(self, view: ShellView) -> None:
        self._commands.append(view.command)
        self._show()
        try:
            await view.run()
        finally:
            self._commands.remove(view.command)
        self._chips += filter(None, [view.command.fold(self._folded)])
        self._show()

    def take(self, typed: str) -> str:
        """Return a message with the outputs before it."""
        chips, self._chips = self._chips, []
        self._show()
        return "\n\n".join([*chips, typed])

    def end_last(self) -> bool:
        """End the last command that runs; return False if none does."""
        for command in self._commands[-1:]:
            command.end()
        return bool(self._commands)

    def drop_last(self) -> None:
        del self._chips[-1:]
        self._show()

    def _show(self) -> None:
        lines = [f"! {command.title} runs" for command in self._commands]
        lines += [f"+ {label_of(chip)}" for chip in self._chips[::-1]]
        esc = "ends it" if self._commands else "takes it away"
        self.put(lines, f"the output goes with your next message; Esc {esc}")
