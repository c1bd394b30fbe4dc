"""A message until the model's last word: answers, and the calls of tools between them.

Each call has a turn, which streams until its result is there. The question whether it may run is
in the figures of that turn, so each tab that shows the chat has it, and the first answer counts.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, NamedTuple, TypeVar

from gptoss_local.errors import ChatNotFoundError, GptOssError, HistoryError
from gptoss_local.runner.manager import ModelManager
from gptoss_local.server.chats.changes import ChangeEvent, Changes
from gptoss_local.server.chats.running_answer import RETRY_S, RunningAnswer
from gptoss_local.server.chats.store import ChatStore
from gptoss_local.server.chats.toolboxes import Toolboxes
from gptoss_local.server.chats.turns import begin_answer, begin_call
from gptoss_local.server.streaming import log_error
from gptoss_local.server.tracing import traced_tool
from gptoss_local.talk.conversation import (
    Decision,
    refusal_of,
    request_of,
    result_stats,
    what_runs,
)
from gptoss_local.talk.conversation.calls import TOO_MANY, denied
from gptoss_local.talk.conversation.what_runs import about_text, always_text
from gptoss_local.talk.history import ChatSummary, History, Turn
from gptoss_local.talk.loop import UNANSWERED
from gptoss_local.talk.tools import Arguments, LoopLimit, Tool, Toolbox, ToolResult

T = TypeVar("T")

_log = logging.getLogger("gptoss")

ASK_S = 600.0
"""Seconds that a question waits for an answer."""


class Parts(NamedTuple):
    """The parts that all exchanges share.

    Attributes:
        running: Answers by their turns, for `Changes`.
    """

    manager: ModelManager
    store: ChatStore
    changes: Changes
    toolboxes: Toolboxes
    running: dict[int, RunningAnswer]


class Question(NamedTuple):
    """A question whether a call may run.

    Attributes:
        turn_id: Of the call.
    """

    turn_id: int
    tool: Tool
    answer: asyncio.Future[Decision]


class Exchange:
    """One exchange, which begins with an answer.

    Args:
        chat: As it is now.
        branch: Down to the turn of the answer, which is stored as streaming.
        owner: Whose reasoning it is.
        parts: What it works with.

    Attributes:
        turn_ids: Of all its turns.
    """

    def __init__(self, chat: ChatSummary, branch: list[Turn], owner: str, parts: Parts) -> None:
        self.turn_ids: set[int] = set()
        self._parts = parts
        self._owner = owner
        self._chat = chat
        self._branch = branch
        self._toolbox: Toolbox
        self._limit: LoopLimit
        self._question: Question | None = None
        self._ended: ToolResult | None = None  # what calls come to that are not run any more
        self._task: asyncio.Task[Any] | None = None
        self._answer = self._begin()

    @property
    def chat_id(self) -> int:
        return self._chat.id

    @property
    def is_asking(self) -> bool:
        return self._question is not None

    def stop(self, result: ToolResult) -> None:
        """End what runs now, and go no further.

        Args:
            result: Of the calls that have none yet.
        """
        self._ended = self._ended or result
        self._answer.stop()
        if self._task is not None:
            self._task.cancel()

    def decide(self, turn_id: int, decision: Decision) -> bool:
        """Answer the question about a call; returns False if it is not open.

        Raises:
            UsageError: what is allowed for good cannot be written; the question stays open.
        """
        question = self._question
        if question is None or question.turn_id != turn_id or question.answer.done():
            return False
        if decision.scope in ("chat", "always"):
            self._toolbox.allow(question.tool, decision.scope)
        question.answer.set_result(decision)
        return True

    async def run(self) -> None:
        """Answer, call what the answer asks for, and continue with the results."""
        try:
            async with AsyncExitStack() as stack:
                await self._open(stack)
                while await self._answer_once() and await self._call_all():
                    pass
        except ChatNotFoundError:  # deleted meanwhile
            pass
        except Exception:
            _log.exception("internal error in chat %d", self._chat.id)
            await self._store(self._fail)
        finally:
            for turn_id in self.turn_ids:
                self._parts.running.pop(turn_id, None)

    def _fail(self, history: History) -> None:
        """Leave no turn that looks as if it still streamed."""
        error = {"error": "internal error, see the server log"}
        for turn_id in self.turn_ids:
            if history.turn(turn_id).state == "streaming":
                history.update(turn_id, state="failed", stats=error)

    async def _open(self, stack: AsyncExitStack) -> None:
        """Have the tools of the chat; without them the answer fails."""
        try:
            used = self._parts.toolboxes.use(self._chat, self._branch)
            self._toolbox = await stack.enter_async_context(used)
            self._limit = self._toolbox.loop_limit()
        except GptOssError as error:
            self._answer.answer.end("failed", f"{error.message}. {error.hint}".strip())

    def _begin(self) -> RunningAnswer:
        """Make the answer for the last turn of the branch."""
        chat, turn = self._chat, self._branch[-1]
        effort = chat.effort if chat.effort in ("low", "medium", "high") else "medium"
        options = chat.options
        body = request_of(
            self._branch, model=chat.model, effort=effort, options=options, begun=turn
        )
        body |= {"return_progress": True}
        manager, store, changes, _, running = self._parts
        answer = RunningAnswer(turn, body, self._owner, manager, store, changes)
        running[turn.id] = answer
        self.turn_ids.add(turn.id)
        return answer

    async def _answer_once(self) -> bool:
        """Let the model answer; returns whether it calls something."""
        answer = self._answer
        if answer.answer.is_live:
            news = await self._until_stopped(self._toolbox.prepare())
            for notice in news or ():
                self._tell(notice)
            if tools := self._toolbox.declared():
                answer.body["tools"] = tools
        await answer.run()
        self._parts.running.pop(answer.turn.id, None)
        return answer.first_call is not None

    async def _call_all(self) -> bool:
        """Run the calls of the answer one after the other; returns whether an answer follows."""
        turn, calls = self._answer.first_call, self._answer.turn.tool_calls
        assert turn is not None
        if limit := self._limit.reached():
            self._ended = self._ended or TOO_MANY
            self._tell(f"Stopped after {limit}.")
        for n, call in enumerate(calls):
            self.turn_ids.add(turn.id)
            result = self._ended or await self._result_of(turn, call["function"])
            following = await self._keep(turn, result, calls[n + 1 : n + 2])
            turn = following[-1]
        if self._ended is not None:
            return False
        self._branch = following
        self._answer = self._begin()
        return True

    async def _keep(
        self, turn: Turn, result: ToolResult, next_call: tuple[dict[str, Any], ...]
    ) -> list[Turn]:
        """Store a result and begin what follows it, so that no one comes in between.

        Returns:
            The branch down to the next call or answer, or to this result if nothing follows.
        """
        goes_on = self._ended is None

        def keep(history: History) -> tuple[ChatSummary, list[Turn]]:
            stats = result_stats(result)
            history.update(turn.id, content=result.text, state="done", stats=stats)
            if next_call:
                following = [begin_call(history, turn, next_call[0])]
            else:
                following = begin_answer(history, turn) if goes_on else [turn]
            return history.chat(turn.chat_id), following

        self._chat, following = await self._store(keep)
        return following

    async def _result_of(self, turn: Turn, function: dict[str, Any]) -> ToolResult:
        name, arguments = function["name"], function["arguments"]
        call = self._toolbox.call(name, arguments)
        refusal = await refusal_of(self._toolbox, self._limit, call, partial(self._ask, turn))
        if refusal is not None:
            return refusal
        work = traced_tool(name, self._toolbox.run_call(call))
        return await self._until_stopped(work) or self._stopped

    async def _ask(self, turn: Turn, tool: Tool, arguments: Arguments) -> ToolResult | None:
        """Let a call wait for the user; returns what it comes to if it may not run."""
        question = self._question = Question(turn.id, tool, asyncio.Future())
        shown = {
            "about": about_text(tool),
            "always": always_text(tool),
            "parts": [part._asdict() for part in what_runs(tool, arguments)],
        }
        await self._show(turn, {"question": shown})
        try:
            decision = await self._until_stopped(asyncio.wait_for(question.answer, ASK_S))
        except TimeoutError:
            return UNANSWERED
        finally:
            self._question = None
        if decision is None:
            return self._stopped
        if decision.scope is None:
            return denied(decision.reason)
        await self._show(turn, {})
        return None

    @property
    def _stopped(self) -> ToolResult:
        assert self._ended is not None
        return self._ended

    async def _show(self, turn: Turn, stats: dict[str, Any]) -> None:
        await self._store(lambda history: history.update(turn.id, stats=stats))

    async def _store(self, work: Callable[[History], T]) -> T:
        """Change the chats; where the disk refuses it, again and again.

        Raises:
            ChatNotFoundError: the chat was deleted.
        """
        while True:
            try:
                result = await self._parts.store.call(work)
            except ChatNotFoundError:
                raise
            except HistoryError as error:
                log_error(error)
                await asyncio.sleep(RETRY_S)
            else:
                self._parts.changes.look_now()
                return result

    async def _until_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Do something that is not an answer; None if it was stopped."""
        task = self._task = asyncio.create_task(work)
        if self._ended is not None:
            task.cancel()
        try:
            await asyncio.wait((task,))
        finally:  # also when the server ends, which cancels this
            task.cancel()
            self._task = None
        return None if task.cancelled() else task.result()

    def _tell(self, notice: str) -> None:
        _log.warning("chat %d: %s", self._chat.id, notice)
        self._parts.changes.publish(self._chat.id, ChangeEvent(event="notice", notice=notice))
