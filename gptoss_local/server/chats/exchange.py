"""A message until the model's last word: answers, and the calls of tools between them.

A call's turn streams until the result; its question is there, too, so every tab shows it.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, NamedTuple, TypeVar

import msgspec

from gptoss_local.base.errors import ChatNotFoundError, GptOssError, HistoryError
from gptoss_local.base.events import ChatEvent, Done
from gptoss_local.harmony import AnswerNow
from gptoss_local.models.store import find_model
from gptoss_local.runner.manager import ModelManager
from gptoss_local.server.access import current_caller
from gptoss_local.server.chats.asked import asked_of
from gptoss_local.server.chats.changes import ChangeEvent, Changes
from gptoss_local.server.chats.running_answer import RunningAnswer
from gptoss_local.server.chats.store import ChatStore
from gptoss_local.server.chats.toolboxes import Toolboxes
from gptoss_local.server.chats.turns import begin_answer, begin_call
from gptoss_local.server.streaming import log_error
from gptoss_local.talk.answer import Answer
from gptoss_local.talk.conversation import Decision, result_stats, what_runs
from gptoss_local.talk.conversation.calls import denied
from gptoss_local.talk.conversation.what_runs import about_text, always_text
from gptoss_local.talk.history import ChatSummary, History, Turn
from gptoss_local.talk.loop import (
    STOPPED,
    UNANSWERED,
    CallBegun,
    CallEnded,
    CallRefused,
    Continued,
    LimitReached,
    Loop,
)
from gptoss_local.talk.tools import Arguments, RunnableTool, Toolbox, ToolResult

T = TypeVar("T")

_log = logging.getLogger("gptoss")

ASK_S = 600.0

RETRY_S = 5.0
"""Time until the next try where the disk refuses something."""


class Parts(NamedTuple):
    """The parts that all exchanges share."""

    manager: ModelManager
    store: ChatStore
    changes: Changes
    toolboxes: Toolboxes
    running: dict[int, RunningAnswer]


class Question(NamedTuple):
    turn_id: int
    tool: RunnableTool
    answer: asyncio.Future[Decision]


class Exchange:
    def __init__(self, chat: ChatSummary, branch: list[Turn], owner: str, parts: Parts) -> None:
        self.turn_ids: set[int] = set()
        self._parts = parts
        self.owner = owner
        self._chat = chat
        self._toolbox: Toolbox
        self._loop: Loop | None = None
        self._ended: ToolResult | None = None
        self._question: Question | None = None
        self._answer_now = AnswerNow()
        self._result = STOPPED  # of the open turn, if that is a call
        self._open(branch)

    @property
    def chat_id(self) -> int:
        return self._chat.id

    @property
    def leaf(self) -> Turn:
        """Return the open turn as it began, or the last one."""
        return self._branch[-1]

    @property
    def is_asking(self) -> bool:
        return self._question is not None

    @property
    def answer(self) -> Answer:
        return self._running.answer

    def stop(self, result: ToolResult = STOPPED) -> None:
        self._ended = self._ended or result
        if self._loop is not None:
            self._loop.stop(result)

    def answer_now(self) -> None:
        self._answer_now.is_wished = True

    def decide(self, turn_id: int, decision: Decision) -> bool:
        """Answer the question about a call; return False if it is not open."""
        question = self._question
        if question is None or question.turn_id != turn_id or question.answer.done():
            return False
        if decision.scope in ("chat", "always"):
            self._toolbox.allow(question.tool, decision.scope)
        question.answer.set_result(decision)
        return True

    async def run(self) -> None:
        """Answer, run the answer's calls, and continue with the results."""
        try:
            try:
                used = self._parts.toolboxes.use(self._chat, self._branch)
                async with used as self._toolbox:
                    await self._follow()
            except GptOssError as error:
                self.answer.end("failed", f"{error.message}. {error.hint}".strip())
            await self._go_on()
        except ChatNotFoundError:  # deleted meanwhile
            pass
        except Exception:
            _log.exception("internal error in chat %d", self._chat.id)
            await self._store(self._fail)
        finally:
            for turn_id in self.turn_ids:
                self._parts.running.pop(turn_id, None)

    async def _follow(self) -> None:
        loop = self._loop = Loop(self, self._toolbox, self._ask)
        if self._ended is not None:
            loop.stop(self._ended)
        async with aclosing(loop.run()) as events:
            async for event in events:
                match event:
                    case CallBegun(call):
                        await self._go_on(begin_call, call.name)
                    case CallEnded(_, result):
                        self._result = result
                    case CallRefused(call, result):
                        await self._go_on(begin_call, call.name)
                        self._result = result
                    case Continued():
                        await self._go_on(begin_answer)
                    case LimitReached(limit):
                        self._tell(f"Stopped after {limit}.")

    async def events(self) -> AsyncGenerator[ChatEvent, None]:
        """Yield the events of the answer in the open turn; errors are kept there."""
        answer, manager = self.answer, self._parts.manager
        for notice in await self._toolbox.prepare():
            self._tell(notice)
        with self._running.published():
            try:
                entry = find_model(self._chat.model, manager.settings)
                asked, n_ctx = asked_of(self._chat, self._branch, self._toolbox, entry.defaults)
                self._answer_now = AnswerNow()
                asked = msgspec.structs.replace(
                    asked,
                    owner=self.owner,
                    priority=current_caller().priority,
                    answer_now=self._answer_now,
                )
                async with aclosing(manager.answer(entry, asked, n_ctx=n_ctx)) as events:
                    async for event in events:
                        if isinstance(event, Done) and answer.prefill is not None:
                            own = event.tokens[answer.prefill.n_prompt :]
                            event = msgspec.structs.replace(event, tokens=own)
                        yield event
            except GptOssError as error:
                log_error(error)
                answer.end("failed", f"{error.message}. {error.hint}".strip())
            except Exception:
                _log.exception("internal error in an answer")
                answer.end("failed", "internal error, see the server log")

    async def _go_on(self, begin: Callable[..., list[Turn]] | None = None, *arguments: str) -> None:
        """Store the end of the open turn and, at once, the turn that `begin` adds, if any."""
        turn = self._branch[-1]
        fields: dict[str, Any] = self.answer.turn_fields(turn.stats)
        if turn.role == "tool":
            content, stats = self._result.text, result_stats(self._result)
            fields = {"content": content, "state": "done", "stats": stats}

        def store(history: History) -> tuple[ChatSummary, list[Turn]]:
            history.update(turn.id, **fields)
            following = begin(history, turn, *arguments) if begin is not None else []
            return history.chat(turn.chat_id), following

        self._chat, following = await self._store(store)
        self._parts.running.pop(turn.id, None)
        if following:
            self._open(following)

    def _open(self, branch: list[Turn]) -> None:
        self._branch, turn = branch, branch[-1]
        self.turn_ids.add(turn.id)
        self._result = STOPPED
        if turn.role != "tool":
            manager, store, changes, _, running = self._parts
            self._running = RunningAnswer(turn, manager, store, changes, self.stop)
            running[turn.id] = self._running

    def _fail(self, history: History) -> None:
        error = {"error": "internal error, see the server log"}
        for turn_id in self.turn_ids:
            if history.turn(turn_id).state == "streaming":
                history.update(turn_id, state="failed", stats=error)

    async def _ask(self, tool: RunnableTool, arguments: Arguments) -> ToolResult | None:
        """Let a call wait for the user; return its result if it may not run."""
        turn_id = self._branch[-1].id
        question = self._question = Question(turn_id, tool, asyncio.Future())
        shown = {
            "about": about_text(tool),
            "always": always_text(tool),
            "parts": [part._asdict() for part in what_runs(tool, arguments)],
        }
        try:
            await self._show(turn_id, {"question": shown})
            decision = await asyncio.wait_for(question.answer, ASK_S)
        except TimeoutError:
            return UNANSWERED
        finally:
            self._question = None
        if decision.scope is None:
            return denied(decision.reason)
        await self._show(turn_id, {})
        return None

    async def _show(self, turn_id: int, stats: dict[str, Any]) -> None:
        await self._store(lambda history: history.update(turn_id, stats=stats))

    async def _store(self, work: Callable[[History], T]) -> T:
        """Change the chats, again and again while the disk refuses it. Raises ChatNotFoundError."""
        while True:
            try:
                result = await self._parts.store.call(work, self.chat_id)
            except ChatNotFoundError:
                raise
            except HistoryError as error:
                log_error(error)
                await asyncio.sleep(RETRY_S)
            else:
                self._parts.changes.look_now()
                return result

    def _tell(self, notice: str) -> None:
        _log.warning("chat %d: %s", self._chat.id, notice)
        self._parts.changes.publish(self._chat.id, ChangeEvent(event="notice", notice=notice))
