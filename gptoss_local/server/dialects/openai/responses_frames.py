"""Answers of `/v1/responses`. Source: OpenAI's API reference (Responses, streaming events).

SDKs need a part before its first delta, `output_item.done` for all items, and unique indexes.
"""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from gptoss_local.base.errors import GptOssError
from gptoss_local.harmony import CallDelta, ContentDelta, Done, ReasoningDelta, Started, ToolCall
from gptoss_local.server.dialects.openai.parts import END, error_body, new_id, now_s, usage
from gptoss_local.server.dialects.openai.responses_output import (
    CallItem,
    Fields,
    HostedItem,
    TextDelta,
    TextItem,
    Told,
    own_item,
    tool_list,
)
from gptoss_local.server.dialects.openai.responses_request import ResponsesBody
from gptoss_local.server.dialects.openai.responses_tools import (
    SEARCH,
    ClientTools,
    HostedTools,
    ToolListing,
    echo,
)
from gptoss_local.server.dialects.sent_format import flat_format
from gptoss_local.server.dialects.sent_tools import OWN_ITEMS
from gptoss_local.server.streaming import SSE, SseEvent
from gptoss_local.talk.loop import CallBegun, CallEnded, LimitReached, LoopEvent


class ResponsesWriter:
    """One answer of `/v1/responses`; `keep` gets it whole before the client sees that."""

    framing = SSE

    def __init__(
        self,
        body: ResponsesBody,
        toolbox: ClientTools,
        keep: Callable[[Fields], None],
        hosted: HostedTools | None = None,
    ) -> None:
        self._response = _response(body)
        self._include = body.include
        self._hosted = hosted
        self._keep = keep
        self._toolbox = toolbox
        self._output: list[Fields] = self._response["output"]
        self._numbers = itertools.count()
        self._open: TextItem | CallItem | None = None
        self._running: HostedItem | None = None
        self._incomplete = "max_output_tokens"
        self._has_begun = False

    def feed(self, event: LoopEvent | ToolListing) -> Iterable[SseEvent]:
        match event:
            case Started():
                return self._close()  # of the answer before a call
            case ReasoningDelta() | ContentDelta():
                return [*self._begin(), *self._text(event)]
            case CallDelta(_, call_id, name, text):
                kind = self._toolbox.origin(name).kind
                if kind == "custom":  # of one that was cut; its input is the only argument
                    text = event.arguments.get("input", "")
                elif kind != "function" or (self._hosted and name in self._hosted.tools):
                    return []  # whole, in an item of its own
                return [*self._begin(), *self._call_text(call_id, name, text)]
            case ToolCall():
                return [*self._begin(), *self._call(event)]
            case ToolListing():
                return [*self._begin(), *self._list(event)]
            case CallBegun() | CallEnded():
                return [*self._begin(), *self._close(), *self._host(event)]
            case LimitReached():
                self._incomplete = "max_messages"
                return []
            case Done():
                if event.end == "repetition":
                    self._incomplete = "repetition"
                is_cut = event.end != "stop" or self._incomplete == "max_messages"
                status = "incomplete" if is_cut else "completed"
                is_open = "completed" if event.end == "stop" else "incomplete"
                return [*self._begin(), *self._close(is_open), self._finish(event, status), END]
            case _:
                return []

    def keepalive(self) -> Iterable[SseEvent]:
        return [*self._begin(), SseEvent(None)]

    def whole(self) -> Fields:
        return self._response

    def failed(self, error: GptOssError) -> Iterable[SseEvent]:
        self._response["status"] = "failed"
        told = error_body(error)["error"]
        code = told["code"] or "server_error"
        self._response["error"] = {"code": code, "message": told["message"]}
        return [*self._begin(), self._event("response.failed", response=self._response), END]

    def _begin(self) -> Iterable[SseEvent]:
        if not self._has_begun:
            self._has_begun = True
            empty = self._response | {"output": [], "status": "in_progress", "error": None}
            yield self._event("response.created", response=empty)
            yield self._event("response.in_progress", response=empty)

    def _text(self, delta: TextDelta) -> Iterable[SseEvent]:
        item, is_reasoning = self._open, isinstance(delta, ReasoningDelta)
        if delta.is_next or not isinstance(item, TextItem) or item.is_reasoning != is_reasoning:
            yield from self._close()
            self._open = item = TextItem(len(self._output), delta)
            yield self._item_added(item.item("in_progress"))
            yield self._event(f"response.{item.part_event}.added", item.place, part=item.part())
        yield self._event(f"response.{item.text_event}.delta", item.delta(delta))

    def _close(self, status: str = "completed") -> Iterable[SseEvent]:
        item, self._open = self._open, None
        if isinstance(item, CallItem) and status == "completed":
            yield self._event(f"{item.event}.done", item.text_done())
        elif isinstance(item, TextItem):
            if self._hosted and not item.is_reasoning:
                for fields in item.annotate(self._hosted.state.pages):
                    yield self._event("response.output_text.annotation.added", fields)
            yield self._event(f"response.{item.text_event}.done", item.text_done())
            yield self._event(f"response.{item.part_event}.done", item.place, part=item.part())
        if item is not None:
            yield self._item_done(item.item(status))

    def _call_text(self, call_id: str, name: str, text: str) -> Iterable[SseEvent]:
        call = self._open
        if not (isinstance(call, CallItem) and call.call_id == call_id):
            yield from self._close()
            self._open = call = CallItem(len(self._output), call_id, self._toolbox.origin(name))
            yield self._item_added(call.item("in_progress"))
        call.text += text
        yield self._event(f"{call.event}.delta", call.place, delta=text)

    def _call(self, call: ToolCall) -> Iterable[SseEvent]:
        kind = self._toolbox.origin(call.name).kind
        if kind == SEARCH or kind in OWN_ITEMS:
            yield from self._close()
            item = own_item(kind, call)
            yield self._item_added(item | {"status": "in_progress"})
            yield self._item_done(item)
            return
        text = call.arguments["input"] if kind == "custom" else call.arguments_json()
        begun = self._open
        if isinstance(begun, CallItem) and begun.call_id == call.id:
            text = text[len(begun.text) :]
        yield from self._call_text(call.id, call.name, text)
        yield from self._close()

    def _list(self, listing: ToolListing) -> Iterable[SseEvent]:
        item = tool_list(listing)
        outcome = "failed" if listing.error else "completed"
        yield self._item_added(item | {"tools": [], "error": None})
        told: list[Told] = [("mcp_list_tools.in_progress", {}), (f"mcp_list_tools.{outcome}", {})]
        yield from self._tell(item["id"], told)
        yield self._item_done(item)

    def _host(self, event: CallBegun | CallEnded) -> Iterable[SseEvent]:
        assert self._hosted is not None
        match event:
            case CallBegun():
                item = self._running = HostedItem(event.call, self._hosted, self._include)
                yield self._item_added(item.item())
                yield from self._tell(item.id, item.begun())
            case CallEnded(call, result):
                assert self._running is not None
                item = self._running
                self._hosted.remember(item.id, call, result)
                yield from self._tell(item.id, item.ended(result))
                yield self._item_done(item.item(result))

    def _tell(self, item_id: str, told: Iterable[Told]) -> Iterable[SseEvent]:
        place = {"item_id": item_id, "output_index": len(self._output)}
        for name, fields in told:
            yield self._event(f"response.{name}", place, **fields)

    def _item_added(self, item: Fields) -> SseEvent:
        place = {"output_index": len(self._output)}
        return self._event("response.output_item.added", place, item=item)

    def _item_done(self, item: Fields) -> SseEvent:
        place = {"output_index": len(self._output)}
        self._output.append(item)
        return self._event("response.output_item.done", place, item=item)

    def _finish(self, done: Done, status: str) -> SseEvent:
        self._response["usage"] = usage(done, "input", "output")
        self._response["status"] = status
        if status == "incomplete":
            self._response["incomplete_details"] = {"reason": self._incomplete}
        else:
            self._response["completed_at"] = now_s()
        self._keep(self._response)
        return self._event(f"response.{status}", response=self._response)

    def _event(self, kind: str, place: Fields | None = None, **fields: Any) -> SseEvent:
        numbered = {"type": kind, "sequence_number": next(self._numbers)}
        return SseEvent(numbered | (place or {}) | fields, kind)


def _format(form: str | Fields) -> Fields:
    """Return a format with the fields that typed clients require."""
    form = flat_format(form) if isinstance(form, dict) else {"type": "json_object"} if form else {}
    if form.get("type") == "json_schema":
        return {"description": None, "strict": None} | form
    return form or {"type": "text"}


def _response(body: ResponsesBody) -> Fields:
    effort, summary = body.reasoning.effort or None, body.reasoning.summary or None
    return {
        "id": new_id("resp_"),
        "object": "response",
        "created_at": now_s(),
        "completed_at": None,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions or None,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls,
        "model": body.model,
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls,
        "previous_response_id": body.previous_response_id or None,
        "prompt_cache_key": None,
        "reasoning": {"effort": effort, "summary": summary},
        "safety_identifier": None,
        "service_tier": "default",
        "store": body.store,
        "temperature": body.temperature,
        "text": {"format": _format(body.text.format), "verbosity": "medium"},
        "tool_choice": body.tool_choice,
        "tools": echo(body.tools),
        "top_logprobs": body.top_logprobs,
        "top_p": body.top_p,
        "presence_penalty": body.presence_penalty,
        "frequency_penalty": body.frequency_penalty,
        "truncation": body.truncation,
        "usage": None,
        "metadata": body.metadata,
    }
