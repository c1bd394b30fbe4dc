"""A conversation line by line, for any terminal, pipe or screen reader: text is only added.

Prompts and what the commands say go to stderr, answers to stdout.
"""

import contextlib
import difflib
import io
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass

from gptoss_local.cli._answer import Chat
from gptoss_local.cli._output import is_plain, is_read_aloud, print_error
from gptoss_local.errors import GptOssError, UsageError
from gptoss_local.settings import Settings

_QUOTES = '"""'
_COMMAND = re.compile(r"/([a-z?]*)(?:\s+(.*))?", re.DOTALL)  # `/usr/bin` is a message
_EFFORTS = ("low", "medium", "high")


class Repl:
    """Reads messages and commands until the user leaves."""

    def __init__(self, chat: Chat, settings: Settings) -> None:
        self._chat = chat
        self._settings = settings
        self._is_over = False
        self._prompt, self._prompt_more = ("You: ", "") if is_read_aloud() else (">>> ", "... ")

    def talk(self) -> None:
        """Ask and answer until /bye or the end of the input; Ctrl-C ends an answer alone."""
        self._ready_terminal()
        _say(f"Type a message; Ctrl-C stops an answer, Ctrl-D or /bye leaves, {_QUOTES} begins and "
             "ends several lines, /help tells more.")  # fmt: skip
        while not self._is_over:
            try:
                message = self._read_message()
            except KeyboardInterrupt:
                _say("")
                continue
            except EOFError:
                _say("")
                return
            try:
                self._take(message)
            except GptOssError as error:  # the conversation outlives a failed answer
                print_error(error)
            except KeyboardInterrupt:
                _say("")

    def _take(self, message: str) -> None:
        if command := _COMMAND.fullmatch(message):
            self._obey(command[1], (command[2] or "").strip())
        elif message:
            self._chat.client.ensure_running()  # it may have been stopped since the last question
            self._chat.ask(message)

    def _read_message(self) -> str:
        """One line, or several between triple quotes."""
        text = self._read_line(self._prompt).strip()
        if not text.startswith(_QUOTES):
            return text
        text = text.removeprefix(_QUOTES)
        while _QUOTES not in text:
            text += "\n" + self._read_line(self._prompt_more)
        return text.partition(_QUOTES)[0].strip("\n")

    def _read_line(self, prompt: str) -> str:
        if sys.stdin.isatty() and sys.stdout.isatty():
            return input(prompt)
        print(prompt, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\r\n")

    def _ready_terminal(self) -> None:
        """Switch editing of the line and its history on, which `input` does with this import."""
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")  # a byte that is no text ends no conversation
        if sys.stdin.isatty() and not is_plain():
            with contextlib.suppress(ImportError):  # Windows' console does it itself
                import readline  # noqa: F401

    def _obey(self, name: str, argument: str) -> None:
        """Carry out a command.

        Raises:
            UsageError: there is no such command, or not with this argument.
        """
        for command in _COMMANDS:
            if name in command.names:
                command.run(self, argument)
                return
        names = [name for command in _COMMANDS for name in command.names]
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"Did you mean /{close[0]}?" if close else "/help lists the commands."
        raise UsageError(f"there is no command /{name}", hint=hint)

    def leave(self, _argument: str) -> None:
        self._is_over = True

    def help(self, _argument: str) -> None:
        for command in _COMMANDS:
            _say(f"{command.usage:<28}{command.help}")
        _say(f"{_QUOTES} … {_QUOTES:<20}a message of several lines")

    def clear(self, _argument: str) -> None:
        self._chat.messages = []
        _say("a new conversation")

    def effort(self, wanted: str) -> None:
        if wanted and wanted not in _EFFORTS:
            raise UsageError(f"effort is {', '.join(_EFFORTS)}, not {wanted}")
        self._chat.effort = wanted or self._chat.effort
        _say(f"effort: {self._chat.effort}")

    def system(self, text: str) -> None:
        if text:
            self._chat.system = text.strip('"')
        _say(f"system: {self._chat.system or '(the model’s own, if it has one)'}")

    def model(self, name: str) -> None:
        from gptoss_local.cli._loading import show_load
        from gptoss_local.cli._options import named, server_for

        if name:
            name = named(name, self._settings)
            self._chat.client = server_for(name, self._settings)
            show_load(self._chat.client, name)
            self._chat.model = name
        _say(f"model: {self._chat.model}")

    def reasoning(self, wanted: str) -> None:
        printer = self._chat.printer
        printer.hide_reasoning = not _switched(wanted, not printer.hide_reasoning)
        _say(f"reasoning: {'off' if printer.hide_reasoning else 'on'}")

    def stats(self, wanted: str) -> None:
        printer = self._chat.printer
        printer.stats = _switched(wanted, printer.stats)
        _say(f"stats: {'on' if printer.stats else 'off'}")

    def retry(self, _argument: str) -> None:
        if not self._chat.messages:
            raise UsageError("nothing has been asked yet")
        self._chat.client.ensure_running()
        self._chat.ask_again()


@dataclass(frozen=True)
class _Command:
    """A line that begins with a slash; the first of `names` is the one we speak of."""

    names: tuple[str, ...]
    usage: str
    help: str
    run: Callable[[Repl, str], None]


_COMMANDS = (
    _Command(("help", "?"), "/help", "this list", Repl.help),
    _Command(("bye", "exit", "quit"), "/bye", "leave", Repl.leave),
    _Command(("clear", "new"), "/clear", "forget the conversation", Repl.clear),
    _Command(("retry",), "/retry", "ask the last question again", Repl.retry),
    _Command(("effort", "think"), "/effort low|medium|high", "how long to think", Repl.effort),
    _Command(("system",), "/system TEXT", 'the system message; "" for none', Repl.system),
    _Command(("model",), "/model NAME", "go on with another model", Repl.model),
    _Command(("reasoning",), "/reasoning on|off", "print the reasoning or not", Repl.reasoning),
    _Command(("stats", "verbose"), "/stats on|off", "say how fast answers were", Repl.stats),
)


def _switched(wanted: str, current: bool) -> bool:
    """What on, off or nothing, which is the other one, makes of a switch."""
    if wanted not in ("", "on", "off"):
        raise UsageError(f"on or off, not {wanted}")
    return not current if not wanted else wanted == "on"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
