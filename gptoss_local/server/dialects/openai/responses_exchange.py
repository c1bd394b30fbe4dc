"""One request of `/v1/responses` whose tools the server runs: all its answers as one."""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing

import msgspec

from gptoss_local.events import CallDelta, ChatEvent, Done, Started, ToolCall
from gptoss_local.harmony import ChatRequest, Message, ToolRequest
from gptoss_local.server.dialects.openai.responses_hosted import HostedTools, Listing
from gptoss_local.server.traced_loop import TracedLoop
from gptoss_local.server.tracing import traced_tool
from gptoss_local.talk.answer import Answer
from gptoss_local.talk.loop import CallBegun, CallEnded, CallRefused, Continued, LoopEvent
from gptoss_local.types import Usage

Answers = Callable[[ChatRequest], AsyncGenerator[ChatEvent, None]]


class ApprovedCallBegun(CallBegun, frozen=True):
    """A call of an earlier answer is run, which an item asked the client to approve."""

    approval_id: str = ""


class HostedExchange:
    """The answers of the request, and the calls between them.

    Args:
        answers: Answers a request.
        request: The conversation. It has empty results for calls that were approved.
        hosted: The tools that the server runs.
        n_calls_max: Most calls that are run; None: any number.
    """

    def __init__(
        self,
        answers: Answers,
        request: ChatRequest,
        hosted: HostedTools,
        n_calls_max: int | None = None,
    ) -> None:
        self.answer = Answer()
        self._answers = answers
        self._request = request
        self._hosted = hosted
        self._total = Done("stop", Usage(0, 0, 0, 0), [])
        self._loop = TracedLoop(
            self,
            hosted.state.toolbox,
            ask=None,
            must_ask=lambda tool: hosted.tools[tool.name].asks,
            is_ours=hosted.tools.__contains__,
            n_calls_max=n_calls_max,
        )

    async def run(
        self, approved: dict[str, ToolCall], listings: list[Listing]
    ) -> AsyncGenerator[LoopEvent | Listing, None]:
        """Yield events as of one answer; the last one is Done, of all together.

        Args:
            approved: Calls that are run first, by the ids of the items that asked.
            listings: The tools of MCP servers that the client does not know yet.
        """
        async with aclosing(self._all(approved)) as events:
            async for event in events:
                if isinstance(event, Started | CallBegun):  # the prompt fits, or is not needed yet
                    for listing in listings:
                        yield listing
                    listings = []
                if isinstance(event, Done):
                    self._total = _sum(self._total, event)
                elif not (
                    isinstance(event, ToolCall | CallDelta) and event.name in self._hosted.tools
                ):
                    yield event
        yield self._total

    async def events(self) -> AsyncGenerator[ChatEvent, None]:
        """Yield the events of the next answer, which has the tokens that are left."""
        self.answer, request, n_spent = Answer(), self._request, self._total.usage.n_generated
        if request.max_tokens is not None and n_spent:
            n_left = request.max_tokens - n_spent
            if n_left <= 0:
                yield Done("length", Usage(0, 0, 0, 0), [])
                return
            request = msgspec.structs.replace(request, max_tokens=n_left)
        async with aclosing(self._answers(request)) as events:
            async for event in events:
                yield event

    async def _all(self, approved: dict[str, ToolCall]) -> AsyncGenerator[LoopEvent, None]:
        """Yield the events of the approved calls and of the loop; the request grows by them."""
        toolbox = self._hosted.state.toolbox
        for approval_id, call in approved.items():
            yield ApprovedCallBegun(call, approval_id)
            work = toolbox.run(call.name, call.arguments)
            ended = CallEnded(call, await traced_tool(call.name, work, call.id))
            told = self._told(ended)
            self._set_messages(
                told if m.role == "tool" and m.tool_call_id == call.id else m
                for m in self._request.messages
            )
            yield ended
        results: list[Message] = []
        async with aclosing(self._loop.run()) as events:
            async for event in events:
                if isinstance(event, CallEnded | CallRefused):
                    results.append(self._told(event))
                elif isinstance(event, Continued):
                    self._set_messages((*self._request.messages, self._said(), *results))
                    results = []
                yield event

    def _said(self) -> Message:
        answer = self.answer
        return Message(
            role="assistant",
            reasoning=answer.reasoning,
            content=answer.content,
            is_preamble=bool(answer.content),
            tool_calls=tuple(ToolRequest(c.name, c.arguments, c.id) for c in answer.calls),
        )

    def _told(self, event: CallEnded | CallRefused) -> Message:
        call, result = event.call, event.result
        self._hosted.state.pages |= {page.cursor: page for page in result.pages}
        text = result.text
        return Message(role="tool", content=text, tool_name=call.name, tool_call_id=call.id)

    def _set_messages(self, messages: Iterable[Message]) -> None:
        """Continue with these; a call that had to be made has been made."""
        self._request = msgspec.structs.replace(
            self._request, messages=tuple(messages), must_call=()
        )


def _sum(total: Done, done: Done) -> Done:
    """Return the end of all answers so far."""
    both = zip(*map(msgspec.structs.astuple, (total.usage, done.usage)), strict=True)
    usage, n_reasoning = Usage(*map(sum, both)), total.n_reasoning + done.n_reasoning
    return msgspec.structs.replace(done, usage=usage, n_reasoning=n_reasoning)
