"""One answer on its way: from the server into the store and onto the screen.

Frames are only counted and collected as they come; a timer of the screen calls `tick`, which paints
and stores. So a fast model cannot keep the keys waiting.
"""

import asyncio
from contextlib import aclosing
from typing import Any

from gptoss_local.errors import ContextOverflowError, GptOssError, HistoryError
from tui.answer import Answer
from tui.conversation import Conversation
from tui.history import Turn
from tui.screens.errors import show_error
from tui.server import ChatServer
from tui.widgets.turn_view import AssistantTurnView

TICK_S = 1 / 20
_SAVE_EVERY = 20  # ticks


class RunningAnswer:
    """An answer, the turn it is stored in and the view it is painted in.

    Attributes:
        turn: As it is stored now.
        was_too_long: The server refused the prompt because it does not fit in the context.
    """

    def __init__(self, conversation: Conversation, turn: Turn, view: AssistantTurnView) -> None:
        self.answer = Answer()
        self.turn = turn
        self.was_too_long = False
        self._conversation = conversation
        self._view = view
        self._task: asyncio.Task[None] | None = None
        self._painting = asyncio.Lock()
        self._n_painted = -1
        self._n_ticks = 0
        self._is_refused = False

    async def run(self, server: ChatServer, body: dict[str, Any]) -> None:
        """Receive until the answer is over, however it ends; then it is stored and painted."""
        self._task = asyncio.create_task(self._receive(server, body))
        try:
            await asyncio.wait((self._task,))
        finally:  # also when the app ends, which cancels this
            self.stop()
            self.save()
        if not self._task.cancelled():
            self._task.result()
        await self.paint()

    def stop(self) -> None:
        """Stop the model: the connection is closed, and what there is of the answer stays."""
        self.answer.end("stopped")
        if self._task is not None:
            self._task.cancel()

    async def tick(self) -> None:
        """Paint what is new, and store it once a second."""
        self._n_ticks += 1
        if self.answer.n_frames != self._n_painted:
            await self.paint()
        if self._n_ticks % _SAVE_EVERY == 0:
            self.save()

    async def paint(self) -> None:
        """Bring the view up to date."""
        async with self._painting:  # the timer has a task of its own beside the screen's
            if self._view.is_attached:
                self._n_painted = self.answer.n_frames
                await self._view.show(self.answer)

    def save(self) -> None:
        """Store the answer as far as it is; it goes on where the disk refuses that."""
        self.turn = self._view.turn = self._conversation.keep(self.turn, self.answer)
        try:
            self._conversation.store()
        except HistoryError as error:  # the next call tries it again, and need not say it again
            if not self._is_refused:
                show_error(self._view, error)
            self._is_refused = True
        else:
            self._is_refused = False

    async def _receive(self, server: ChatServer, body: dict[str, Any]) -> None:
        answer = self.answer
        try:
            async with aclosing(server.stream_chat(body)) as frames:
                async for frame in frames:
                    if not answer.is_live:
                        break
                    is_first = answer.phase == "waiting"
                    answer.add(frame)
                    if is_first and answer.phase != "waiting":
                        self._view.call_later(self.paint)  # without waiting for the timer
            answer.end("failed", "the answer ended early")
        except GptOssError as error:
            self.was_too_long = isinstance(error, ContextOverflowError)
            answer.end("failed", f"{error.message}. {error.hint}".strip())
        finally:
            answer.end("failed", "internal error")
