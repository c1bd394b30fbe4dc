"""Defines what the chat needs of the screen that shows it."""

from collections.abc import Coroutine
from typing import Any, Protocol

from textual.app import App
from textual.widget import Widget

from gptoss_local.talk.history import Turn
from tui.screens.dialog import Typing
from tui.widgets.turn_view import AssistantTurnView, TurnView


class ChatView(Protocol):
    """Shows the open chat; `ChatScreen` is one.

    Attributes:
        typing: Knows when keys came.
    """

    typing: Typing

    @property
    def app(self) -> App[Any]:
        """The app, which shows dialogs and notices."""

    @property
    def focused(self) -> Widget | None:
        """The widget that gets the keys."""

    @property
    def typed(self) -> str:
        """Return what is in the input."""

    def fill(self, text: str) -> None:
        """Replace what is in the input."""

    def attach(self, path: str) -> None:
        """Put a chip for a file, a folder or a pattern into the input."""

    def focus_prompt(self) -> None:
        """Give the keys to the input."""

    async def show_branch(self, at: Turn | None = None) -> None:
        """Show the conversation as it is now, at its end or at a turn."""

    async def add_turn(self, turn: Turn) -> TurnView:
        """Show a new turn at the end."""

    async def show_answer(self, turn: Turn, *, is_new: bool) -> AssistantTurnView:
        """Show an answer that begins: at the end, or with a branch that is to be shown."""

    def show_status(self) -> None:
        """Bring the status line up to date."""

    def toggle_speed(self, is_on: bool | None = None) -> None:
        """Show or hide the speed panel; None takes the other."""

    def answer_ended(self) -> None:
        """Bring what is said of the last answer and of the model up to date."""

    def model_changed(self) -> object:
        """Ask the server what it says of the model."""

    def run_worker(
        self, work: Coroutine[Any, Any, None], *, group: str, exclusive: bool = False
    ) -> object:
        """Let something run as long as the screen is there."""
