"""One answer of a saved chat, published as it comes and stored about once a second."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import msgspec

from gptoss_local.base.errors import ChatNotFoundError, HistoryError
from gptoss_local.runner.manager import ModelManager
from gptoss_local.server.chats.changes import ChangeEvent, Changes
from gptoss_local.server.chats.store import ChatStore
from gptoss_local.server.streaming import log_error
from gptoss_local.talk.answer import Answer
from gptoss_local.talk.history import Turn

_FLUSH_S = 1 / 30
_PROGRESS_S = 0.25
_SAVE_S = 1.0


class RunningAnswer:
    def __init__(
        self,
        turn: Turn,
        manager: ModelManager,
        store: ChatStore,
        changes: Changes,
        stop: Callable[[], None],
    ) -> None:
        self.answer = Answer(begun=turn)
        self._turn = turn
        self._manager, self._store, self._changes = manager, store, changes
        self._stop = stop
        self._n_content, self._n_reasoning = len(self.answer.content), len(self.answer.reasoning)
        self._n_saved = 0  # frames
        self._saved_s = self._told_s = time.monotonic()
        self._progress: ChangeEvent | None = None

    @property
    def turn(self) -> Turn:
        return msgspec.structs.replace(self._turn, **self.answer.turn_fields(self._turn.stats))

    @contextmanager
    def published(self) -> Iterator[None]:
        """Publish and store the answer while it comes; its end is stored with the next turn."""
        ticking = asyncio.create_task(self._tick_on())
        try:
            yield
        finally:
            ticking.cancel()
            self.flush()

    def flush(self) -> None:
        content, reasoning = self.answer.content, self.answer.reasoning
        at = {"content": self._n_content, "reasoning": self._n_reasoning}
        if at == {"content": len(content), "reasoning": len(reasoning)}:
            return
        more = content[self._n_content :], reasoning[self._n_reasoning :]
        self._n_content, self._n_reasoning = len(content), len(reasoning)
        event = ChangeEvent(
            event="text", turn_id=self._turn.id, at=at, content=more[0], reasoning=more[1]
        )
        self._changes.publish(self._turn.chat_id, event)

    async def _tick_on(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_S)
            self.flush()
            now_s = time.monotonic()
            if now_s - self._told_s >= _PROGRESS_S and self._changes.is_heard:
                self._told_s = now_s
                progress = self._describe()
                if progress is not None and progress != self._progress:
                    self._progress = progress
                    self._changes.publish(self._turn.chat_id, progress)
            if now_s - self._saved_s >= _SAVE_S and self.answer.n_frames != self._n_saved:
                self._saved_s = now_s
                await self._save()

    async def _save(self) -> None:
        n_frames, fields = self.answer.n_frames, self.answer.turn_fields(self._turn.stats)
        if not self.answer.is_live:
            return
        try:
            turn = self._turn
            await self._store.call(lambda chats: chats.update(turn.id, **fields), turn.chat_id)
        except ChatNotFoundError:  # deleted meanwhile
            self._stop()
        except HistoryError as error:
            log_error(error)
        else:
            self._n_saved = n_frames
            self._changes.look_now()

    def _describe(self) -> ChangeEvent | None:
        answer = self.answer
        event = partial(ChangeEvent, event="progress", turn_id=self._turn.id)
        if answer.phase in ("reasoning", "answering"):
            return event(status="answering", n_tokens=answer.n_tokens, tokens_per_s=answer.tok_s)
        if answer.prefill is not None:
            n_done, n_all, _ = answer.prefill
            return event(status="reading", n_done=n_done, n_all=n_all)
        if answer.growth is not None:
            return event(status="growing", n_all=answer.growth.n_ctx)
        for load in self._manager.loading:
            if load.model == self._turn.model:
                return event(status="loading", n_done=load.completed, n_all=load.total)
        return None
