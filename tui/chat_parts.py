"""The parts of the open chat, for the commands."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from textual.app import App

from gptoss_local.talk.conversation import ToolChoice
from gptoss_local.talk.conversation.tool_choice import OPTION
from gptoss_local.talk.history import History
from gptoss_local.talk.tools import Toolbox
from tui.chat_view import ChatView
from tui.conversation import Conversation
from tui.dialogue import Dialogue
from tui.downloads import Downloads
from tui.screens.dialog import Dialog
from tui.server import ChatServer

_T = TypeVar("_T")


@dataclass(frozen=True)
class ChatParts:
    """The parts of the chat that a command gets.

    Attributes:
        keys: Ids of bindings, and the keys that the user gave them.
    """

    view: ChatView
    server: ChatServer
    history: History
    conversation: Conversation
    toolbox: Toolbox
    tool_choice: ToolChoice
    dialogue: Dialogue
    downloads: Downloads
    keys: Mapping[str, str]

    @property
    def app(self) -> App[Any]:
        return self.view.app

    async def open_tools(self) -> None:
        """Give the opened chat its tools, which know the pages that it may cite."""
        self.tool_choice.take(self.conversation.options)
        await self.toolbox.new_chat(self.conversation.pages)

    def keep_tools(self) -> None:
        """Store with the chat which tools are on."""
        conversation = self.conversation
        conversation.set_option(OPTION, self.tool_choice.text(conversation.options))

    def open_dialog(
        self,
        dialog: Dialog[_T | None],
        done: Callable[[_T | None], None] | None = None,
        *,
        since: int,
    ) -> None:
        """Open the dialog of a command.

        Args:
            dialog: Waits for a pause if keys came since the command.
            done: Gets the choice.
            since: `view.typing.n_keys` when the command began.
        """
        typing = self.view.typing
        if typing.n_keys == since:
            self.app.push_screen(dialog, done)
            return

        async def open_later() -> None:
            await typing.pause()
            self.app.push_screen(dialog, done)

        dialog.comes_unasked = True
        self.view.run_worker(open_later(), group="dialog", exclusive=True)
