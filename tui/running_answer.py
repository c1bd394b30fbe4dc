"""One answer on its way: from the server into the store and onto the screen.

Frames are only counted and collected as they come; a timer of the screen calls `tick`, which paints
and stores. So a fast model cannot keep the keys waiting.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from gptoss_local.errors import ContextOverflowError, GptOssError, HistoryError
from gptoss_local.events import ChatEvent, Growing
from gptoss_local.talk.answer import Answer, with_printable_text
from gptoss_local.talk.frames import events_of
from gptoss_local.talk.history import Turn
from tui.conversation import Conversation
from tui.screens.errors import READ_S, show_error
from tui.server import ChatServer
from tui.widgets.turn_view import AssistantTurnView

TICK_S = 1 / 20
_SAVE_EVERY = 20  # ticks


def growth_text(growth: Growing) -> str:
    """Say that the model is loaded again for a long prompt."""
    return (
        f"The prompt has {growth.n_prompt:,} tokens, so the model is loaded again: "
        f"its context grows from {growth.n_ctx_before:,} to {growth.n_ctx:,}."
    )


class RunningAnswer:
    """An answer, the turn it is stored in and the view it is painted in.

    Attributes:
        turn: As it is stored now.
        overflow: The server refused the prompt because it does not fit in the context.
    """

    def __init__(self, conversation: Conversation, turn: Turn, view: AssistantTurnView) -> None:
        self.answer = Answer(begun=turn)
        self.turn = turn
        self.overflow: ContextOverflowError | None = None
        self._conversation = conversation
        self._view = view
        self._painting = asyncio.Lock()
        self._n_painted = -1
        self._n_ticks = 0
        self._is_refused = False

    async def events(
        self, server: ChatServer, body: dict[str, Any]
    ) -> AsyncGenerator[ChatEvent, None]:
        """Yield what the server sends until the answer is over; then it is stored and painted."""
        answer = self.answer
        try:
            async with aclosing(server.stream_chat(body)) as frames:
                async for frame in frames:
                    for event in events_of(frame):
                        if isinstance(event, Growing) and answer.growth is None:
                            text = growth_text(event)
                            self._view.notify(text, timeout=READ_S, markup=False)
                        is_first = answer.phase == "waiting"
                        yield with_printable_text(event)
                        if is_first and answer.phase != "waiting":
                            self._view.call_later(self.paint)  # without waiting for the timer
            answer.end("failed", "the answer ended early")
        except GptOssError as error:
            if isinstance(error, ContextOverflowError) and error.n_prompt is not None:
                self.overflow = error
            answer.end("failed", f"{error.message}. {error.hint}".strip())
        except Exception:
            answer.end("failed", "internal error")
            raise
        self.save()
        await self.paint()

    async def tick(self) -> None:
        """Paint what is new, and store it once a second."""
        self._n_ticks += 1
        if self.answer.n_frames != self._n_painted:
            await self.paint()
        if self._n_ticks % _SAVE_EVERY == 0:
            self.save()

    async def paint(self) -> None:
        """Bring the view up to date."""
        async with self._painting:  # the timer has its own task alongside the screen's
            if self._view.is_attached:
                self._n_painted = self.answer.n_frames
                await self._view.show(self.answer)

    def save(self) -> None:
        """Store the answer as far as it is; it continues where the disk refuses that."""
        self.turn = self._view.turn = self._conversation.keep(self.turn, self.answer)
        try:
            self._conversation.store()
        except HistoryError as error:  # the next call tries it again, and need not say it again
            if not self._is_refused:
                show_error(self._view, error)
            self._is_refused = True
        else:
            self._is_refused = False
