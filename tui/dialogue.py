"""What is said next in the open chat: messages that are sent, edited, or wait for their turn."""

from typing import TYPE_CHECKING

from gptoss_local.errors import GptOssError, HistoryError
from tui.answer import Answer
from tui.exchange import Exchange
from tui.history import Turn
from tui.screens.errors import telling
from tui.widgets.turn_view import AssistantTurnView

if TYPE_CHECKING:
    from tui.screens.chat import ChatScreen


class Dialogue:
    """Sends messages one after the other; at most one exchange runs.

    Attributes:
        editing: The message that the next one replaces.
    """

    def __init__(self, screen: "ChatScreen") -> None:
        self.editing: Turn | None = None
        self._draft = ""  # what was in the input before the message that is edited
        self._screen = screen
        self._exchange: Exchange | None = None
        self._is_steering = False

    @property
    def answer(self) -> Answer | None:
        """The one that streams, or the last one since the chat was opened."""
        return self._exchange.answer if self._exchange is not None else None

    @property
    def note(self) -> str:
        """What happens while no answer streams."""
        return self._exchange.note if self._exchange is not None else ""

    @property
    def is_busy(self) -> bool:
        """An answer streams, or a tool runs or waits for a word of the user."""
        return self._exchange is not None and self._exchange.is_live

    def reset(self) -> None:
        """Another chat or branch is shown."""
        self._exchange = None

    async def say(self, text: str) -> None:
        """Send a message, or let it wait until the answer that streams is complete."""
        if not self.is_busy:
            await self._send(text)
        elif self.editing is None:
            self._screen.queue.add(text)
        else:  # another version of a message cannot wait: its branch is not the one shown
            self._screen.refuse()
            self.edit(self.editing, text)

    async def begin(self, turn: Turn, *, is_new: bool) -> None:
        """Stream into a turn: a new one at the end, or one of a branch that is to be shown."""
        screen = self._screen
        screen.query_one("#hint").display = False
        if is_new:
            view = await screen.transcript.add(turn)
        else:
            await screen.show_branch()
            view = screen.transcript.views()[-1]
        assert isinstance(view, AssistantTurnView)
        exchange = self._exchange = Exchange(screen)
        screen.run_worker(self._run(exchange, turn, view), group="exchange")
        screen.show_status()

    def stop(self) -> None:
        """Stop the answer; what there is of it stays."""
        if self._exchange is not None and self.is_busy:
            self._exchange.stop()

    async def tick(self) -> None:
        if self._exchange is not None and self.is_busy:
            await self._exchange.tick()

    async def steer(self, text: str) -> None:
        """Send a text, or else what waits, without waiting for the answer to end."""
        queue = self._screen.queue
        if text:
            queue.add(text, is_next=True)
        if queue.is_empty:
            return
        if self.is_busy:
            self._is_steering = True
            self.stop()
        else:
            await self._send(queue.take_first())

    def edit(self, turn: Turn, text: str | None = None) -> None:
        """Put a message into the input; what is sent becomes another version of it."""
        if self.editing is None:
            self._draft = self._screen.prompt.text
        self.editing = turn
        self._screen.prompt.set_editing(True)
        self._screen.prompt.fill(turn.content if text is None else text)

    def leave_edit(self, *, typed: str = "") -> None:
        """The message stays as it is; a draft is in the input again, then what was `typed`."""
        if self.editing is not None:
            self.editing = None
            self._screen.prompt.set_editing(False)
            self._screen.prompt.fill("\n\n".join(filter(None, (self._draft, typed))))

    def take_back_question(self) -> None:
        """The last message is in the input again, to be made shorter."""
        asked = self._screen.conversation.last("user")
        if asked is not None and not self._screen.prompt.text:
            self.edit(asked)

    def take_back_queue(self, *, is_last: bool = False) -> None:
        """Messages that waited are in the input again: all, or the last one."""
        queue, prompt = self._screen.queue, self._screen.prompt
        text = queue.take_last() if is_last else queue.take_all()
        prompt.fill("\n\n".join(filter(None, (text, prompt.text))))

    async def _send(self, text: str) -> None:
        """Ask the model; replaces the message that is being edited.

        A message that cannot be stored is in the input again, with all that wait behind it.
        """
        editing, conversation = self.editing, self._screen.conversation
        try:
            turn = conversation.ask(text, instead_of=editing)
        except HistoryError as error:
            self._screen.show_error(error)
            self._screen.queue.add(text, is_next=True)
            self.take_back_queue()
            return
        self.leave_edit(typed=self._screen.prompt.text)
        if editing is None:
            await self._screen.transcript.add(turn)
        await self.begin(conversation.begin_answer(), is_new=editing is None)

    async def _run(self, exchange: Exchange, turn: Turn, view: AssistantTurnView) -> None:
        """Worker: an exchange, and then the next message that waits."""
        try:
            await exchange.run(turn, view)
        except GptOssError as error:  # the server is gone, or the disk is full
            self._screen.show_error(error)
        self._screen.show_speed()
        self._screen.model_changed()
        is_steered, self._is_steering = self._is_steering, False
        if self._screen.queue.is_empty:
            return
        if exchange.ended_well or is_steered:
            with telling(self._screen):
                await self._send(self._screen.queue.take_first())
        else:
            self.take_back_queue()
