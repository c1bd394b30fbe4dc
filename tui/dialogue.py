"""Sends, edits and queues the next messages of the open chat."""

from gptoss_local.base.errors import AnsweringError, GptOssError, HistoryError, UsageError
from gptoss_local.talk.answer import Answer
from gptoss_local.talk.history import Turn
from tui.attachments import image_note
from tui.chat_view import Talk
from tui.conversation import composed_of
from tui.exchange import LiveExchange
from tui.paste import FoldedTexts, current_folder
from tui.screens.errors import errors_shown, show_error
from tui.widgets.message_queue import MessageQueue


class Dialogue:
    """Sends messages one after the other; at most one exchange runs."""

    def __init__(self, talk: Talk, folded: FoldedTexts) -> None:
        self.editing: Turn | None = None  # the message that the next one replaces
        self.draft = ""  # the input's text before
        self._talk = talk
        self._view, self._conversation = talk.view, talk.conversation
        self.queue = MessageQueue()  # on the screen while the chat is
        self._folded = folded
        self._exchange: LiveExchange | None = None
        self._is_steering = False

    @property
    def answer(self) -> Answer | None:
        """Return the present answer, or the last one since the chat was opened."""
        return self._exchange.answer if self._exchange is not None else None

    @property
    def note(self) -> str:
        return self._exchange.note if self._exchange is not None else ""

    @property
    def is_busy(self) -> bool:
        return self._exchange is not None and self._exchange.is_live

    @property
    def _is_shown(self) -> bool:
        return self._view.conversation is self._conversation

    def reset(self) -> None:
        self._exchange = None

    async def say(self, typed: str) -> None:
        if not self.is_busy:
            await self._send(typed)
        elif self.editing is None:
            self.queue.add(typed)
        else:  # another version of a message cannot wait: its branch is not the one shown
            self.refuse()
            self.edit(self.editing, typed)

    def refuse(self) -> None:
        self._view.app.notify("An answer streams. Esc stops it.", severity="warning")

    async def begin(self, turn: Turn, *, is_new: bool) -> None:
        view = self._view
        await view.show_answer(turn, is_new=is_new)
        self._exchange = LiveExchange(self._talk, turn)
        view.run_worker(self._run(self._exchange), group="exchange")
        view.show_status()

    def stop(self) -> None:
        if self._exchange is not None and self.is_busy:
            self._exchange.stop()

    async def answer_now(self) -> None:
        """End the reasoning of the answer. Raises UsageError if there is none."""
        if self._exchange is None or not self.is_busy or not await self._exchange.answer_now():
            raise UsageError("the model is not thinking now")

    async def tick(self) -> None:
        if self._exchange is not None and self.is_busy:
            await self._exchange.tick()

    async def steer(self, typed: str) -> None:
        """Send a text, or the first waiting message, without waiting for the answer."""
        queue = self.queue
        if typed:
            queue.add(typed, is_next=True)
        if queue.is_empty:
            return
        if self.is_busy:
            self._is_steering = True
            self.stop()
        else:
            await self._send(queue.take_first())

    def edit(self, turn: Turn, typed: str | None = None) -> None:
        if self.editing is None:
            self.draft = self._view.typed
        self.editing = turn
        self._view.fill(self._folded.refold(composed_of(turn)) if typed is None else typed)

    def leave_edit(self, *, typed: str = "") -> None:
        """Leave the message as it is, and put the draft back into the input, then `typed`."""
        if self.editing is not None:
            self.editing, draft, self.draft = None, self.draft, ""
            self._view.fill("\n\n".join(filter(None, (draft, typed))))

    def take_back_queue(self, *, is_last: bool = False) -> None:
        text = self.queue.take_last() if is_last else self.queue.take_all()
        self._view.fill("\n\n".join(filter(None, (text, self._view.typed))))

    def _take_back_question(self) -> None:
        asked = self._conversation.last("user")
        if asked is not None and self._is_shown and not self._view.typed:
            self.edit(asked)

    async def _send(self, typed: str) -> None:
        """Ask the model; replaces the message that is being edited.

        A message that cannot be stored goes back to the input, with all that wait after it.
        """
        editing, conversation, view = self.editing, self._conversation, self._view
        n_before = len(conversation.turns)
        if note := image_note(typed, current_folder()):
            view.app.notify(f"{note} Only its path is sent.", severity="warning", markup=False)
        try:
            conversation.ask(*self._folded.unfold(typed), instead_of=editing)
        except (AnsweringError, HistoryError) as error:
            show_error(view.app, error)
            self.queue.add(typed, is_next=True)
            if self._is_shown:
                self.take_back_queue()
            return
        self.leave_edit(typed=view.typed)
        if editing is None:
            for added in conversation.turns[n_before:]:  # instructions come with the first message
                await view.add_turn(added)
        await self.begin(conversation.begin_answer(), is_new=editing is None)

    async def _run(self, exchange: LiveExchange) -> None:
        try:
            await exchange.lead()
        except GptOssError as error:  # the server is gone, or the disk is full
            show_error(self._view.app, error)
        if exchange.is_given_up:
            self._take_back_question()
        self._view.answer_ended()
        if not self._is_shown:
            said = {"done": "has its answer"}.get(phase := exchange.answer.phase, phase)
            self._view.app.notify(f"“{self._conversation.title}”: {said}.", markup=False)
        is_steered, self._is_steering = self._is_steering, False
        if self.queue.is_empty:
            return
        if exchange.ended_well or is_steered:
            with errors_shown(self._view.app):
                await self._send(self.queue.take_first())
        elif self._is_shown:
            self.take_back_queue()
