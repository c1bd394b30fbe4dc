"""One answer of a saved chat, which runs in the server whether or not a client looks on.

It is asked for as a client of `/api/chat` would, and stored about once a second.
"""

import asyncio
import logging
import time
from contextlib import aclosing
from functools import partial
from typing import Any

import msgspec

from gptoss_local.errors import ChatNotFoundError, GptOssError, HistoryError
from gptoss_local.models.store import find_model
from gptoss_local.off_loop import run_off_loop
from gptoss_local.runner.manager import ModelManager
from gptoss_local.server.access import current_caller
from gptoss_local.server.body import convert
from gptoss_local.server.chats.changes import ChangeEvent, Changes
from gptoss_local.server.chats.store import ChatStore
from gptoss_local.server.chats.turns import begin_call
from gptoss_local.server.dialects.named_model import begin, fill_in
from gptoss_local.server.dialects.ollama.frames import ChatWriter
from gptoss_local.server.dialects.ollama.request import ChatBody
from gptoss_local.server.streaming import log_error
from gptoss_local.talk.answer import Answer, with_printable_text
from gptoss_local.talk.frames import events_of
from gptoss_local.talk.history import History, Turn

_log = logging.getLogger("gptoss")

RETRY_S = 5.0
"""Seconds until the next try where the disk refuses the end of an answer."""

_FLUSH_S = 1 / 30
_PROGRESS_S = 0.25
_SAVE_S = 1.0


class RunningAnswer:
    """An answer, and the turn that it is stored in.

    Args:
        turn: As it is stored; with text, if that is to be continued.
        body: A request of `/api/chat`.
        owner: Whose reasoning it is.
        manager: Answers it.
        store: Where it is kept.
        changes: Gets its texts as they come.

    Attributes:
        first_call: The turn of its first call, which is added with its end; None if it has none.
    """

    def __init__(
        self,
        turn: Turn,
        body: dict[str, Any],
        owner: str,
        manager: ModelManager,
        store: ChatStore,
        changes: Changes,
    ) -> None:
        self.answer = Answer(begun=turn)
        self.body = body
        self.first_call: Turn | None = None
        self._turn = turn
        self._owner = owner
        self._manager, self._store, self._changes = manager, store, changes
        self._n_content, self._n_reasoning = len(self.answer.content), len(self.answer.reasoning)
        self._n_saved = 0  # frames
        self._saved_s = self._told_s = time.monotonic()
        self._progress: ChangeEvent | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def chat_id(self) -> int:
        return self._turn.chat_id

    @property
    def turn(self) -> Turn:
        """The turn with the text so far."""
        return msgspec.structs.replace(self._turn, **self.answer.turn_fields(self._turn.stats))

    def stop(self) -> None:
        """Stop the model; what there is of the answer stays."""
        self.answer.end("stopped")
        if self._task is not None:
            self._task.cancel()

    async def run(self) -> None:
        """Receive until the answer is over, however it ends; then it is stored."""
        try:
            self._task = asyncio.create_task(self._receive())
            if not self.answer.is_live:  # stopped before it began
                self._task.cancel()
            while not self._task.done():
                await asyncio.wait((self._task,), timeout=_FLUSH_S)
                await self._tick(time.monotonic())
        finally:  # also when the server ends, which cancels this
            self.stop()
        self.flush()
        while not await self._save():
            await asyncio.sleep(RETRY_S)

    def flush(self) -> None:
        """Publish what was not published yet."""
        content, reasoning = self.answer.content, self.answer.reasoning
        at = {"content": self._n_content, "reasoning": self._n_reasoning}
        if at == {"content": len(content), "reasoning": len(reasoning)}:
            return
        more = content[self._n_content :], reasoning[self._n_reasoning :]
        self._n_content, self._n_reasoning = len(content), len(reasoning)
        event = ChangeEvent(
            event="text", turn_id=self._turn.id, at=at, content=more[0], reasoning=more[1]
        )
        self._changes.publish(self.chat_id, event)

    async def _tick(self, now_s: float) -> None:
        self.flush()
        if now_s - self._told_s >= _PROGRESS_S and self._changes.is_heard:
            self._told_s = now_s
            progress = self._describe()
            if progress is not None and progress != self._progress:
                self._progress = progress
                self._changes.publish(self.chat_id, progress)
        is_due = now_s - self._saved_s >= _SAVE_S and self.answer.n_frames != self._n_saved
        if is_due and self.answer.is_live:  # the end is stored once, with the call that follows
            self._saved_s = now_s
            await self._save()

    async def _save(self) -> bool:
        """Store the answer as far as it is; returns False where the disk refuses that."""
        n_frames = self.answer.n_frames
        changes = self.answer.turn_fields(self._turn.stats)
        calls = changes["tool_calls"] if changes["state"] == "done" else ()

        def save(history: History) -> Turn | None:
            history.update(self._turn.id, **changes)
            return begin_call(history, self._turn, calls[0]) if calls else None

        try:
            self.first_call = await self._store.call(save)
        except ChatNotFoundError:  # deleted meanwhile
            self.stop()
        except HistoryError as error:
            log_error(error)
            return False
        self._n_saved = n_frames
        self._changes.look_now()
        return True

    async def _receive(self) -> None:
        answer, name = self.answer, self.body["model"]
        writer = ChatWriter(name, with_progress=True, with_tokens=True)
        try:
            entry = find_model(name, self._manager.settings)
            body = convert(fill_in(self.body, entry.defaults), ChatBody)
            n_bytes = sum(len(each.content) for each in body.messages)
            asked = await run_off_loop(lambda _: body.to_request(), n_bytes)
            asked = msgspec.structs.replace(
                begin(asked, entry.defaults),
                owner=self._owner,
                priority=current_caller().priority,
            )
            n_ctx = body.options.n_ctx
            async with aclosing(self._manager.answer(entry, asked, n_ctx=n_ctx)) as events:
                async for event in events:
                    for frame in writer.feed(event):
                        for each in events_of(msgspec.to_builtins(frame)):
                            answer.add(with_printable_text(each))
        except GptOssError as error:
            log_error(error)
            answer.end("failed", f"{error.message}. {error.hint}".strip())
        except Exception:
            _log.exception("internal error in an answer")
        finally:
            answer.end("failed", "internal error, see the server log")

    def _describe(self) -> ChangeEvent | None:
        """Return what happens now; None if that is not known."""
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
            if load.model == self.body["model"]:
                return event(status="loading", n_done=load.completed, n_all=load.total)
        return None
