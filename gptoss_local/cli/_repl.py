"""A conversation line by line, for any terminal, pipe or screen reader: text is only added.

It may be saved, as one on the screen.
"""

import io
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

from gptoss_local.base.errors import GptOssError, UsageError
from gptoss_local.base.private import is_private
from gptoss_local.base.settings import Settings
from gptoss_local.cli._answer import Chat
from gptoss_local.cli._output import is_plain, is_read_aloud, print_error, say
from gptoss_local.cli._printer import Printer
from gptoss_local.cli._question import echo, take_typed
from gptoss_local.cli._repl_commands import (
    COMPLETIONS,
    EFFORTS,
    REGISTRY,
    Session,
    set_system,
)
from tui.commands import shell_command
from tui.paste import FoldedTexts, about_tokens, current_folder, label_of

if TYPE_CHECKING:
    from gptoss_local.api.client import Client
    from gptoss_local.cli._line_editor import LineEditor
    from tui.conversation import Conversation

_QUOTES = '"""'
_HINT = "Send a message (/? for help)"
_OPENING = re.compile(rf"\s*(/set\s+system\s+|/system\s+)?{_QUOTES}")


class Repl:
    def __init__(self, chat: Chat, settings: Settings, *, is_temporary: bool = False) -> None:
        self._session = Session(chat, settings, _open_editor(settings))
        if is_temporary and self._session.editor is not None:
            self._session.editor.keep_history(is_kept=False)
        self._prompt, self._prompt_more = ("You: ", "") if is_read_aloud() else (">>> ", "... ")
        self._folded = FoldedTexts()
        self._outputs: list[str] = []  # of commands, as chips, for the next message
        self._refused = set[str]()  # paths that go as text if the message comes again

    def talk(self, first: str = "") -> None:
        """Ask and answer until /bye or the end of the input; Ctrl-C ends only an answer."""
        say("Type a message. Ctrl-C stops an answer, /bye leaves, /? lists the commands.")
        while not self._session.is_over:
            try:
                message, first = first or self._read_message(), ""
            except KeyboardInterrupt:
                dropped = self._outputs and self._outputs.pop()
                say("\nThe output is dropped." if dropped else "\nUse Ctrl-D or /bye to leave.")
                continue
            except EOFError:
                say("")
                return
            try:
                self._take(message)
            except GptOssError as error:  # the conversation outlives a failed answer
                print_error(error)
            except KeyboardInterrupt:
                say("")

    def _take(self, message: str) -> None:
        if (opening := _OPENING.match(message)) is not None:
            self._take_quoted(message, opening)
        elif (parsed := REGISTRY.parse(message)) is not None:
            command, argument = parsed
            REGISTRY.actions[command.name](self._session, argument)
        elif sys.stdin.isatty() and (line := shell_command(message)):
            self._run(line)
        else:
            self._ask(message)

    def _take_quoted(self, message: str, opening: re.Match[str]) -> None:
        text, _, rest = message[opening.end() :].partition(_QUOTES)
        text, has_rest = text.strip("\n"), bool(rest.strip())
        if not opening[1]:  # where more follows, as in a paste of code, the quotes are part of it
            self._ask(message if has_rest else text)
        elif has_rest:
            hint = f"Put it before {_QUOTES}."
            raise UsageError(f"there is text after the closing {_QUOTES}", hint=hint)
        else:
            set_system(self._session, text)

    def _run(self, line: str) -> None:
        import asyncio

        from tui.shell import ShellCommand  # PERF: 50 ms

        command = ShellCommand(line, say)
        try:
            asyncio.run(command.run())
        except KeyboardInterrupt:
            say("")
        if chip := command.fold(self._folded):
            self._outputs.append(chip)
            say(f"+ {label_of(chip)}; it goes with your next message, Ctrl-C drops it")

    def _ask(self, typed: str) -> None:
        if not typed.strip():
            return
        from tui.attachments import image_note  # PERF: 30 ms

        typed = self._with_files(typed.strip())
        if note := image_note(typed, current_folder()):
            say(f"{note} Only its path is sent.")
        message = self._folded.unfold("\n\n".join([*self._outputs, typed]))
        self._session.ready_model()
        self._session.chat.folds = message.folds
        with echo(is_on=False):
            self._session.chat.ask(message.text)
        self._outputs = []

    def _with_files(self, text: str) -> str:
        """Replace each `@` with a file by a chip; UsageError refuses a file once.

        In a pipe both are text: who wrote it need not be the user.
        """
        from tui.attachments import attach, typed_path

        is_typed = sys.stdin.isatty()
        while is_typed and (found := typed_path(text, current_folder(), self._refused)):
            try:
                if found.refusal:
                    raise UsageError(found.refusal)
                file = attach(found.path, current_folder(), Event())
            except UsageError as error:
                self._refused.add(found.path)
                hint = f"{error.hint} Send it again, and it goes as text.".lstrip()
                raise UsageError(error.message, hint=hint) from error
            what = f"{file.what}, {file.length}, {about_tokens(file.text)}"
            say(f"+ {what}{file.note}")
            chip = self._folded.fold(what, file.text)
            text = f"{text[: found.start]}{chip}{text[found.end :]}"
        self._refused.clear()
        return text

    def _read_message(self) -> str:
        text = self._read_line(self._prompt).rstrip()
        opening = _OPENING.match(text)
        while opening is not None and text.find(_QUOTES, opening.end()) < 0:
            text += "\n" + self._read_line(self._prompt_more)
        return text

    def _read_line(self, prompt: str) -> str:
        if (editor := self._session.editor) is not None:
            hint = _HINT if prompt == self._prompt else ""
            return editor.read(prompt, self._prompt_more, hint)
        if _has_terminal():
            typed = take_typed() if self._session.chat.tools is not None else ""
            if not typed:
                return input(prompt)
            print(prompt + typed, end="", flush=True)
            return typed.removesuffix("\n") if typed.endswith("\n") else typed + input()
        print(prompt, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\r\n")


def _open_editor(settings: Settings) -> "LineEditor | None":
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # a byte that is not text ends nothing
    if not _has_terminal() or is_plain():
        return None
    from gptoss_local.cli._line_editor import LineEditor  # PERF: prompt_toolkit

    private = partial(is_private, settings.history_path)
    return LineEditor(settings.input_history, COMPLETIONS, private)


def _has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


@contextmanager
def saved_conversation(settings: Settings, *, is_continued: bool) -> "Iterator[Conversation]":
    from gptoss_local.cli.passphrase import open_history
    from tui.conversation import Conversation  # PERF: SQLite

    history = open_history(settings)
    try:
        conversation = Conversation(history, "", "medium")
        if is_continued:
            last = next(iter(history.chats(limit=1)), None)
            if last is None:
                raise UsageError("there is no chat to continue", hint="Save one: gptoss run --save")
            conversation.open(last.id)
        yield conversation
    finally:
        history.close()


def saved_chat(
    saved: "Conversation", client: "Client", printer: Printer, **wishes: Any
) -> "SavedChat":
    """Return a chat that continues a conversation; `wishes` come before its own settings.

    SIGHUP and SIGTERM raise SystemExit after this call, so that the answer so far is saved.
    """
    for name in ("SIGHUP", "SIGTERM"):
        if number := getattr(signal, name, None):
            signal.signal(number, lambda n, _: sys.exit(128 + n))
    if wishes["system"] and not saved.turns:
        saved.new(wishes["system"])
    body = saved.request()
    return SavedChat(
        client,
        printer=printer,
        saved=saved,
        system=wishes.pop("system") or saved.instructions,
        options=body["options"] | wishes.pop("options"),
        messages=[m for m in body["messages"] if m["role"] != "system"],
        **wishes,
    )


@dataclass(kw_only=True)
class SavedChat(Chat):
    """Saves each question with its answer in `saved`, a chat of the history."""

    saved: "Conversation"

    def ask(self, text: str) -> bool:
        n_before = len(self.messages)
        try:
            is_whole = super().ask(text)
        except (OSError, SystemExit):  # the terminal is gone, or a signal came
            self._save(text, n_before)
            raise
        self._save(text, n_before)
        return is_whole

    def _save(self, text: str, n_before: int) -> None:
        saved, asked = self.saved, self.saved.last("user")
        n_saved = sum(m["role"] != "system" for m in saved.request()["messages"])
        if n_before >= n_saved:
            asked = None
        elif asked is None or asked.content != text:  # not asked again: the chat was cleared
            saved.new(self.system)
            asked = None
        effort: Any = self.think if self.think in EFFORTS else "medium"
        saved.set_model(self.model, effort)
        saved.ask(text, self.folds, instead_of=asked)
        if self.answer.phase != "done":
            self.answer.end("stopped")
        saved.keep(saved.begin_answer(), self.answer)
        saved.store()
