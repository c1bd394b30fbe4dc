"""One exchange: answers of the model, and the calls of tools between them."""

import asyncio
import math
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

import msgspec

from gptoss_local.base.errors import UsageError
from gptoss_local.base.events import ChatEvent, ToolCall
from gptoss_local.talk.answer import Answer
from gptoss_local.talk.tools import Arguments, Call, RunnableTool, Toolbox, ToolResult
from gptoss_local.talk.tools.consent import Consents
from gptoss_local.talk.what_runs import Decision

T = TypeVar("T")

STOPPED = ToolResult("The user stopped this call.", is_error=True)
UNANSWERED = ToolResult("Not run: the user did not answer whether it may run.", is_error=True)
ENDED = ToolResult("This call was stopped, as the server ended.", is_error=True)
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
_Follow = Callable[[ToolCall, Coroutine[Any, Any, ToolResult]], Coroutine[Any, Any, ToolResult]]
following_calls: ContextVar[_Follow | None] = ContextVar("following_calls", default=None)
"""Awaits each call that runs in this context, for tracing."""


class Source(Protocol):
    @property
    def answer(self) -> Answer:
        """Return the newest answer; the loop adds the events to it."""

    def events(self) -> AsyncGenerator[ChatEvent, None]:
        """Let the model answer the conversation so far."""


class Loop:
    """One exchange.

    Args:
        ask: Whether a call may run, of the tools of `must_ask`; None: all may.
        is_ours: Says by its name which tool is run here; an answer with other calls is the last.
        n_calls_max: Most calls that are run, besides the limits of the toolbox.
    """

    def __init__(
        self,
        source: Source,
        toolbox: Toolbox,
        ask: Ask | None,
        *,
        is_ours: Callable[[str], bool] = lambda _: True,
        n_calls_max: int | None = None,
    ) -> None:
        self._source = source
        self.toolbox = toolbox
        self._ask = ask
        self._is_ours = is_ours
        self._n_left = self._n_calls_max = n_calls_max
        self._n_rounds, self._end_s = 0, math.inf
        self._n_equal: Counter[bytes] = Counter()
        self._ended: ToolResult | None = None
        self._waiting: asyncio.Task[Any] | None = None
        self._is_cancelled = False  # by `stop`: once, as the task takes back one cancel

    @property
    def is_stopped(self) -> bool:
        return self._ended is not None

    def must_ask(self, tool: RunnableTool) -> bool:
        return self.toolbox.needs_consent(tool)

    def stop(self, result: ToolResult = STOPPED) -> None:
        """Stop it, also before it begins, keeping the partial answer; open calls get `result`."""
        self._ended = self._ended or result
        if self._waiting not in (None, asyncio.current_task()) and not self._is_cancelled:
            self._is_cancelled = self._waiting.cancel()

    async def run(self) -> AsyncGenerator[LoopEvent, None]:
        """Yield the events; at a limit the model is told once to answer without calls.

        A call that was made twice before is not run, and the fifth equal one is the last.
        """
        was_refused = False
        self._end_s = time.monotonic() + self.toolbox.loop_s
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
                self._n_equal[_key(call)] += 1
                if (n_equal := self._n_equal[_key(call)]) == _N_EQUAL_MAX:
                    limit, was_refused = limit or f"{n_equal} equal calls of {call.name}", True
                made = await asyncio.to_thread(self.toolbox.call, call.name, call.arguments)
                if limit or self._ended:
                    yield CallRefused(call, self._ended or TOO_MANY)
                elif n_equal > _N_EQUAL_RUN:
                    yield CallRefused(call, REPEATED)
                else:
                    self._n_left = self._n_left and self._n_left - 1
                    yield CallBegun(call)
                    result = await self.until_stopped(self._result(call, made))
                    if made.tool is not None and made.tool.has_effects:
                        self._n_equal = Counter({_key(call): n_equal})
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
        if self._n_rounds > self.toolbox.n_rounds:
            return f"{self.toolbox.n_rounds} rounds of tools"
        is_over = time.monotonic() > self._end_s
        return f"{self.toolbox.loop_s:g} s of tools" if is_over else ""

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
            is_stopped, self._is_cancelled = self._is_cancelled, False
            if not is_stopped or task is None or task.uncancel():
                raise
            return None
        finally:
            self._waiting = before

    async def _result(self, call: ToolCall, made: Call) -> ToolResult:
        if self._ask is not None and made.tool is not None and self.must_ask(made.tool):
            asked_s = time.monotonic()
            refusal = await self._ask(made.tool, made.arguments)
            self._end_s += time.monotonic() - asked_s
            if refusal is not None:
                return refusal
        running, follow = self.toolbox.run_call(made), following_calls.get()
        return await (follow(call, running) if follow else running)


def _key(call: ToolCall) -> bytes:
    return msgspec.json.encode((call.name, call.arguments), order="deterministic")


class Exchange(Loop, ABC):
    """A loop as the front ends have it, which say how they stream, ask, keep and show."""

    answer: Answer  # the newest one

    def __init__(self) -> None:
        super().__init__(self, Toolbox([], Consents(None)), self._refusal)

    async def follow_all(self, toolbox: Toolbox) -> None:
        self.toolbox = toolbox
        async with aclosing(self.run()) as events:
            async for event in events:
                await self.follow(event)

    async def follow(self, event: LoopEvent) -> None:
        match event:
            case CallBegun(call):
                await self.begin_call(call)
            case CallEnded(call, result):
                await self.end_call(call, result)
            case CallRefused(call, result):
                await self.refuse_call(call, result)
            case Continued():
                await self.begin_answer()
            case LimitReached(limit):
                self.tell(f"Stopped after {limit}.")

    async def _refusal(self, tool: RunnableTool, arguments: Arguments) -> ToolResult | None:
        decision = await self.decide(tool, arguments)
        if decision is None:
            return self._ended or UNANSWERED
        if decision.scope is None:
            text = f"The user denied this call. {decision.reason}".strip()
            return ToolResult(text, is_error=True)
        if decision.scope != "once":
            try:
                self.toolbox.allow(tool, decision.scope)
            except UsageError as error:  # it holds for this chat where it cannot be kept
                self.warn(error)
        return None

    @abstractmethod
    def events(self) -> AsyncGenerator[ChatEvent, None]:
        """Let the model answer the conversation so far."""

    @abstractmethod
    async def decide(self, tool: RunnableTool, arguments: Arguments) -> Decision | None:
        """Ask the user whether a call may run; None: there was no answer."""

    @abstractmethod
    async def begin_call(self, call: ToolCall) -> None:
        """Show that a call is asked about and run; `end_call` follows."""

    @abstractmethod
    async def end_call(self, call: ToolCall, result: ToolResult) -> None:
        """Keep the result of a call."""

    async def refuse_call(self, call: ToolCall, result: ToolResult) -> None:
        """Keep the result of a call that is not run."""
        await self.end_call(call, result)

    @abstractmethod
    async def begin_answer(self) -> None:
        """Begin the answer to the results."""

    @abstractmethod
    def tell(self, notice: str) -> None: ...

    def warn(self, error: UsageError) -> None:
        self.tell(error.message)
