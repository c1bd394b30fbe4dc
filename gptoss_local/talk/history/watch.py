"""Notices what this process and others change in the chats, for the terminal and the page."""

from typing import NamedTuple

from gptoss_local.base.errors import HistoryLockedError
from gptoss_local.talk.history.chats import History, is_temporary
from gptoss_local.talk.history.rows import ChatSummary, Turn


class News(NamedTuple):
    """News since the last look."""

    chats: list[ChatSummary]  # pinned chats first
    chat: ChatSummary | None  # which is watched; None if it is gone
    turns: list[Turn]  # that are new or changed; at first all of them
    answering: list[int]  # the chats in which a turn streams


class Watch:
    """Looks at the first `n_chats` chats, maybe of each folder, and at one chat, whenever asked."""

    def __init__(self, n_chats: int, *, by_folder: bool = False) -> None:
        self._n_chats, self._by_folder = n_chats, by_folder
        self._looked: object = None
        self._chat_id: int | None = None
        self._revision = 0

    def look(self, history: History, chat_id: int | None) -> News | None:
        """Return what is new; None if nothing was written since. PERF: that takes 10 µs."""
        looked = history.version, chat_id
        if looked == self._looked:
            return None
        try:
            if self._by_folder:
                chats, answering = history.chats_by_folder(self._n_chats), history.answering()
            else:
                chats, answering = history.chats(self._n_chats, pinned_first=True), []
        except HistoryLockedError:
            if not is_temporary(chat_id):
                raise
            chats, answering = [], []
        chat: ChatSummary | None = None
        turns: list[Turn] = []
        if chat_id is not None:
            if chat_id != self._chat_id:
                self._chat_id, self._revision = chat_id, 0
            history = history.of(chat_id)
            if history.has(chat_id):
                chat = history.chat(chat_id)
                turns, self._revision = history.changed(chat_id, self._revision)
        self._looked = looked
        return News(chats, chat, turns, answering)
