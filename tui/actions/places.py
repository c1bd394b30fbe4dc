"""Commands that look for words in the open chat, and for messages that were written."""

import re
from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from gptoss_local.base.errors import UsageError
from gptoss_local.talk.history.plain import one_line
from tui.chat_parts import ChatParts
from tui.conversation import composed_of
from tui.screens.dialog import Dialog, LineDialog

_MAX_SHOWN = 100


async def find(chat: ChatParts, argument: str) -> None:
    """Show words in the chat; with the same words again, further up."""
    if argument:
        await _find(chat, argument)
    else:
        dialog = LineDialog("Find in this chat", chat.found.words)
        chat.app.push_screen(dialog, chat.then(_find))


async def _find(chat: ChatParts, words: str) -> None:
    turns, found = chat.conversation.turns, chat.found
    spots = [(n, at) for n, turn in enumerate(turns) for at in _spots(turn.content, words)]
    if not spots:
        raise UsageError(f"'{one_line(words, 40)}' is not in this chat", hint="F2 searches all.")
    above = [spot for spot in spots if words == found.words and spot < found.spot]
    found.words, found.spot = words, (above or spots)[-1]
    n, at = found.spot
    place = spots.index(found.spot) + 1
    before = [spot for spot in spots[: place - 1] if spot[0] == n]
    share = at / len(turns[n].content)
    await chat.view.transcript.show(turns[n], words, len(before), share)
    chat.app.notify(f"{place} of {len(spots)}; again shows the one above.", markup=False)


def _spots(text: str, words: str) -> list[int]:
    """Return where the words are, as written or as they are seen: without stars and backticks."""
    ways = (text, re.sub(r"[*`]", "", text))
    found = [[m.start() for m in re.finditer(re.escape(words), w, re.IGNORECASE)] for w in ways]
    return found[0] or found[1]


class RecallDialog(Dialog[str | None]):
    """Searches sent messages, as a shell's Ctrl-R does."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,ctrl+r", "move(1)", show=False, priority=True),
        Binding("up", "move(-1)", show=False, priority=True),
    ]
    TITLE = "Earlier messages"
    KEYS = "Enter take  Esc leave"

    def __init__(self, written: Sequence[str]) -> None:
        super().__init__()
        self._written = written
        self._found: list[str] = []

    def content(self) -> ComposeResult:
        yield Input(placeholder="Search what you wrote")
        yield OptionList(markup=False)

    def opened(self) -> None:
        self.search()

    @on(Input.Changed)
    def search(self) -> None:
        words = self.query_one(Input).value.casefold().split()
        found = (text for text in self._written if all(w in text.casefold() for w in words))
        self._found = [text for text, _ in zip(found, range(_MAX_SHOWN), strict=False)]
        options = self.query_one(OptionList)
        options.set_options(Option(one_line(text, 200)) for text in self._found)
        options.highlighted = 0 if self._found else None

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def choose(self) -> None:
        if (n := self.query_one(OptionList).highlighted) is not None:
            self.dismiss(self._found[n])


async def recall(chat: ChatParts, _argument: str) -> None:
    def chosen(text: str | None) -> None:
        if text:
            chat.view.fill(text)

    prompt = chat.view.prompt
    stored = [prompt.folded.refold(composed_of(turn)) for turn in chat.history.questions()]
    written = dict.fromkeys([*prompt.written, *stored])
    chat.app.push_screen(RecallDialog(list(written)), chosen)
