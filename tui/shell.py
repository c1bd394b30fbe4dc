"""Commands of the user's own, `!git status`, and their output, which the next message may take."""

import asyncio
import codecs
import os
import re
from collections.abc import Callable
from contextlib import suppress

from gptoss_local.base.errors import UsageError
from gptoss_local.base.quantities import counted
from gptoss_local.talk.documents import fenced
from gptoss_local.talk.history.plain import one_line, plain_text
from gptoss_local.talk.tools import processes
from gptoss_local.talk.tools.python.driver import Output
from gptoss_local.talk.tools.tool import MAX_OUTPUT_CHARACTERS
from tui.paste import FoldedTexts, about_tokens, current_folder

_OVERWRITTEN = re.compile(r"[^\n]*\r(?=[^\r\n])|[^\n]\x08")
_TITLE_CHARS = 30
_PIECE = 65_536
_NOT_FOUND = 127  # where the shell itself does not start
_FINE = "exit status 0"


class ShellCommand:
    """A command that runs; `tell` gets its output, without controls, as its lines end."""

    def __init__(self, command: str, tell: Callable[[str], object] | None = None) -> None:
        self.command, self.status = command, _NOT_FOUND
        self.is_over = False
        self._tell, self._line = tell, ""
        self._output = Output(MAX_OUTPUT_CHARACTERS)
        self._process: asyncio.subprocess.Process | None = None
        self._is_ended = False

    @property
    def title(self) -> str:
        return one_line(self.command, _TITLE_CHARS)

    @property
    def text(self) -> str:
        return _as_seen(self._output.text()).rstrip()

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
                self._take(decoder.decode(data))
            self.status = await self._process.wait()
            self.is_over = True
        except UsageError as error:
            self._take(error.message)
            self.is_over = True
        finally:
            if not self.is_over:  # the chat ends, or Ctrl-C came
                self.end()
                if self._process is not None:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._process.communicate(), 1)
            if self._line:
                self._take("\n")

    def _take(self, text: str) -> None:
        self._output.write(text)
        if self._tell is not None:
            lines, newline, line = (self._line + text).rpartition("\n")
            self._line = line[-MAX_OUTPUT_CHARACTERS:]
            if newline:
                self._tell(_as_seen(lines))

    def end(self) -> None:
        """Kill the command and all that it began."""
        self._is_ended = True
        if self._process is not None:
            with suppress(OSError):
                processes.kill_tree(self._process)

    def fold(self, folded: FoldedTexts) -> str:
        """Return a chip for the output, which a message may take; empty for none."""
        text, outcome = self.text, "" if self.outcome == _FINE else f", {self.outcome}"
        if not (text or outcome):
            return ""
        n_lines = counted(text.count("\n") + 1 if text else 0, "line")
        what = f"output: {self.title}{outcome}, {n_lines}, {about_tokens(text)}"
        title = f"Output of the command `{self.command}`, {self.outcome}"
        return folded.fold(what, fenced(title, text))


def _as_seen(output: str) -> str:
    return plain_text(_OVERWRITTEN.sub("", output.replace("\r\n", "\n")))
