"""The input: grows with its text, Enter sends, pastes never do."""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import ClassVar, NamedTuple

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import OptionList, TextArea
from textual.widgets.option_list import Option

from gptoss_local.base.errors import UsageError
from gptoss_local.base.printable import printable
from gptoss_local.base.quantities import counted
from gptoss_local.talk.documents import is_image
from gptoss_local.talk.history.plain import plain_text
from tui.attachments import TypedPath, attach, image_note, is_pattern, typed_path
from tui.commands import Registry, shell_command
from tui.paste import (
    AT,
    Composed,
    FoldedTexts,
    about_tokens,
    chip_before,
    current_folder,
    dropped_paths,
    expanded,
    find_files,
)
from tui.screens.errors import errors_shown

_WIDTH = 24  # columns of the first column, unless a text is longer


class Completion(NamedTuple):
    text: str
    about: str
    take: Callable[[], object]  # writes it into the input
    is_whole: bool = False  # Enter also sends it
    is_hint: bool = False  # only Tab takes it; all other keys stay with the input


class CompletionMenu(OptionList, can_focus=False):
    """Hidden when empty. Its keys come from the input, which keeps the focus."""

    DEFAULT_CSS = """
    CompletionMenu {
        height: auto; max-height: 10; display: none; margin: 0 1; padding: 0 1; border: none;
        background: transparent; scrollbar-size-vertical: 1;
        & > .option-list--option-highlighted {
            background: transparent; color: $text-accent; text-style: bold;
        }
    }
    """

    def __init__(self, send: Callable[[], object]) -> None:
        super().__init__(markup=False)
        self._send = send
        self._items: Sequence[Completion] = ()

    def show(self, items: Sequence[Completion], note: str = "", *, marks: bool = False) -> None:
        """Show completions, and a note below; with `marks`, Enter takes the first."""
        if not (items or note or self.display):
            return
        self._items = items
        width = min(_WIDTH, max((len(item.text) for item in items), default=0))
        self.clear_options()
        for n, (text, about, *_) in enumerate(items):
            name = f"{'  ' if n or marks else '⇥ '}{printable(text).ljust(width)}"
            self.add_option(Content.assemble(name, (f"  {printable(about)}", "$text-muted")))
        if note:
            self.add_option(Option(f"! {note}", disabled=True))
        self.highlighted = 0 if marks and items else None
        self.display = bool(items or note)

    def take(self, idx: int | None = None) -> None:
        if self._items:
            self._items[self.highlighted or 0 if idx is None else idx].take()

    def handles(self, key: str) -> bool:
        """Act on a key of the input; return False if it is not for the menu."""
        if not self._items or self._items[0].is_hint:
            return False
        if key == "up":
            self.action_cursor_up()
        elif key == "down":
            self.action_cursor_down()
        elif key == "escape":
            self.show(())
        elif key == "enter" and self.highlighted is not None:
            item = self._items[self.highlighted]
            item.take()
            if item.is_whole:
                self._send()
        else:
            return False
        return True

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.take(event.option_index)


_NEWLINE = ("ctrl+j", "shift+enter", "alt+enter")
Values = Callable[[str, str], Iterable[tuple[str, str]]]


class Prompt(TextArea):
    """The input.

    Args:
        send: Gets a message or a command as it is typed, with its chips, and whether it is one.
        values: Returns the possible arguments of a command, by its name and the text so far, each
            with a description.
    """

    HELP = (
        "Enter sends. Ctrl-J begins a new line. / lists commands, @ attaches a file, "
        "! runs a command of the shell."
    )
    DEFAULT_CSS = """
    Prompt {
        height: auto; min-height: 3; max-height: 12; padding: 0 1;
        border: round $text-primary; background: transparent; scrollbar-size-vertical: 1;
        &:focus { border: round $text-accent; background: transparent; }
        &.-editing { border: round $text-warning; }
        & > .text-area--placeholder { color: $text-muted; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+j", "newline", "New line", id="prompt.newline"),
        Binding("alt+z,ctrl+underscore", "undo", "Undo", id="prompt.undo"),
        Binding("tab", "complete", "Complete", show=False, id="prompt.complete"),
        Binding("shift+tab", "app.focus_previous", "To the messages", show=False),
    ]

    def __init__(
        self,
        registry: Registry,
        send: Callable[[str, bool], object],
        values: Values,
        n_tokens: Callable[[str], Awaitable[int | None]],
    ) -> None:
        super().__init__(
            id="prompt",
            soft_wrap=True,
            show_line_numbers=False,
            highlight_cursor_line=False,
            placeholder="Message, /command or @file",
        )
        self._registry, self._send = registry, send
        self._values, self._n_tokens = values, n_tokens
        self.menu = CompletionMenu(self.submit)
        self._menu_is_for = ""
        self.folded = FoldedTexts()
        self._reading: dict[str, Event] = {}  # by placeholder; set: not wanted any more
        self._dropped = ""  # paths that the last paste consisted of, as they stand in the input
        self._sent: list[str] = []
        self._recalled = 0  # how many messages back the input shows
        self._refused = set[str]()  # paths in the text that go as text
        self._sends_then = False  # once all files are read

    async def _on_key(self, event: events.Key) -> None:
        self._fill_menu()
        is_taken = self.menu.handles(event.key)
        if not is_taken and (event.key == "enter" or event.key in _NEWLINE):
            is_taken = True
            (self.submit if event.key == "enter" else self.action_newline)()
        if is_taken:
            event.stop()
        if is_taken or event.key.startswith("alt+"):  # the text area would take its letter
            event.prevent_default()
        else:
            await super()._on_key(event)

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()  # the base class has a handler of its own, which would paste again
        text = plain_text(event.text.replace("\r\n", "\n").replace("\r", "\n"))
        paths = dropped_paths(text)
        self._dropped = text if paths and not any(map(is_image, paths)) else ""
        self.insert(self.folded.fold_paste(text))

    def get_cursor_line_start_location(self, smart_home: bool = False) -> tuple[int, int]:
        return super().get_cursor_line_start_location()  # before its spaces, as other editors do

    def on_text_area_changed(self) -> None:
        for placeholder, unwanted in self._reading.items():
            if placeholder not in self.text:
                unwanted.set()
        self._fill_menu()

    def _fill_menu(self) -> None:
        if self.text != self._menu_is_for:
            self._menu_is_for = self.text
            note = image_note(self.text, current_folder())
            if shell_command(self.text):
                note = f"Enter runs it in {current_folder()}; with a space before, it is a message"
            is_begun = bool(self._registry.complete(self.text))  # else Enter sends it as it is
            is_begun &= self.text.removeprefix("/") not in self._registry.by_name
            self.menu.show(self.completions(), note, marks=is_begun)

    def on_unmount(self) -> None:
        for unwanted in self._reading.values():
            unwanted.set()

    def fill(self, text: str) -> None:
        self.text = text
        self.move_cursor(self.document.end)
        self.screen.set_focus(self)  # now: `focus` would leave the next keys to another widget

    def set_editing(self, is_editing: bool) -> None:
        self.set_class(is_editing, "-editing")
        self.border_title = "another version of your message; Esc leaves" if is_editing else ""

    def completions(self) -> list[Completion]:
        typed = self._before_cursor()
        if commands := self._registry.complete(typed):
            return [
                Completion(c.usage, c.summary, partial(self.fill, f"/{c.name} "), not c.argument)
                for c in commands
            ]
        if (text := self.folded.text_of(chip := chip_before(typed))) is not None:
            unfold = partial(self._unfold, chip, text)
            return [Completion("unfold it", "", unfold, is_hint=True)]
        if self._dropped and typed.endswith(self._dropped):
            names = (Path(path).name for path in dropped_paths(self._dropped))
            attach = partial(self._attach_dropped, typed)
            return [Completion(f"attach {', '.join(names)}", "", attach, is_hint=True)]
        if found := AT.search(typed):
            begun, about = found[1], _as_a_whole(found[1])
            files = [(path, "") for path in find_files(begun, current_folder())]
            return [
                Completion(f"@{path}", note, partial(self._take_file, begun, path))
                for path, note in ([(begun, about)] if about else []) + files
            ]
        return self._argument_completions(typed)

    def _argument_completions(self, typed: str) -> list[Completion]:
        with suppress(UsageError):
            if parsed := self._registry.parse(typed):
                command, begun = parsed
                return [
                    Completion(value, about, partial(self.fill, f"/{command.name} {value}"), True)
                    for value, about in self._values(command.name, begun)
                    if begun.lower() in value.lower() and begun != value
                ]
        return []

    def action_newline(self) -> None:
        self.insert("\n")

    def action_delete_word_left(self) -> None:
        """Delete back to white space, as readline does."""
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column]
        if before and not self.selected_text:
            self.delete((row, len(re.sub(r"\S*\s*$", "", before))), (row, column))
        else:
            super().action_delete_word_left()

    def action_complete(self) -> None:
        self._fill_menu()
        self.menu.take()

    def _unfold(self, chip: str, text: str) -> None:
        row, column = self.cursor_location
        self.replace(text, (row, column - len(chip)), (row, column))

    def _attach_dropped(self, typed: str) -> None:
        paths, end = dropped_paths(self._dropped), self.cursor_location
        start = _location(typed, len(typed) - len(self._dropped))
        self.replace("", start, end)
        for path in paths:
            start = self.cursor_location
            self.insert(path)  # stays if it cannot be attached
            self.attach(str(expanded(path)), start)

    def action_cursor_up(self, select: bool = False) -> None:
        """At the first row, walk back through earlier messages."""
        is_recalling = self._recalled and self.text == self._sent[-self._recalled]
        is_first_row = self.cursor_location[0] == 0
        if is_first_row and (not self.text or is_recalling) and self._recalled < len(self._sent):
            self._recalled += 1
            self.fill(self._sent[-self._recalled])
        else:
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        """From an earlier message, walk towards the empty input."""
        is_last_row = self.cursor_location[0] == self.document.line_count - 1
        if is_last_row and self._recalled and self.text == self._sent[-self._recalled]:
            self._recalled -= 1
            self.fill(self._sent[-self._recalled] if self._recalled else "")
        else:
            super().action_cursor_down(select)

    def _take_file(self, begun: str, path: str) -> None:
        row, column = self.cursor_location
        start = (row, column - len(begun) - 1)
        if path.endswith("/") and path != begun:
            self.replace(f"@{path}", start, (row, column))
        else:
            self.attach(str(expanded(path)), start)

    def attach(self, typed: str, start: tuple[int, int] | None = None) -> None:
        """Put a chip for a file, a folder or a pattern before the cursor, once it is read.

        The chip replaces the text from `start`.
        """
        placeholder, end = f"[reading {typed} …]", self.cursor_location
        if placeholder not in self._reading:
            self._reading[placeholder] = Event()
            replaced = self.get_text_range(start or end, end)
            self.replace(f"{placeholder} ", start or end, end)
            self.run_worker(self._read(typed, placeholder, replaced), group="reading")

    async def _read(self, typed: str, placeholder: str, replaced: str) -> None:
        try:
            unwanted = self._reading[placeholder]
            found = await asyncio.to_thread(attach, typed, current_folder(), unwanted)
            n_tokens = await self._n_tokens(found.text)
            tokens = about_tokens(found.text) if n_tokens is None else counted(n_tokens, "token")
            length = f"{found.length}, {tokens}"
            text = self.folded.fold(f"{found.what}, {length}", found.text) + " "
            said = found.note and f"{length}{found.note}"
        except UsageError as error:
            text, said = replaced, f"{error.message}. {error.hint}".strip()
        del self._reading[placeholder]
        if (at := self.text.find(placeholder)) < 0:  # the user removed it
            return
        end = at + len(placeholder)
        end += self.text.startswith(" ", end)  # unless the user removed the space
        self.replace(text, _location(self.text, at), _location(self.text, end))
        failed = text == replaced
        if self._sends_then and not self._reading:
            self._sends_then = False
            if failed:
                self._refused.add(typed)
            else:
                self.submit()
        if said:
            self.notify(said, severity="warning" if failed else "information", markup=False)

    def submit(self) -> None:
        if self._before_cursor().endswith("\\"):  # for terminals without Ctrl-J
            row, column = self.cursor_location
            self.replace("\n", (row, column - 1), (row, column))
        elif any(placeholder in self.text for placeholder in self._reading):
            self.notify("A file is still being read.", severity="warning")
        elif path := self._typed_path():
            self._take_typed(path)
        elif self.text.strip():
            with errors_shown(self):
                is_command = self._registry.parse(self.text) is not None
                self._send(self.take(), is_command)

    def _typed_path(self) -> TypedPath | None:
        is_message = not shell_command(self.text)
        return typed_path(self.text, current_folder(), self._refused) if is_message else None

    def _take_typed(self, found: TypedPath) -> None:
        if found.refusal:
            self._refused.add(found.path)
            said = f"{found.refusal}. Enter again sends it as text."
            self.notify(said, severity="warning", markup=False)
            return
        self._sends_then = True
        end = found.end + self.text.startswith(" ", found.end)  # the chip brings its own
        self.move_cursor(_location(self.text, end))
        self.attach(found.path, _location(self.text, found.start))

    def take(self) -> str:
        """Remember the text, clear the input before the next key, and return the text."""
        typed = self.text.rstrip()  # a space before a `!` makes it a message
        if typed and (not self._sent or self._sent[-1] != self.text):
            self._sent.append(self.text)
        self._recalled = 0
        self.text = ""
        self._refused.clear()
        return typed

    @property
    def written(self) -> list[str]:
        return self._sent[::-1]

    def remember(self, messages: Iterable[Composed]) -> None:
        """Add messages of an earlier run to the recalled ones, after the present ones."""
        typed = map(self.folded.refold, messages)
        self._sent = [text for text in typed if text not in self._sent] + self._sent

    def _before_cursor(self) -> str:
        return self.get_text_range((0, 0), self.cursor_location)


def _location(text: str, index: int) -> tuple[int, int]:
    before = text[:index].split("\n")
    return len(before) - 1, len(before[-1])


def _as_a_whole(typed: str) -> str:
    """Describe a pattern or a folder, which is attached as typed; empty for anything else."""
    place = current_folder() / expanded(typed)
    if typed.endswith("/") and os.path.isdir(place):  # pathlib's raises for a name that is too long
        return "the whole folder"
    return "what matches" if is_pattern(typed) and not os.path.exists(place) else ""
