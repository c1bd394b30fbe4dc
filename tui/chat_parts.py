"""The parts of the open chat, for the commands."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from textual.app import App

from gptoss_local.talk.conversation import TOOLS, ToolChoice
from gptoss_local.talk.history import History
from gptoss_local.talk.tools import Toolbox
from tui.chat_view import ChatView
from tui.conversation import Conversation
from tui.dialogue import Dialogue
from tui.downloads import Downloads
from tui.screens.dialog import Dialog
from tui.screens.errors import errors_shown
from tui.server import ChatServer

_POLL_S = 0.05
_T = TypeVar("_T")


@dataclass
class Found:
    words: str = ""
    spot: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class ChatParts:
    """The parts of the chat that a command gets."""

    view: ChatView
    server: ChatServer
    history: History
    conversation: Conversation
    toolbox: Toolbox
    tool_choice: ToolChoice
    dialogue: Dialogue
    downloads: Downloads
    keys: Mapping[str, str]  # the user's, by ids of bindings
    rooms: "Rooms"
    found: Found = field(default_factory=Found)

    @property
    def app(self) -> App[Any]:
        return self.view.app

    async def open_tools(self) -> None:
        """Give the opened chat its tools, which know the pages that it may cite."""
        self.tool_choice.take(self.conversation.options)
        await self.toolbox.new_chat(self.conversation.pages)

    def keep_tools(self) -> None:
        conversation = self.conversation
        conversation.set_option(TOOLS, self.tool_choice.text(conversation.options))

    def open_dialog(
        self,
        dialog: Dialog[_T | None],
        done: Callable[[_T | None], None] | None = None,
        *,
        since: int,
    ) -> None:
        """Open the dialog of a command, unless keys came since it began.

        `since` is `view.typing.n_keys` at that time; `done` gets the choice.
        """
        if self.view.typing.n_keys == since:
            self.app.push_screen(dialog, done)
        else:
            name = (dialog.title or "it").lower()
            self.app.notify(f"You typed on, so {name} did not open.", markup=False)

    def then(
        self, act: Callable[["ChatParts", _T], Awaitable[None]]
    ) -> Callable[[_T | None], Awaitable[None]]:
        """Return what does something with the choice of a dialog, unless it was left."""

        async def chosen(choice: _T | None) -> None:
            if choice:
                with errors_shown(self.app):
                    await act(self, choice)

        return chosen


class Rooms:
    """The chat that is shown, and the chats left while their answers stream."""

    def __init__(
        self, conversation: Conversation, make: Callable[["Rooms", Conversation], ChatParts]
    ) -> None:
        self._make = make
        self.shown = make(self, conversation)
        self._left: list[ChatParts] = []

    def __iter__(self) -> Iterator[ChatParts]:
        return iter([self.shown, *self._left])

    async def enter(self, chat_id: int | None) -> ChatParts:
        before = self.shown
        before.dialogue.leave_edit()
        if chat_id is not None and chat_id == before.conversation.chat_id:
            return before
        found = [room for room in self._left if chat_id and room.conversation.chat_id == chat_id]
        if found:
            self.shown = found[0]
            self._left.remove(found[0])
        elif _is_under_way(before):
            old = before.conversation
            self.shown = self._make(self, Conversation(before.history, old.model, old.effort))
        else:
            return before
        self._left.append(before)
        if not self.shown.dialogue.is_busy and not self.shown.dialogue.queue.is_empty:
            self.shown.dialogue.take_back_queue()  # its answer failed meanwhile
        return self.shown

    async def end_idle(self) -> None:
        for room in self._left[:]:
            if not _is_under_way(room):
                room.conversation.store()
                self._left.remove(room)
                await room.toolbox.close()
                await room.dialogue.queue.remove()

    async def end_answer(self, chat_id: int) -> None:
        for dialogue in [r.dialogue for r in self if r.conversation.chat_id == chat_id]:
            if not dialogue.queue.is_empty:
                dialogue.take_back_queue()
            dialogue.stop()
            while dialogue.is_busy:
                await asyncio.sleep(_POLL_S)


def _is_under_way(room: ChatParts) -> bool:
    return room.dialogue.is_busy or not room.dialogue.queue.is_empty
