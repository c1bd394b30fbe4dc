"""Holds what the commands of the line-by-line chat see and change."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gptoss_local.cli._answer import Chat
from gptoss_local.cli._loading import show_load
from gptoss_local.settings import Settings

if TYPE_CHECKING:
    from gptoss_local.cli._line_editor import LineEditor


@dataclass
class Session:
    """A conversation line by line.

    Attributes:
        chat: The conversation.
        settings: Where models are.
        editor: What edits the line; None where no control sequence is wanted.
        is_over: The user has left.
    """

    chat: Chat
    settings: Settings
    editor: "LineEditor | None"
    is_over: bool = False

    def keep_history(self, *, is_kept: bool) -> None:
        """Remember what is typed from now on for the Up key, or do not."""
        if self.editor is not None:
            self.editor.keep_history(is_kept=is_kept)

    def ready_model(self) -> None:
        """Make sure of the server and of the model, which may have been unloaded since."""
        self.chat.client.ensure_running()
        show_load(self.chat.client, self.chat.load_request())
