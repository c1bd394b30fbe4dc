"""The screen's interface for the chat's parts below it."""

from collections.abc import Coroutine
from typing import Any, Protocol

from textual.app import App
from textual.widget import Widget

from gptoss_local.talk.history import Turn
from tui.conversation import Conversation
from tui.screens.dialog import Typing
from tui.widgets.prompt import Prompt
from tui.widgets.question import Question
from tui.widgets.transcript import Transcript
from tui.widgets.turn_view import AssistantTurnView


class ChatView(Protocol):
    """Shows the open chat; `ChatScreen` is one."""

    typing: Typing
    question: Question
    prompt: Prompt
    transcript: Transcript
    model_names: list[str]

    @property
    def conversation(self) -> Conversation: ...

    @property
    def app(self) -> App[Any]: ...

    @property
    def focused(self) -> Widget | None: ...

    @property
    def typed(self) -> str: ...

    def fill(self, text: str) -> None: ...

    def attach(self, path: str) -> None: ...

    async def show_branch(self, at: Turn | None = None) -> None: ...

    async def add_turn(self, turn: Turn) -> None:
        """Show a turn at the end, if it is of the chat that is shown."""

    async def show_answer(self, turn: Turn, *, is_new: bool) -> None: ...

    def answer_view(self, turn: Turn) -> AssistantTurnView | None:
        """Return the view of an answer; None while another chat is shown."""

    def show_status(self) -> None: ...

    def toggle_speed(self, is_on: bool | None = None) -> None: ...

    def answer_ended(self) -> None: ...

    def model_changed(self) -> object: ...

    def run_worker(
        self, work: Coroutine[Any, Any, None], *, group: str, exclusive: bool = False
    ) -> object: ...
