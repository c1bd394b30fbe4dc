"""Answers of saved chats, which run in the server whether or not a client looks on.

Each is asked for as a client of `/api/chat` would, and stored about once a second.
"""

import asyncio
import logging
import time
from contextlib import aclosing
from functools import partial
from typing import Any

import msgspec

from gptoss_local.conversation import Answer, changes_of, request_of
from gptoss_local.errors import ChatNotFoundError, GptOssError, HistoryError
from gptoss_local.history import ChatSummary, Turn
from gptoss_local.off_loop import run_off_loop
from gptoss_local.runner.manager import ModelManager
from gptoss_local.server.body import convert
from gptoss_local.server.chats.changes import ChangeEvent, Changes
from gptoss_local.server.chats.store import ChatStore
from gptoss_local.server.dialects.named_model import begin, fill_in
from gptoss_local.server.dialects.ollama.frames import ChatWriter
from gptoss_local.server.dialects.ollama.request import ChatBody
from gptoss_local.server.streaming import log_error
from gptoss_local.store import find_model

_log = logging.getLogger("gptoss")

_FLUSH_S = 1 / 30
_PROGRESS_S = 0.25
_SAVE_S = 1.0
_RETRY_S = 5.0  # where the disk refuses the end of an answer


class RunningAnswer:
    """An answer, and the turn that it is stored in.

    Args:
        turn: As it is stored; with text, if that is to be continued.
        body: A request of `/api/chat`.
        owner: Whose reasoning it is.
        answers: Those it is one of.
    """

    def __init__(self, turn: Turn, body: dict[str, Any], owner: str, answers: "Answers") -> None:
        self.answer = Answer(begun=turn)
        self._turn = turn
        self._body = body
        self._owner = owner
        self._manager, self._store = answers.manager, answers.store
        self._changes = answers.changes
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
        return msgspec.structs.replace(self._turn, **changes_of(self.answer, self._turn.stats))

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
            await asyncio.sleep(_RETRY_S)

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
        if now_s - self._saved_s >= _SAVE_S and self.answer.n_frames != self._n_saved:
            self._saved_s = now_s
            await self._save()

    async def _save(self) -> bool:
        """Store the answer as far as it is; returns False where the disk refuses that."""
        n_frames = self.answer.n_frames
        changes = changes_of(self.answer, self._turn.stats)
        try:
            await self._store.call(lambda history: history.update(self._turn.id, **changes))
        except ChatNotFoundError:  # deleted meanwhile
            self.stop()
        except HistoryError as error:
            log_error(error)
            return False
        self._n_saved = n_frames
        self._changes.look_now()
        return True

    async def _receive(self) -> None:
        answer, name = self.answer, self._body["model"]
        writer = ChatWriter(name, with_progress=True, with_tokens=True)
        try:
            entry = find_model(name, self._manager.settings)
            body = convert(fill_in(self._body, entry.defaults), ChatBody)
            n_bytes = sum(len(each.content) for each in body.messages)
            asked = await run_off_loop(lambda _: body.to_request(), n_bytes)
            asked = msgspec.structs.replace(begin(asked, entry.defaults), owner=self._owner)
            n_ctx = body.options.n_ctx
            async with aclosing(self._manager.answer(entry, asked, n_ctx=n_ctx)) as events:
                async for event in events:
                    for frame in writer.feed(event):
                        answer.add(msgspec.to_builtins(frame))
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
            if load.model == self._body["model"]:
                return event(status="loading", n_done=load.completed, n_all=load.total)
        return None


class Answers:
    """The answers that run, by their turns.

    Args:
        manager: Answers them.
        store: Where they are kept.
    """

    def __init__(self, manager: ModelManager, store: ChatStore) -> None:
        self.manager = manager
        self.store = store
        self._running: dict[int, RunningAnswer] = {}
        self.changes = Changes(store, self._running)
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def start(self, chat: ChatSummary, branch: list[Turn], owner: str) -> None:
        """Let an answer run into the last turn of a branch, which is stored as streaming."""
        turn = branch[-1]
        effort = chat.effort if chat.effort in ("low", "medium", "high") else "medium"
        body = request_of(branch, model=chat.model, effort=effort, options=chat.options, begun=turn)
        body |= {"return_progress": True}
        running = self._running[turn.id] = RunningAnswer(turn, body, owner, self)
        task = self._tasks[turn.id] = asyncio.create_task(running.run())
        task.add_done_callback(partial(self._ended, turn.id))
        self.changes.look_now()

    def is_running(self, turn_id: int) -> bool:
        return turn_id in self._running

    async def stop(self, turn_id: int) -> None:
        """Stop an answer and wait until it is stored; one that is over stays as it is."""
        if running := self._running.get(turn_id):
            running.stop()
            await asyncio.wait((self._tasks[turn_id],), timeout=_RETRY_S)

    async def stop_chat(self, chat_id: int) -> None:
        """Stop the answers of a chat."""
        ids = [turn_id for turn_id, each in self._running.items() if each.chat_id == chat_id]
        for turn_id in ids:
            await self.stop(turn_id)

    async def close(self) -> None:
        """Stop and store all of them."""
        for running in list(self._running.values()):
            running.stop()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks.values(), timeout=_RETRY_S)
            for task in late:
                task.cancel()

    def _ended(self, turn_id: int, task: asyncio.Task[None]) -> None:
        self._running.pop(turn_id, None)
        self._tasks.pop(turn_id, None)
        if not task.cancelled() and (error := task.exception()):
            _log.error("an answer ended with an internal error", exc_info=error)
