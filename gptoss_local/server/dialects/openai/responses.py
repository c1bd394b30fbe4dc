"""OpenAI's `/v1/responses`. Source: its API reference; docs/api.md lists differences."""

from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gptoss_local.base.errors import UsageError
from gptoss_local.base.events import CallDelta, ChatEvent, Done, Started, ToolCall
from gptoss_local.base.types import Usage
from gptoss_local.harmony import ChatRequest, Message, ToolRequest
from gptoss_local.server.access import current_caller, owner_of
from gptoss_local.server.body import convert, translate
from gptoss_local.server.dialect import Endpoints
from gptoss_local.server.dialects.named_model import NamedModel
from gptoss_local.server.dialects.openai.parts import InputTokens
from gptoss_local.server.dialects.openai.responses_frames import ResponsesWriter
from gptoss_local.server.dialects.openai.responses_memory import ResponseStore, ToolMemory
from gptoss_local.server.dialects.openai.responses_request import (
    InputItem,
    ResponsesBody,
    text_in,
    with_unknown_aside,
)
from gptoss_local.server.dialects.openai.responses_tools import (
    ClientTools,
    HostedTools,
    Permission,
    ToolListing,
    find_state,
    prepare,
    wanted,
)
from gptoss_local.server.streaming import SSE, AnswerResponse, json_response, while_connected
from gptoss_local.talk.answer import Answer
from gptoss_local.talk.loop import CallBegun, CallEnded, CallRefused, Continued, Loop, LoopEvent

endpoints = Endpoints()
Answers = Callable[[ChatRequest], AsyncGenerator[ChatEvent, None]]
_NO_TOKENS = Usage(0, 0, 0, 0)


class ResponsesUsage(msgspec.Struct):
    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: dict[str, int]
    output_tokens_details: dict[str, int]


class ResponseObject(msgspec.Struct):
    """An answer of `/v1/responses`; only fields that programs rely on are spelled out."""

    id: str
    object: Literal["response"]
    status: Literal["completed", "incomplete", "failed", "in_progress"]
    model: str
    output: list[dict[str, Any]]
    usage: ResponsesUsage | None
    error: dict[str, Any] | None
    incomplete_details: dict[str, Any] | None


class DeletedResponse(msgspec.Struct):
    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True


class InputItems(msgspec.Struct, kw_only=True):
    object: Literal["list"] = "list"
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


class PageQuery(msgspec.Struct):
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"
    after: str = ""


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
        self._loop = Loop(
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


_NAMES = {"num_predict": "max_output_tokens"}


@endpoints.metered("/v1/responses", "OpenAI's Responses", ResponseObject, ResponsesBody, stream=SSE)
async def responses(request: Request) -> Response:
    model = NamedModel(request, _NAMES)
    body = await model.read(ResponsesBody, with_unknown_aside)
    asked, owner = await _asked(request, model, body), owner_of(request)
    listed = await translate(request, lambda: [i.to_wire() for i in asked.items if body.store])

    def keep(made: dict[str, Any]) -> None:
        if body.store:
            _remembered(request).add(owner, listed, made)

    writer = ResponsesWriter(body, asked.toolbox, keep, asked.hosted)
    events: AsyncGenerator[LoopEvent | ToolListing, None]
    if asked.hosted is None:
        events = model.manager.answer(model.entry, asked.request)
    else:
        answers = partial(model.manager.answer, model.entry)
        exchange = HostedExchange(answers, asked.request, asked.hosted, body.max_tool_calls)
        lists = [item.raw for item in asked.items if item.kind == "mcp_list_tools"]
        events = exchange.run({text_in(item, "server_label") for item in lists})
    return AnswerResponse(events, writer, stream=body.stream)


@endpoints.metered("/v1/responses/input_tokens", "Length of a prompt", InputTokens, ResponsesBody)
async def input_tokens(request: Request) -> Response:
    model = NamedModel(request, _NAMES)
    body = await model.read(ResponsesBody, with_unknown_aside)
    asked = await _asked(request, model, body)
    return json_response(InputTokens(input_tokens=await model.n_tokens(asked.request)))


endpoints.refuse(
    *("POST", "/v1/responses/compact"),
    *("compaction is not supported", "Ask for a summary as a message."),
)


@endpoints.for_keys(
    "GET", "/v1/responses/{response}", "An answer that is remembered", ResponseObject
)
async def response(request: Request) -> Response:
    """Return an answer as it was given; `stream` cannot repeat how it came."""
    if request.query_params.get("stream", "false").lower() not in ("false", "0", ""):
        raise UsageError("answers of the past are not streamed")
    name = request.path_params["response"]
    return json_response(_remembered(request).response(owner_of(request), name))


@endpoints.for_keys("DELETE", "/v1/responses/{response}", "Forget an answer", DeletedResponse)
async def delete(request: Request) -> Response:
    name = request.path_params["response"]
    _remembered(request).delete(owner_of(request), name)
    return json_response(DeletedResponse(name))


@endpoints.for_keys(
    "GET",
    "/v1/responses/{response}/input_items",
    "What an answer was given to",
    InputItems,
    queries=msgspec.json.schema(PageQuery)["$defs"]["PageQuery"]["properties"],
)
async def input_items(request: Request) -> Response:
    """Return the request with its history: one page, the newest item first."""
    items = _remembered(request).items(owner_of(request), request.path_params["response"])
    query = convert(dict(request.query_params), PageQuery)
    if query.order == "desc":
        items.reverse()
    if query.after:
        ids = [item["id"] for item in items]
        if query.after not in ids:
            raise UsageError(f"after names no item: '{query.after}'")
        items = items[ids.index(query.after) + 1 :]
    page = items[: query.limit]
    return json_response(
        InputItems(
            data=page,
            first_id=page[0]["id"] if page else None,
            last_id=page[-1]["id"] if page else None,
            has_more=len(items) > query.limit,
        )
    )


class _Asked(NamedTuple):
    request: ChatRequest
    items: list[InputItem]
    toolbox: ClientTools
    hosted: HostedTools | None


async def _asked(request: Request, model: NamedModel, body: ResponsesBody) -> _Asked:
    owner = owner_of(request)
    items = body.items(_remembered(request), owner)
    hosted, toolbox = await _hosted(request, model, body, items), ClientTools()
    run_of = partial(_memory(request).runs.get, owner)

    def make() -> ChatRequest:
        nonlocal toolbox
        toolbox = body.toolbox(items, hosted)
        return body.to_request(items, toolbox, run_of)

    asked = await model.asked(make)
    return _Asked(asked, items, toolbox, hosted)


async def _hosted(
    request: Request, model: NamedModel, body: ResponsesBody, items: list[InputItem]
) -> HostedTools | None:
    """Start the tools that the server runs, in the conversation's earlier state if it is kept."""
    permission = Permission(current_caller(), model.manager.settings)
    memory, entries = _memory(request), wanted(body.tools, permission)
    model.warn_of(str(tool.get("type")) for tool in body.tools if tool not in entries)
    if not entries:
        return None
    state = await find_state(memory, owner_of(request), entries, [item.raw for item in items])
    hosted = await while_connected(request, prepare(entries, memory, state, permission))
    settings = model.manager.settings
    request.state.lease.needs = lambda caller: hosted.are_allowed(Permission(caller, settings))
    return hosted


def _memory(request: Request) -> ToolMemory:
    memory: ToolMemory = request.app.state.tool_memory
    return memory


def _remembered(request: Request) -> ResponseStore:
    store: ResponseStore = request.app.state.responses
    return store
