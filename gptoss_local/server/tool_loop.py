"""Answers, and the calls of tools between them that the server runs, until the last word.

A writer gets the events of all answers as those of one, with what was run in its place. Nothing
here knows a dialect.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Protocol

import msgspec

from gptoss_local.harmony import (
    CallDelta,
    ChatEvent,
    ChatRequest,
    Done,
    Message,
    ToolCall,
    ToolRequest,
    WholeAnswer,
)
from gptoss_local.server.tracing import traced_tool
from gptoss_local.talk.tools import LoopLimit, ToolResult
from gptoss_local.types import Usage

_REFUSED = ToolResult(
    "Error: this call was not run, as an answer may not have more calls. Answer without.",
    is_error=True,
)


class CallBegun(msgspec.Struct, frozen=True):
    """The server is about to run a call; CallEnded comes next.

    `approval_id` is how the approval was asked for, if it was.
    """

    call: ToolCall
    approval_id: str = ""


class CallEnded(msgspec.Struct, frozen=True):
    """A call was run."""

    call: ToolCall
    result: ToolResult


class CallHeld(msgspec.Struct, frozen=True):
    """A call waits for the user's approval, and the answer ends."""

    call: ToolCall


class LimitReached(msgspec.Struct, frozen=True):
    """The model did not answer without calls when it was told to; Done comes next."""


LoopEvent = ChatEvent | CallBegun | CallEnded | CallHeld | LimitReached
Answer = Callable[[ChatRequest], AsyncGenerator[ChatEvent, None]]


class ServerTools(Protocol):
    """The tools of a request, of which the server runs some."""

    def is_ours(self, name: str) -> bool:
        """Return whether the server runs a tool; all others are the client's."""

    def needs_approval(self, call: ToolCall) -> bool:
        """Return whether the user is to be asked before a call."""

    async def run(self, call: ToolCall) -> ToolResult:
        """Run a call; what fails becomes a result, too."""


class ToolLoop:
    """One request, answered with calls.

    Args:
        answer: Answers a request.
        tools: Those that are offered.
        limit: Of the loop.
        n_calls_max: Most calls that are run; None: any number.
    """

    def __init__(
        self, answer: Answer, tools: ServerTools, limit: LoopLimit, n_calls_max: int | None = None
    ) -> None:
        self._answer = answer
        self._tools = tools
        self._limit = limit
        self._n_left = n_calls_max
        self._usage = Usage(0, 0, 0, 0)
        self._n_reasoning = 0

    async def run(
        self, request: ChatRequest, approved: Mapping[str, ToolCall] | None = None
    ) -> AsyncGenerator[LoopEvent, None]:
        """Yield the events of all answers and calls; the last one is Done, of all together.

        A call is yielded when the server begins it, or the client is to run it; then the answer
        ends after it. Calls over a limit are answered with an error once, and end the loop if the
        model has more of them. Closing the iterator stops what runs.

        Args:
            request: What is asked.
            approved: Calls that an earlier answer has ended with, by how the approval was asked
                for. The messages have results for them, which are filled in.

        Raises:
            As `answer`.
        """
        for approval_id, call in (approved or {}).items():
            yield CallBegun(call, approval_id)
            result = await self._run(call)
            yield CallEnded(call, result)
            request = _with_result(request, call, result)
        was_refused = False
        while True:
            whole = WholeAnswer()
            async with aclosing(self._answer(_bounded(request, self._usage))) as events:
                async for event in events:
                    whole.add(event)
                    if not (isinstance(event, Done) or self._is_ours(event)):
                        yield event
            done = self._total(whole.done)
            ours = [call for call in whole.calls if self._tools.is_ours(call.name)]
            if not ours or done.reason != "stop":
                break
            may_run = not self._limit.reached()
            results: list[tuple[ToolCall, ToolResult]] = []
            is_over, is_refused = len(ours) < len(whole.calls), False
            for call in ours:
                if not may_run or self._n_left == 0:
                    results.append((call, _REFUSED))
                    is_refused = True
                elif self._tools.needs_approval(call):
                    yield CallHeld(call)
                    is_over = True
                else:
                    self._n_left = self._n_left and self._n_left - 1
                    yield CallBegun(call)
                    results.append((call, await self._run(call)))
                    yield CallEnded(*results[-1])
            if is_refused and was_refused:
                yield LimitReached()
            if is_over or (is_refused and was_refused):
                break
            was_refused = is_refused
            request = _continued(request, whole, results)
            if request.max_tokens is not None and self._usage.n_generated >= request.max_tokens:
                done = msgspec.structs.replace(done, reason="length")
                break
        yield done

    async def _run(self, call: ToolCall) -> ToolResult:
        return await traced_tool(call.name, self._tools.run(call), call.id)

    def _is_ours(self, event: ChatEvent) -> bool:
        return isinstance(event, ToolCall | CallDelta) and self._tools.is_ours(event.name)

    def _total(self, done: Done) -> Done:
        """Return the end of all answers so far."""
        fields = msgspec.structs.asdict(done.usage)
        sums = {name: getattr(self._usage, name) + n for name, n in fields.items()}
        self._usage = Usage(**sums)
        self._n_reasoning += done.n_reasoning
        return msgspec.structs.replace(done, usage=self._usage, n_reasoning=self._n_reasoning)


def _bounded(request: ChatRequest, spent: Usage) -> ChatRequest:
    """Return the request with the tokens that are left to the next answer."""
    if request.max_tokens is None:
        return request
    return msgspec.structs.replace(request, max_tokens=request.max_tokens - spent.n_generated)


def _continued(
    request: ChatRequest, whole: WholeAnswer, results: Sequence[tuple[ToolCall, ToolResult]]
) -> ChatRequest:
    """Return the request for the answer to results; a call that had to be made has been made."""
    said = Message(
        role="assistant",
        reasoning=whole.reasoning,
        content=whole.content,
        is_preamble=bool(whole.content),
        tool_calls=tuple(ToolRequest(c.name, c.arguments, c.id) for c in whole.calls),
    )
    told = [_message(call, result) for call, result in results]
    messages = (*request.messages, said, *told)
    return msgspec.structs.replace(request, messages=messages, must_call=())


def _with_result(request: ChatRequest, call: ToolCall, result: ToolResult) -> ChatRequest:
    """Return the request with the result of a call in its place."""
    messages = tuple(
        _message(call, result) if m.role == "tool" and m.tool_call_id == call.id else m
        for m in request.messages
    )
    return msgspec.structs.replace(request, messages=messages)


def _message(call: ToolCall, result: ToolResult) -> Message:
    return Message(role="tool", content=result.text, tool_name=call.name, tool_call_id=call.id)
