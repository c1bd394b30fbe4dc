"""Commands of the user's own, `!git status`, and their output, which the next message may take."""

import asyncio
import codecs
import os
import re
from contextlib import suppress

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from gptoss_local.base.errors import UsageError
from gptoss_local.base.printable import shown
from gptoss_local.base.quantities import counted
from gptoss_local.talk.documents import fenced
from gptoss_local.talk.history.plain import one_line, plain_text
from gptoss_local.talk.tools import processes
from gptoss_local.talk.tools.python.driver import Output
from gptoss_local.talk.tools.tool import MAX_OUTPUT_CHARACTERS
from tui.paste import FoldedTexts, about_tokens, current_folder, label_of
from tui.widgets.line_block import LineBlock
from tui.widgets.message_queue import Tray

_COMMAND = re.compile(r"!(?![!\[])[ \t]*(\S[^\n]*)")  # but no picture of Markdown's
_OVERWRITTEN = re.compile(r"[^\n]*\r(?=[^\r\n])|[^\n]\x08")
_TAIL_ROWS = 12
_PAINT_S = 0.1
_TITLE_CHARS = 30
_PIECE = 65_536
_NOT_FOUND = 127  # where the shell itself does not start
_FINE = "exit status 0"


def shell_command(typed: str) -> str:
    """Return the command of a line that begins with `!`; empty for a message.

    A message may begin so after a space, or continue in a second line, as pasted code does.
    """
    found = _COMMAND.fullmatch(typed.rstrip())
    return found[1] if found else ""


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
        self.command = command
        self.status = _NOT_FOUND
        self._lines = LineBlock(tail_rows=_TAIL_ROWS)
        self._meta = Static("runs; Esc ends it", classes="meta", markup=False)
        self._output = Output(MAX_OUTPUT_CHARACTERS)
        self._process: asyncio.subprocess.Process | None = None
        self._is_ended = self._is_over = False

    def compose(self) -> ComposeResult:
        yield Static(f"! {shown(self.command)}", markup=False)
        yield self._lines
        yield self._meta

    def on_mount(self) -> None:
        self.set_interval(_PAINT_S, self._paint)

    @property
    def title(self) -> str:
        return one_line(self.command, _TITLE_CHARS)

    @property
    def text(self) -> str:
        text = self._output.text().replace("\r\n", "\n")
        return plain_text(_OVERWRITTEN.sub("", text)).rstrip()

    @property
    def outcome(self) -> str:
        if self._is_ended:
            return "stopped"
        return f"exit status {self.status}" if self.status >= 0 else f"signal {-self.status}"

    async def run(self) -> None:
        argv = processes.shell_argv(self.command, os.environ.get("SHELL", ""))
        no_input = asyncio.subprocess.DEVNULL
        try:
            self._process = await processes.started(argv, current_folder(), stdin=no_input)
            assert self._process.stdout is not None
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            while data := await self._process.stdout.read(_PIECE):
                self._output.write(decoder.decode(data))
            self.status = await self._process.wait()
            self._is_over = True
        except UsageError as error:
            self._output.write(error.message)
            self._is_over = True
        finally:
            if not self._is_over:  # the chat ends
                self.end()
            self._lines.set_tail(None)
            self._paint()

    def end(self) -> None:
        """Kill the command and all that it began."""
        self._is_ended = True
        if self._process is not None:
            with suppress(OSError):
                processes.kill_tree(self._process)

    def _paint(self) -> None:
        if self.is_attached:
            self._lines.show(self.text.expandtabs())
            self._meta.update(self.outcome if self._is_over else "runs; Esc ends it")


class ShellTray(Tray):
    """The commands that run, and the outputs that go with the next message."""

    def __init__(self, folded: FoldedTexts) -> None:
        super().__init__()
        self._folded = folded
        self._commands: list[ShellView] = []
        self._chips: list[str] = []

    async def run(self, view: ShellView) -> None:
        self._commands.append(view)
        self._show()
        try:
            await view.run()
        finally:
            self._commands.remove(view)
        if (text := view.text) or view.outcome != _FINE:
            outcome = "" if view.outcome == _FINE else f", {view.outcome}"
            n_lines = counted(text.count("\n") + 1 if text else 0, "line")
            what = f"output: {view.title}{outcome}, {n_lines}, {about_tokens(text)}"
            whole = fenced(f"Output of the command `{view.command}`, {view.outcome}", text)
            self._chips.append(self._folded.fold(what, whole))
        self._show()

    def take(self, typed: str) -> str:
        """Return a message with the outputs before it."""
        chips, self._chips = self._chips, []
        self._show()
        return "\n\n".join([*chips, typed])

    def end_last(self) -> bool:
        """End the last command that runs; return False if none does."""
        for view in self._commands[-1:]:
            view.end()
        return bool(self._commands)

    def drop_last(self) -> None:
        del self._chips[-1:]
        self._show()

    def _show(self) -> None:
        lines = [f"! {view.title} runs" for view in self._commands]
        lines += [f"+ {label_of(chip)}" for chip in self._chips[::-1]]
        esc = "ends it" if self._commands else "takes it away"
        self.put(lines, f"the output goes with your next message; Esc {esc}")
