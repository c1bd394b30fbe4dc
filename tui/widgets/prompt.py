"""The input: grows with its text, Enter sends, pastes never do.

Below it stand completions of commands (`/`) and of files (`@`).
"""

import re
from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Static, TextArea

from gptoss_local.errors import UsageError
from tui.commands import Registry
from tui.history.plain import plain_text
from tui.paste import FoldedTexts, current_folder, expanded, find_files

_NEWLINE = ("ctrl+j", "shift+enter", "alt+enter")
_AT = re.compile(r"(?:^|\s)@((?:(?!\s@).)*)$")  # a path may have spaces in it
_MAX_SHOWN = 6


class Prompt(TextArea):
    """What is typed; sends `Submitted`, and `Completions` whenever these change."""

    HELP = "Enter sends. Ctrl-J begins a new line. / lists commands, @ attaches a file."
    DEFAULT_CSS = """
    Prompt {
        height: auto;
        min-height: 3;
        max-height: 12;
        border: round $primary;
        background: transparent;
        padding: 0 1;
        scrollbar-size-vertical: 1;
        &:focus { border: round $accent; background: transparent; }
        &.-editing { border: round $warning; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+j", "newline", "New line", id="prompt.newline"),
        Binding("tab", "complete", "Complete", show=False, id="prompt.complete"),
        Binding("shift+tab", "app.focus_previous", "To the messages", show=False),
    ]

    class Submitted(Message):
        """A message or a command, with the texts of its chips."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Completions(Message):
        """What Tab could make of what is typed."""

        def __init__(self, lines: list[str]) -> None:
            super().__init__()
            self.lines = lines

    def __init__(self, registry: Registry) -> None:
        super().__init__(
            id="prompt",
            soft_wrap=True,
            show_line_numbers=False,
            highlight_cursor_line=False,
            placeholder="Message, /command or @file",
        )
        self._registry = registry
        self._folded = FoldedTexts()
        self._sent: list[str] = []
        self._recalled = 0  # how many messages back is what the input shows

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            self.submit()
        elif event.key in _NEWLINE:
            event.stop()
            event.prevent_default()
            self.action_newline()
        else:
            await super()._on_key(event)

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()  # the base class has a handler of its own, which would paste again
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        self.insert(self._folded.fold_paste(plain_text(text)))

    def on_text_area_changed(self) -> None:
        self.post_message(self.Completions(self.completions()))

    def fill(self, text: str) -> None:
        """Replace what is typed, e.g. by an earlier message that is edited."""
        self.text = text
        self.move_cursor(self.document.end)
        self.focus()

    def set_editing(self, is_editing: bool) -> None:
        """Say that what is typed replaces an earlier message."""
        self.set_class(is_editing, "-editing")
        self.border_title = "another version of your message; Esc leaves" if is_editing else ""

    def completions(self) -> list[str]:
        """Lines for what stands before the cursor."""
        typed = self._before_cursor()
        if commands := self._registry.complete(typed):
            return [f"{c.usage}  {c.summary}" for c in commands[:_MAX_SHOWN]]
        found = _AT.search(typed)
        return [f"@{path}" for path in find_files(found[1], current_folder())] if found else []

    def action_newline(self) -> None:
        self.insert("\n")

    def action_complete(self) -> None:
        typed = self._before_cursor()
        if commands := self._registry.complete(typed):
            self.fill(f"/{commands[0].name} ")
        elif found := _AT.search(typed):
            self._complete_file(found[1])

    def action_cursor_up(self, select: bool = False) -> None:
        """At the first row, walk back through what was sent."""
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

    def _complete_file(self, typed: str) -> None:
        """Attach the file, or write the path as far as one completion leads."""
        found = find_files(typed, current_folder(), limit=1)
        if not found:
            return
        row, column = self.cursor_location
        start = (row, column - len(typed) - 1)
        if found[0].endswith("/"):
            self.replace(f"@{found[0]}", start, (row, column))
            return
        try:
            chip = self._folded.fold_file(current_folder() / expanded(found[0]))
        except UsageError as error:
            self.notify(f"{error.message}. {error.hint}", severity="warning", markup=False)
            return
        self.replace(f"{chip} ", start, (row, column))

    def submit(self) -> None:
        """As Enter does."""
        if self._before_cursor().endswith("\\"):  # for terminals without Ctrl-J
            row, column = self.cursor_location
            self.replace("\n", (row, column - 1), (row, column))
        elif self.text.strip():
            self.post_message(self.Submitted(self._folded.unfold(self.text).strip()))

    def take(self) -> str:
        """What would be sent, which goes its way now; empty if there is nothing."""
        text = self._folded.unfold(self.text).strip()
        self.accepted()
        return text

    def accepted(self) -> None:
        """What was submitted went its way: remember it and clear the input."""
        if self.text.strip() and (not self._sent or self._sent[-1] != self.text):
            self._sent.append(self.text)
        self._recalled = 0
        self.text = ""

    def remember(self, texts: Sequence[str]) -> None:
        """What was sent in an earlier run can be recalled, too, behind what was in this one."""
        self._sent = [text for text in texts if text not in self._sent] + self._sent

    def _before_cursor(self) -> str:
        row, column = self.cursor_location
        lines = self.text.split("\n")[: row + 1]
        lines[-1] = lines[-1][:column]
        return "\n".join(lines)


class CompletionList(Static):
    """The completions over the input; hidden when there are none."""

    DEFAULT_CSS = """
    CompletionList { height: auto; display: none; color: $text-muted; padding: 0 2; }
    """

    def __init__(self) -> None:
        super().__init__(markup=False)

    def show(self, lines: list[str]) -> None:
        """Show what Tab takes, the first line."""
        self.display = bool(lines)
        self.update("\n".join(("⇥ " if n == 0 else "  ") + line for n, line in enumerate(lines)))
