"""The chat's screen for the chat's parts below it."""

from abc import abstractmethod
from typing import NamedTuple

from textual.screen import Screen

from gptoss_local.talk.history import Turn
from gptoss_local.talk.tools import Toolbox
from tui.conversation import Conversation
from tui.screens.dialog import Typing
from tui.server import ChatServer
from tui.widgets.prompt import Prompt
from tui.widgets.question import Question
from tui.widgets.speed_panel import SpeedPanel
from tui.widgets.transcript import Transcript
from tui.widgets.turn_view import AssistantTurnView


class Talk(NamedTuple):
    """A chat, and who takes part in it."""

    view: "ChatView"
    conversation: Conversation
    server: ChatServer
    toolbox: Toolbox


class ChatView(Screen[None]):
    """Shows the open chat; `ChatScreen` is one."""

    prompt: Prompt
    question: Question

    def __init__(self) -> None:
        super().__init__()
        self.typing = Typing()
        self.model_names: list[str] = []
        self.transcript = Transcript(
            lambda turn_id: self.conversation.place(turn_id),
            lambda turn_id: self.conversation.pages_before(turn_id),
        )
        self._speed = SpeedPanel()

    @property
    @abstractmethod
    def conversation(self) -> Conversation: ...

    @abstractmethod
    def fill(self, text: str) -> None: ...

    @abstractmethod
    async def show_branch(self, at: Turn | None = None) -> None: ...

    @abstractmethod
    def show_status(self) -> None: ...

    @abstractmethod
    def answer_ended(self) -> None: ...

    @abstractmethod
    def model_changed(self) -> object: ...

    @property
    def typed(self) -> str:
        return self.prompt.text

    def attach(self, path: str) -> None:
        self.prompt.attach(path)
        self.set_focus(self.prompt)

    def get_selected_text(self) -> str | None:
        try:
            return super().get_selected_text()
        except IndexError:  # Textual's, where the text has fewer lines than when it was selected
            return None

    async def add_turn(self, turn: Turn) -> None:
        """Show a turn at the end, if it is of the chat that is shown."""
        if turn.chat_id == self.conversation.chat_id:
            self.set_class(False, "-empty")
            await self.transcript.add(turn)

    async def show_answer(self, turn: Turn, *, is_new: bool) -> None:
        if is_new:
            await self.add_turn(turn)
        elif turn.chat_id == self.conversation.chat_id:
            await self.show_branch()

    def answer_view(self, turn: Turn) -> AssistantTurnView | None:
        """Return the view of an answer; None while another chat is shown."""
        view = self.transcript.view(turn)
        return view if isinstance(view, AssistantTurnView) else None

    def toggle_speed(self, is_on: bool | None = None) -> None:
        self._speed.display = not self._speed.display if is_on is None else is_on
        self._show_speed()

    def _show_speed(self) -> None:
        turn = self.conversation.last("assistant")
        self._speed.show(turn.stats if turn is not None else {})

    def action_scroll(self, n_rows: int) -> None:
        self.transcript.scroll_relative(y=n_rows, animate=False)

    def action_page(self, n: int) -> None:
        self.action_scroll(n * self.transcript.scrollable_content_region.height)

    async def action_question(self, step: int) -> None:
        await self.transcript.show_question(step)

    async def action_end(self, step: int) -> None:
        await self.transcript.show_end(step)

    def action_reasoning(self) -> None:
        focused = self.focused
        view = focused if isinstance(focused, AssistantTurnView) else self.transcript.last_answer()
        if view is not None:
            view.action_reasoning()
