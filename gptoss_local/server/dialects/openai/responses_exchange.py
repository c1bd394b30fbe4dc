"""One request of `/v1/responses` with tools that the server runs: all its answers as one."""

from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing

import msgspec

from gptoss_local.events import CallDelta, ChatEvent, Done, Started, ToolCall
from gptoss_local.harmony import ChatRequest, Message, ToolRequest
from gptoss_local.server.dialects.openai.responses_hosted import HostedTools, ToolListing
from gptoss_local.server.tracing import TracedLoop
from gptoss_local.talk.answer import Answer
from gptoss_local.talk.loop import CallBegun, CallEnded, CallRefused, Continued, LoopEvent
from gptoss_local.types import Usage

Answers = Callable[[ChatRequest], AsyncGenerator[ChatEvent, None]]
_NO_TOKENS = Usage(0, 0, 0, 0)


class HostedExchange:
    """The answers of the request, and the calls between them."""

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
        self._results: list[Message] = []  # of the answer's calls
        self._total = Done("stop", _NO_TOKENS, [])
        self._loop = TracedLoop(
            self,
            hosted.state.toolbox,
            ask=None,
            is_ours=hosted.tools.__contains__,
            n_calls_max=n_calls_max,
        )

    async def run(self, known: Collection[str]) -> AsyncGenerator[LoopEvent | ToolListing, None]:
        """Yield events as of one answer, Done last; unknown tools of MCP servers come first."""
        listings = [each for each in self._hosted.listings if each.server not in known]
        with self._hosted.memory.using(self._hosted.state):
            async with aclosing(self._loop.run()) as events:
                async for event in events:
                    if isinstance(event, Started | CallBegun):  # the prompt fits, or comes later
                        for listing in listings:
                            yield listing
                        listings = []
                    if self._take(event):
                        yield event
        yield self._total

    def _take(self, event: LoopEvent) -> bool:
        """Note an event; return whether the client gets it as it is."""
        match event:
            case Done():
                self._total = _sum(self._total, event)
                return False
            case ToolCall(name=name) | CallDelta(name=name):
                return name not in self._hosted.tools
            case CallEnded(call, result) | CallRefused(call, result):
                self._hosted.state.pages |= {page.cursor: page for page in result.pages}
                result_message = Message(
                    role="tool", content=result.text, tool_name=call.name, tool_call_id=call.id
                )
                self._results.append(result_message)
            case Continued():
                self._continue()
        return True

    async def events(self) -> AsyncGenerator[ChatEvent, None]:
        """Yield the events of the next answer, which has the tokens that are left."""
        self.answer, request, n_spent = Answer(), self._request, self._total.usage.n_generated
        if request.max_tokens is not None and n_spent:
            n_left = request.max_tokens - n_spent
            if n_left <= 0:
                yield Done("length", _NO_TOKENS, [])
                return
            request = msgspec.structs.replace(request, max_tokens=n_left)
        async with aclosing(self._answers(request)) as events:
            async for event in events:
                yield event

    def _continue(self) -> None:
        answer = self.answer
        said = Message(
            role="assistant",
            reasoning=answer.reasoning,
            content=answer.content,
            is_preamble=bool(answer.content),
            tool_calls=tuple(ToolRequest(c.name, c.arguments, c.id) for c in answer.calls),
        )
        messages = (*self._request.messages, said, *self._results)
        self._request = msgspec.structs.replace(self._request, messages=messages, must_call=())
        self._results = []


def _sum(total: Done, done: Done) -> Done:
    both = zip(*map(msgspec.structs.astuple, (total.usage, done.usage)), strict=True)
    usage, n_reasoning = Usage(*map(sum, both)), total.n_reasoning + done.n_reasoning
    return msgspec.structs.replace(done, usage=usage, n_reasoning=n_reasoning)
