"""Answers of saved chats, with the calls between them, by their turns."""

import asyncio
import logging
from functools import partial

from gptoss_local.errors import AnsweringError, GptOssError
from gptoss_local.runner.manager import ModelManager
from gptoss_local.server.chats.changes import Changes
from gptoss_local.server.chats.exchange import RETRY_S, Exchange, Parts
from gptoss_local.server.chats.running_answer import RunningAnswer
from gptoss_local.server.chats.store import ChatStore
from gptoss_local.server.chats.titles import write_title
from gptoss_local.server.chats.toolboxes import Toolboxes
from gptoss_local.talk.conversation import Decision
from gptoss_local.talk.conversation.calls import ENDED
from gptoss_local.talk.history import ChatSummary, Turn
from gptoss_local.talk.loop import STOPPED
from gptoss_local.talk.tools import ToolSources

_log = logging.getLogger("gptoss")

_LOOK_S = 0.1


class Answers:
    def __init__(self, manager: ModelManager, store: ChatStore, sources: ToolSources) -> None:
        self.store = store
        self.toolboxes = Toolboxes(sources)
        running: dict[int, RunningAnswer] = {}
        self.changes = Changes(store, running)
        self._parts = Parts(manager, store, self.changes, self.toolboxes, running)
        self._tasks: dict[Exchange, asyncio.Task[None]] = {}
        self._titling: asyncio.Task[None] | None = None

    def start(self, chat: ChatSummary, branch: list[Turn], owner: str) -> None:
        """Run an answer into the last turn of a branch, which is stored as streaming."""
        if self._titling is not None:  # an answer waits for no title
            self._titling.cancel()
        exchange = Exchange(chat, branch, owner, self._parts)
        task = self._tasks[exchange] = asyncio.create_task(exchange.run())
        task.add_done_callback(partial(self._ended, exchange))
        self.changes.look_now()

    def is_running(self, turn_id: int) -> bool:
        return self._with(turn_id) is not None

    async def stop(self, turn_id: int) -> None:
        """Stop an answer or a call with its exchange, and wait until it is stored."""
        if exchange := self._with(turn_id):
            await self._stop(exchange)

    async def stop_chat(self, chat_id: int) -> None:
        for exchange in [each for each in self._tasks if each.chat_id == chat_id]:
            await self._stop(exchange)

    def answer_now(self, turn_id: int) -> None:
        """End the reasoning of an answer. Raises AnsweringError if it is over."""
        exchange = self._with(turn_id)
        if exchange is None:
            raise AnsweringError("this answer is over", hint="Ask again.")
        exchange.answer_now()

    def decide(self, turn_id: int, decision: Decision) -> None:
        """Answer the question whether a call may run. Raises AnsweringError if it is not open."""
        exchange = self._with(turn_id)
        if exchange is None or not exchange.decide(turn_id, decision):
            raise AnsweringError("this question is not open", hint="It was answered or stopped.")

    async def finish(self, ending: asyncio.Event) -> None:
        """Let answers run until the server's grace is over, then end the streams to tabs.

        Answers that wait for the user end now, as no more requests come.
        """
        while self._tasks and not ending.is_set():
            for exchange in self._tasks:
                if exchange.is_asking:
                    exchange.stop(ENDED)
            await asyncio.wait(self._tasks.values(), timeout=_LOOK_S)
        self.changes.close()

    async def close(self) -> None:
        if self._titling is not None:
            self._titling.cancel()
        for exchange in self._tasks:
            exchange.stop(ENDED)
        if self._tasks:
            _, late = await asyncio.wait(self._tasks.values(), timeout=RETRY_S)
            for task in late:
                task.cancel()
        await self.toolboxes.close()

    async def _stop(self, exchange: Exchange) -> None:
        exchange.stop(STOPPED)
        await asyncio.wait((self._tasks[exchange],), timeout=RETRY_S)

    def _with(self, turn_id: int) -> Exchange | None:
        return next((each for each in self._tasks if turn_id in each.turn_ids), None)

    def _ended(self, exchange: Exchange, task: asyncio.Task[None]) -> None:
        self._tasks.pop(exchange, None)
        if task.cancelled():
            return
        if error := task.exception():
            _log.error("an answer ended with an internal error", exc_info=error)
        elif not self._tasks and self._parts.manager.settings.chat_titles:
            self._titling = asyncio.create_task(self._title(exchange))

    async def _title(self, exchange: Exchange) -> None:
        manager, store, changes, toolboxes, _ = self._parts
        try:
            if await write_title(manager, store, toolboxes, exchange.leaf, exchange.owner):
                changes.look_now()
        except GptOssError as error:
            _log.info("a chat keeps its first title: %s", error)
        except Exception:
            _log.exception("internal error in a title")
