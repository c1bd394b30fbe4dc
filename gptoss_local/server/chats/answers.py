"""Answers of saved chats, with the calls between them, by their turns."""

import asyncio
import logging
import re
from collections import deque
from contextlib import aclosing
from functools import partial

import msgspec

from gptoss_local.base.errors import AnsweringError, ChatNotFoundError, GptOssError
from gptoss_local.models.store import find_model
from gptoss_local.runner.elsewhere import RemoteModel
from gptoss_local.runner.loading import LoadedModel
from gptoss_local.runner.manager import ModelManager
from gptoss_local.server.access import current_caller
from gptoss_local.server.chats.changes import Changes, ChatStore, Live
from gptoss_local.server.chats.exchange import RETRY_S, Exchange, Parts, Toolboxes, asked_of
from gptoss_local.talk.answer import Answer
from gptoss_local.talk.history import ChatSummary, History, Turn, is_temporary
from gptoss_local.talk.history.plain import one_line
from gptoss_local.talk.loop import ENDED, STOPPED
from gptoss_local.talk.tools import ToolSources
from gptoss_local.talk.what_runs import Decision

_log = logging.getLogger("gptoss")

_LOOK_S = 0.1
QUESTION = "Write a title for this conversation, in its language, of at most six words."
_BEGINNING = "Title:"
_MAX_TOKENS, _MAX_WORDS, _MAX_CHARS = 30, 8, 60
_MAX_UNTITLED = 64  # chats that wait until no answer runs


async def write_title(
    manager: ModelManager, store: ChatStore, toolboxes: Toolboxes, leaf: Turn, owner: str
) -> bool:
    """Title the chat of a first answer, unless a person has; False if it keeps its title."""

    def read(history: History) -> tuple[ChatSummary, list[Turn], bool]:
        return history.chat(leaf.chat_id), history.branch(leaf.id), history.has_title(leaf.chat_id)

    if is_temporary(leaf.chat_id):
        return False
    try:
        chat, branch, has_title = await store.call(read)
        is_first = len([turn for turn in branch if turn.role == "user"]) == 1
        if has_title or not is_first or branch[-1].state == "failed" or branch[-1].tool_calls:
            return False
        title = await _ask(manager, toolboxes, chat, branch, owner)
        return bool(title) and await store.call(lambda history: history.give_title(chat, title))
    except ChatNotFoundError:
        return False


async def _ask(
    manager: ModelManager, toolboxes: Toolboxes, chat: ChatSummary, branch: list[Turn], owner: str
) -> str:
    entry = find_model(chat.model, manager.settings)
    usable: list[LoadedModel | RemoteModel] = [*manager.loaded, *manager.remote]
    if entry.embedded or entry.name not in [model.entry.name for model in usable]:
        return ""  # a toy, or one that would be loaded again
    last = branch[-1]
    question = msgspec.structs.replace(last, id=0, role="user", content=QUESTION, reasoning="")
    begun = msgspec.structs.replace(question, id=-1, role="assistant", content=_BEGINNING)
    async with toolboxes.use(chat, branch) as toolbox:
        asked, n_ctx = asked_of(chat, [*branch, question, begun], toolbox, entry.defaults)
    asked = msgspec.structs.replace(
        asked,
        owner=owner,
        priority=current_caller().priority - 1,
        max_tokens=_MAX_TOKENS,
        stop=(),
        has_next_turn=False,
        may_grow=False,
        reports_prefill=False,
    )
    answer = Answer()
    async with aclosing(manager.answer(entry, asked, n_ctx=n_ctx)) as events:
        async for event in events:
            answer.add(event)
    return clean(answer.content) if answer.done.reason == "stop" else ""


def clean(text: str) -> str:
    title = one_line(text.removeprefix(_BEGINNING)).strip(" *_#`\"'“”„«».")
    is_title = len(title) <= _MAX_CHARS and len(title.split()) <= _MAX_WORDS
    return title if is_title and re.search(r"\w", title) else ""


class Answers:
    def __init__(self, manager: ModelManager, store: ChatStore, sources: ToolSources) -> None:
        self.store = store
        self.toolboxes = Toolboxes(sources, manager.settings)
        running: dict[int, Live] = {}
        self.changes = Changes(manager, store, running)
        self._parts = Parts(manager, store, self.changes, self.toolboxes, running)
        self._tasks: dict[Exchange, asyncio.Task[None]] = {}
        self._untitled: deque[Exchange] = deque(maxlen=_MAX_UNTITLED)
        self._titling: asyncio.Task[None] | None = None

    def start(self, chat: ChatSummary, branch: list[Turn], owner: str) -> None:
        """Run an answer into the last turn of a branch, which is stored as streaming."""
        if self._titling is not None:  # an answer waits for no title
            self._titling.cancel()
        exchange = Exchange(chat, branch, owner, self._parts)
        task = self._tasks[exchange] = asyncio.create_task(exchange.lead())
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
        exchange.answer_now.is_wished = True

    def decide(self, turn_id: int, decision: Decision) -> None:
        """Answer the question whether a call may run. Raises AnsweringError if it is not open."""
        exchange = self._with(turn_id)
        if exchange is None or not exchange.allow(turn_id, decision):
            raise AnsweringError("this question is not open", hint="It was answered or stopped.")

    async def finish(self, ending: asyncio.Event) -> None:
        """Let answers run until the server's grace is over, then end the streams to tabs."""
        while self._tasks and not ending.is_set():
            for exchange in self._tasks:
                if exchange.is_asking:  # and no more requests come
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
        elif self._parts.manager.settings.chat_titles:
            self._untitled.append(exchange)
        if not self._tasks and self._untitled:
            self._titling = asyncio.create_task(self._title_all())

    async def _title_all(self) -> None:
        manager, store, changes, toolboxes, _ = self._parts
        while self._untitled:
            exchange = self._untitled[0]
            try:
                if await write_title(manager, store, toolboxes, exchange.leaf, exchange.owner):
                    changes.look_now()
            except GptOssError as error:
                _log.info("a chat keeps its first title: %s", error)
            except Exception:
                _log.exception("internal error in a title")
            self._untitled.popleft()
