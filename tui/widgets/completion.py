"""The menu of completions above the input: commands, their arguments, files."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from gptoss_local.printable import printable

_WIDTH = 24  # columns of the first column, unless a text is longer


class Completion(NamedTuple):
    """One line of the menu.

    Attributes:
        take: Writes it into the input.
        is_whole: Enter also sends it.
        is_hint: Only Tab takes it; all other keys stay with the input.
    """

    text: str
    about: str
    take: Callable[[], object]
    is_whole: bool = False
    is_hint: bool = False


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
