"""The editor of the conversation's line. PERF: it takes 0.15 s to import."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import is_searching
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.shortcuts import CompleteStyle
from prompt_toolkit.styles import Style

from gptoss_local.base.whole_file import open_private
from tui.paste import AT, current_folder, find_files


class LineEditor:
    """Reads messages with history and completion; a paste keeps its lines, and Enter sends."""

    def __init__(
        self, history: Path, commands: Mapping[str, Any], is_private: Callable[[], bool]
    ) -> None:
        os.environ.setdefault("PROMPT_TOOLKIT_NO_CPR", "1")  # some terminals never answer that
        self._history = _open_history(history, is_private)
        self._session: PromptSession[str] = PromptSession(
            history=self._history,
            enable_suspend=True,
            completer=_Words(commands),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            reserve_space_for_menu=0,
            key_bindings=_keys(),
            style=Style.from_dict({"placeholder": "ansibrightblack"}),
        )

    def read(self, prompt: str, prompt_more: str, placeholder: str = "") -> str:
        """Return a message. Raises EOFError for Ctrl-D in an empty line, KeyboardInterrupt."""
        return self._session.prompt(
            prompt,
            prompt_continuation=prompt_more,
            placeholder=[("class:placeholder", placeholder)],
        )

    def keep_history(self, *, is_kept: bool) -> None:
        self._history.is_kept = is_kept


class _Words(Completer):
    def __init__(self, commands: Mapping[str, Any]) -> None:
        self._commands = commands

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        if found := AT.search(document.text_before_cursor):
            for path in find_files(found[1], current_folder()):
                yield Completion(path, -len(found[1]))
            return
        *before, beginning = document.text_before_cursor.split(" ")
        words = self._commands
        for word in filter(None, before):
            words = words.get(word, {})
        for word, more in words.items():
            if word.startswith(beginning):
                yield Completion(f"{word} " if more else word, -len(beginning))


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("escape", "enter")
    def new_line(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-g", filter=~is_searching)
    def edit(event: Any) -> None:
        event.current_buffer.open_in_editor()

    return keys


def _open_history(path: Path, is_private: Callable[[], bool]) -> "_History":
    with contextlib.suppress(OSError):
        if is_private():
            path.unlink(missing_ok=True)
        open_private(path).close()
    history = _History(str(path))
    history.is_private = is_private
    return history


class _History(FileHistory):
    """A history that survives a full or unreadable disk: the conversation is worth more."""

    is_kept = True
    is_private: Callable[[], bool]

    def append_string(self, string: str) -> None:
        if self.is_kept and not self.is_private():
            super().append_string(string)

    def store_string(self, string: str) -> None:
        with contextlib.suppress(OSError):
            super().store_string(string)

    def load_history_strings(self) -> Iterable[str]:
        try:
            return super().load_history_strings()
        except OSError:
            return ()
