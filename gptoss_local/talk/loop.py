"""One exchange: answers of the model, and the calls of tools between them."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

import msgspec

from gptoss_local.base.events import ChatEvent, ToolCall
from gptoss_local.talk.answer import Answer
from gptoss_local.talk.tools import Arguments, Call, RunnableTool, Toolbox, ToolResult

T = TypeVar("T")

STOPPED = ToolResult("The user stopped this call.", is_error=True)
UNANSWERED = ToolResult("Not run: the user did not answer whether it may run.", is_error=True)
_N_EQUAL_RUN, _N_EQUAL_MAX = 2, 5
REPEATED = ToolResult(
    "Not run: you have this result already, from an equal call. Use it, or do something else.",
    is_error=True,
)
TOO_MANY = ToolResult("Not run: an answer may not have more calls. Answer without.", is_error=True)


class CallBegun(msgspec.Struct, frozen=True):
    """A call is asked about, if necessary, and run; CallEnded follows."""

    call: ToolCall


class CallEnded(msgspec.Struct, frozen=True):
    call: ToolCall
    result: ToolResult


class CallRefused(msgspec.Struct, frozen=True):
    """A call is not run: too many or equal ones were before it, or the exchange was stopped."""

    call: ToolCall
    result: ToolResult


class LimitReached(msgspec.Struct, frozen=True):
    """The model called when it was told not to, or the same once more; the exchange ends."""

    limit: str


class Continued(msgspec.Struct, frozen=True):
    """All calls have results, and the model answers again."""


LoopEvent = ChatEvent | CallBegun | CallEnded | CallRefused | LimitReached | Continued
Ask = Callable[[RunnableTool, Arguments], Awaitable[ToolResult | None]]
"""Asks the user; returns the result of a call that is denied."""


class Source(Protocol):
    @property
    def answer(self) -> Answer:
        """Return the newest answer; the loop adds the events to it."""

    def events(self) -> AsyncGenerator[ChatEvent, None]:
        """Let the model answer the conversation so far."""


class Loop:
    """One exchange.

    Args:
        ask: Whether a call may run; None: all may.
        must_ask: Says of which tools; by default, as the user has allowed them.
        is_ours: Says by its name which tool is run here; an answer with other calls is the last.
        n_calls_max: Most calls that are run, besides the limits of the toolbox.
    """

    def __init__(
        self,
        source: Source,
        toolbox: Toolbox,
        ask: Ask | None,
        *,
        must_ask: Callable[[RunnableTool], bool] | None = None,
        is_ours: Callable[[str], bool] = lambda _: True,
        n_calls_max: int | None = None,
    ) -> None:
        self._source = source
        self._toolbox = toolbox
        self._ask = ask
        self._must_ask = must_ask or toolbox.needs_consent
        self._is_ours = is_ours
        self._n_left = self._n_calls_max = n_calls_max
        self._n_rounds, self._end_s = 0, time.monotonic() + toolbox.loop_s
        self._n_equal: Counter[bytes] = Counter()
        self._ended: ToolResult | None = None
        self._waiting: asyncio.Task[Any] | None = None

    @property
    def is_stopped(self) -> bool:
        return self._ended is not None

    def stop(self, result: ToolResult = STOPPED) -> None:
        """Stop the exchange, keeping the partial answer; calls without a result get this one."""
        self._ended = self._ended or result
        if self._waiting is not None and self._waiting is not asyncio.current_task():
            self._waiting.cancel()

    async def run(self) -> AsyncGenerator[LoopEvent, None]:
        """Yield the events; at a limit the model is told once to answer without calls.

        A call that was made twice before is not run, and the fifth equal one is the last.
        """
        was_refused = False
        while True:
            async with aclosing(self._source.events()) as events:
                while event := await self.until_stopped(anext(events, None)):
                    self._source.answer.add(event)
                    yield event
            answer = self._source.answer
            if self._ended is not None:
                answer.end("stopped")
            ours = [call for call in answer.calls if self._is_ours(call.name)]
            if answer.phase != "done" or answer.done.reason != "stop" or not ours:
                return
            is_over, limit = len(ours) < len(answer.calls), self._limit()
            for call in ours:
                if self._n_left == 0:
                    limit = limit or f"{self._n_calls_max} calls"
                if (n_equal := self._count(call)) == _N_EQUAL_MAX:
                    limit, was_refused = limit or f"{n_equal} equal calls of {call.name}", True
                made = self._toolbox.call(call.name, call.arguments)
                if limit or self._ended:
                    yield CallRefused(call, self._ended or TOO_MANY)
                elif n_equal > _N_EQUAL_RUN:
                    yield CallRefused(call, REPEATED)
                else:
                    self._n_left = self._n_left and self._n_left - 1
                    yield CallBegun(call)
                    result = await self.until_stopped(self._result(call, made))
                    yield CallEnded(call, result or self._ended or STOPPED)
            if limit and was_refused and not self._ended:
                yield LimitReached(limit)
            if is_over or self._ended or (limit and was_refused):
                return
            was_refused = bool(limit)
            yield Continued()

    def _limit(self) -> str:
        """Count the next round of calls; return which limit forbids it, or nothing."""
        self._n_rounds += 1
        if self._n_rounds > self._toolbox.n_rounds:
            return f"{self._toolbox.n_rounds} rounds of tools"
        is_over = time.monotonic() > self._end_s
        return f"{self._toolbox.loop_s:g} s of tools" if is_over else ""

    def _count(self, call: ToolCall) -> int:
        """Return how many calls of the exchange were equal to this one, itself included."""
        key = msgspec.json.encode((call.name, call.arguments), order="deterministic")
        self._n_equal[key] += 1
        return self._n_equal[key]

    async def until_stopped(self, work: Awaitable[T]) -> T | None:
        """Do a part of the exchange that `stop` ends; None if it did."""
        if self._ended is not None:
            if isinstance(work, Coroutine):
                work.close()
            return None
        task = asyncio.current_task()
        before, self._waiting = self._waiting, task
        try:
            return await work
        except asyncio.CancelledError:
            if self._ended is None or task is None or task.uncancel():
                raise
            return None
        finally:
            self._waiting = before

    async def _result(self, call: ToolCall, made: Call) -> ToolResult:
        if self._ask is not None and made.tool is not None and self._must_ask(made.tool):
            asked_s = time.monotonic()
            refusal = await self._ask(made.tool, made.arguments)
            self._end_s += time.monotonic() - asked_s
            if refusal is not None:
                return refusal
        return await self._run_call(call, made)

    async def _run_call(self, call: ToolCall, made: Call) -> ToolResult:
        return await self._toolbox.run_call(made)
