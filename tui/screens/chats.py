"""The list of chats: open, search, rename, pin, delete, export, import."""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import ClassVar, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from gptoss_local.base.quantities import counted
from gptoss_local.talk.history import MATCH_END, MATCH_START, ChatSummary, History, Hit
from gptoss_local.talk.history.plain import one_line
from tui.screens.dialog import ConfirmDialog, Dialog, LineDialog
from tui.screens.errors import errors_shown

_SEARCH_AFTER_S = 0.15
_MAX_SHOWN = 300
_MAX_PREVIEW = 180  # characters of a message


class Place(NamedTuple):
    """The choice: a chat, perhaps at one of its turns."""

    chat_id: int
    turn_id: int | None
    words: str = ""  # that were searched for


class ChatsDialog(Dialog[Place | None]):
    """Lists the newest chats; words in its line, at first `words`, search all of them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Leave"),
        Binding("f2", "rename", "Rename", id="chats.rename"),
        Binding("f8", "delete", "Delete", id="chats.delete"),
        Binding("f5", "export", "Export", id="chats.export"),
        Binding("f6", "pin", "Pin, or no longer", id="chats.pin"),
        Binding("f7", "import", "Import", id="chats.import"),
        Binding("down", "move(1)", show=False, priority=True),
        Binding("up", "move(-1)", show=False, priority=True),
    ]
    TITLE = "Chats"
    KEYS = "Enter open  F2 rename  F5 export  F6 pin  F7 import  F8 delete  Esc"

    def __init__(
        self,
        history: History,
        export: Callable[[int], None],
        import_: Callable[[str], int],
        delete: Callable[[int], Awaitable[None]],
        *,
        words: str = "",
    ) -> None:
        super().__init__()
        self._export = export
        self._import = import_
        self._delete = delete
        self._history = history
        self._words = words
        self._listed: str | None = None  # the words of the list
        self._places: list[Place] = []

    def content(self) -> ComposeResult:
        yield Input(self._words, placeholder="Search all chats")
        yield OptionList(markup=False)
        yield Static(classes="preview", markup=False)

    @on(OptionList.OptionHighlighted)
    def preview(self) -> None:
        text = ""
        with errors_shown(self):
            if place := self._marked():
                turn_id = place.turn_id or self._history.chat(place.chat_id).leaf_id
                turns = [self._history.turn(turn_id)] if turn_id else []
                if turns and turns[0].parent_id and not place.turn_id:
                    turns.insert(0, self._history.turn(turns[0].parent_id))
                marks = {"user": "❯ ", "assistant": ""}
                text = "\n".join(
                    marks.get(turn.role, f"[{turn.role}] ") + one_line(turn.content, _MAX_PREVIEW)
                    for turn in turns
                )
        self.query_one(".preview", Static).update(text)

    def opened(self) -> None:
        self._refill()

    def on_input_changed(self) -> None:
        self._words = self.query_one(Input).value.strip()
        self.set_timer(_SEARCH_AFTER_S, partial(self._refill_if, self._words))

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def choose(self) -> None:
        self._refill_if(self.query_one(Input).value.strip())
        if place := self._marked():
            self.dismiss(place)

    def action_rename(self) -> None:
        if chat := self._marked_chat():

            def rename(title: str | None) -> None:
                if title:
                    with errors_shown(self):
                        self._history.rename(chat.id, title)
                    self._refill(chat.id)

            self.app.push_screen(LineDialog("Rename the chat", chat.title), rename)

    def action_delete(self) -> None:
        if chat := self._marked_chat():

            async def delete(is_sure: bool | None) -> None:
                if is_sure:
                    with errors_shown(self):
                        await self._delete(chat.id)
                    self._refill()

            self.app.push_screen(ConfirmDialog(f"Delete “{chat.title}” for good?"), delete)

    def action_export(self) -> None:
        if chat := self._marked_chat():
            with errors_shown(self):
                self._export(chat.id)

    def action_pin(self) -> None:
        if chat := self._marked_chat():
            with errors_shown(self):
                self._history.pin(chat.id, not chat.is_pinned)
            self._refill(chat.id)

    def action_import(self) -> None:
        def add(path: str | None) -> None:
            if path:
                with errors_shown(self):
                    self._refill(self._import(path))

        self.app.push_screen(LineDialog("Import a chat: the JSON file of an export"), add)

    def _marked(self) -> Place | None:
        idx = self.query_one(OptionList).highlighted
        return None if idx is None else self._places[idx]

    def _marked_chat(self) -> ChatSummary | None:
        with errors_shown(self):
            if place := self._marked():
                return self._history.chat(place.chat_id)
        return None

    def _refill_if(self, words: str) -> None:
        """Search, unless more has been typed by now, or it is done."""
        if words == self._words != self._listed:
            self._refill()

    def _refill(self, marked_id: int | None = None) -> None:
        options = self.query_one(OptionList)
        found: list[tuple[Place, Content]] = []
        with errors_shown(self):
            found = self._find()
        self._listed = self._words
        more = "more words find fewer" if self._words else "words find older ones"
        about = f"the first {_MAX_SHOWN}; {more}" if len(found) == _MAX_SHOWN else ""
        self.query_one(".dialog").border_subtitle = about
        self._places = [place for place, _ in found]
        options.set_options(Option(line) for _, line in found)
        if found:
            ids = [place.chat_id for place in self._places]
            options.highlighted = ids.index(marked_id) if marked_id in ids else 0
        else:
            words = "Nothing found." if self._words else "There are no chats yet."
            options.add_option(Option(words, disabled=True))
            self.preview()

    def _find(self) -> list[tuple[Place, Content]]:
        if self._words:
            hits = self._history.search(self._words, _MAX_SHOWN)
            return [(Place(hit.chat_id, hit.turn_id, self._words), _hit_line(hit)) for hit in hits]
        chats = self._history.chats(_MAX_SHOWN, pinned_first=True)
        return [(Place(chat.id, None), _chat_line(chat)) for chat in chats]


def _chat_line(chat: ChatSummary) -> Content:
    about = (
        f"{age(time.time() - chat.updated_s)} · {counted(chat.n_turns, 'message')} · {chat.model}"
    )
    about += f" · {chat.preset}" if chat.preset else ""
    pin = "★ " if chat.is_pinned else ""
    return Content.assemble(pin, chat.title or "(no title)", "\n", (f"  {about}", "dim"))


def _hit_line(hit: Hit) -> Content:
    snippet = Content("")
    for n, part in enumerate(hit.snippet.split(MATCH_START)):
        marked, _, rest = part.partition(MATCH_END) if n else ("", "", part)
        snippet += Content.styled(marked, "bold underline") + Content(rest)
    return Content.assemble(hit.title or "(no title)", "\n  ", snippet)


def age(seconds: float) -> str:
    for name, unit_s in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= unit_s:
            return f"{counted(int(seconds // unit_s), name)} ago"
    return "just now"
