"""Answers of `/v1/responses`. Source: OpenAI's API reference (Responses, streaming events).

SDKs need a part before its first delta, `output_item.done` for all items, and unique indexes.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gptoss_local.base.errors import GptOssError
from gptoss_local.harmony import (
    CallDelta,
    ContentDelta,
    Done,
    ReasoningDelta,
    Started,
    ToolCall,
)
from gptoss_local.server.dialects.history import SEAL
from gptoss_local.server.dialects.logprobs import OpenAILogprob, openai_logprobs
from gptoss_local.server.dialects.openai.parts import error_body, new_id, now_s, usage
from gptoss_local.server.dialects.openai.responses_hosted import HostedTools, ToolListing
from gptoss_local.server.dialects.openai.responses_hosted_frames import (
    HostedItem,
    Told,
    tool_list,
)
from gptoss_local.server.dialects.openai.responses_request import ResponsesBody
from gptoss_local.server.dialects.openai.responses_tools import SEARCH, ClientTools, Origin, echo
from gptoss_local.server.dialects.sent_tools import OWN_ITEMS
from gptoss_local.server.streaming import SSE, SseEvent
from gptoss_local.talk.citations import find_citations
from gptoss_local.talk.loop import CallBegun, CallEnded, LimitReached, LoopEvent
from gptoss_local.talk.tools import Page

TextDelta = ReasoningDelta | ContentDelta


class CallItem:
    """A call while it is written: its state, and the fields of the events about it."""

    def __init__(self, output_index: int, call_id: str, origin: Origin) -> None:
        is_custom = origin.kind == "custom"
        kind, self._field = (
            ("custom_tool_call", "input") if is_custom else ("function_call", "arguments")
        )
        self.event = f"response.{kind}_{self._field}"
        self.call_id = call_id
        self._name = origin.name
        self._texts: list[str] = []
        item_id = new_id("ctc_" if is_custom else "fc_")
        self._item = {"id": item_id, "type": kind, "call_id": call_id, "name": origin.name}
        if origin.namespace:
            self._item["namespace"] = origin.namespace
        self._place = {"item_id": item_id, "output_index": output_index}

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def added(self) -> dict[str, Any]:
        item = self._item | {"status": "in_progress", self._field: ""}
        return {"output_index": self._place["output_index"], "item": item}

    def delta(self, text: str) -> dict[str, Any]:
        self._texts.append(text)
        return self._place | {"delta": text}

    def text_done(self) -> dict[str, Any]:
        return self._place | {"name": self._name, self._field: self.text}

    def done(self, status: str) -> dict[str, Any]:
        return self._item | {"status": status, self._field: self.text}


def own_item(kind: str, call: ToolCall) -> dict[str, Any]:
    """Return the call of a tool whose kind has an item of its own."""
    given = call.arguments
    if kind == "local_shell":
        given = {"action": {"type": "exec", "env": {}} | given}
    elif kind == "shell":
        given = {"action": {"timeout_ms": None, "max_output_length": None} | given}
    item_id = new_id("item_")
    head = {"id": item_id, "type": f"{kind}_call", "status": "completed", "call_id": call.id}
    return head | given


class TextItem(ABC):
    """An output item that grows: its state, and the fields of the events about it."""

    id_prefix: str
    part_event: str
    text_event: str
    part_index: str

    def __init__(self, output_index: int, first: TextDelta) -> None:
        self._id = new_id(self.id_prefix)
        self._output_index = output_index
        self._texts: list[str] = []
        self._logprobs: list[OpenAILogprob] = []

    def added(self) -> dict[str, Any]:
        return {"output_index": self._output_index, "item": self._item("in_progress", [])}

    def part(self) -> dict[str, Any]:
        return {**self._place(), "part": self._part()}

    def delta(self, delta: TextDelta) -> dict[str, Any]:
        logprobs = openai_logprobs(delta.logprobs) if isinstance(delta, ContentDelta) else []
        self._texts.append(delta.own_text)
        self._logprobs += logprobs
        return {**self._place(), "delta": delta.own_text, **self._extra(logprobs)}

    def text_done(self) -> dict[str, Any]:
        return {**self._place(), "text": "".join(self._texts), **self._extra(self._logprobs)}

    def done(self, status: str) -> dict[str, Any]:
        return self._item(status, [self._part()])

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._id, "output_index": self._output_index, self.part_index: 0}

    def _extra(self, logprobs: Sequence[OpenAILogprob]) -> dict[str, Any]:
        return {}

    @abstractmethod
    def _part(self) -> dict[str, Any]: ...

    @abstractmethod
    def _item(self, status: str, parts: list[dict[str, Any]]) -> dict[str, Any]: ...


class ReasoningItem(TextItem):
    id_prefix = "rs_"
    part_event = "reasoning_summary_part"
    text_event = "reasoning_summary_text"
    part_index = "summary_index"

    def _part(self) -> dict[str, Any]:
        return {"type": "summary_text", "text": "".join(self._texts)}

    def _item(self, status: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
        text = "".join(part["text"] for part in parts)
        return {
            "id": self._id,
            "type": "reasoning",
            "summary": parts,
            "content": [{"type": "reasoning_text", "text": text}] if text else [],
            "encrypted_content": SEAL + text if text else None,
        }


class MessageItem(TextItem):
    id_prefix = "msg_"
    part_event = "content_part"
    text_event = "output_text"
    part_index = "content_index"

    def __init__(self, output_index: int, first: TextDelta) -> None:
        super().__init__(output_index, first)
        is_preamble = isinstance(first, ContentDelta) and first.is_preamble
        self._phase = "commentary" if is_preamble else "final_answer"
        self._annotations: list[dict[str, Any]] = []

    def annotate(self, pages: Mapping[int, Page]) -> Iterable[dict[str, Any]]:
        """Note the pages that the whole text cites, and return the fields of the events."""
        # The marks stay in the text, as the model wrote it.
        self._annotations = [
            {
                "type": "url_citation",
                "start_index": mark.start,
                "end_index": mark.end,
                "url": page.url,
                "title": page.title or page.url,
            }
            for mark in find_citations("".join(self._texts))
            if (page := pages.get(mark.cursor)) and page.url
        ]
        for index, annotation in enumerate(self._annotations):
            yield {**self._place(), "annotation_index": index, "annotation": annotation}

    def _extra(self, logprobs: Sequence[OpenAILogprob]) -> dict[str, Any]:
        return {"logprobs": list(logprobs)}

    def _part(self) -> dict[str, Any]:
        text = "".join(self._texts)
        extra = self._extra(self._logprobs)
        return {"type": "output_text", "text": text, "annotations": self._annotations, **extra}

    def _item(self, status: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "phase": self._phase,
            "content": parts,
        }


class ResponsesWriter:
    """One answer of `/v1/responses`; `keep` gets it whole before the client sees that."""

    framing = SSE

    def __init__(
        self,
        body: ResponsesBody,
        toolbox: ClientTools,
        keep: Callable[[dict[str, Any]], None],
        hosted: HostedTools | None = None,
    ) -> None:
        self._response = _response(body)
        self._include = body.include
        self._hosted = hosted
        self._keep = keep
        self._toolbox = toolbox
        self._output: list[dict[str, Any]] = self._response["output"]
        self._numbers = itertools.count()
        self._open: TextItem | CallItem | None = None
        self._running: HostedItem | None = None
        self._incomplete = "max_output_tokens"
        self._has_begun = False

    def feed(self, event: LoopEvent | ToolListing) -> Iterable[SseEvent]:
        match event:
            case Started():
                return self._close()  # of the answer before a call
            case ReasoningDelta():
                return [*self._begin(), *self._text(ReasoningItem, event)]
            case ContentDelta():
                return [*self._begin(), *self._text(MessageItem, event)]
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
                return [*self._begin(), *self._close(is_open), self._finish(event, status)]
            case _:
                return []

    def keepalive(self) -> Iterable[SseEvent]:
        return [*self._begin(), SseEvent(None)]

    def whole(self) -> dict[str, Any]:
        return self._response

    def failed(self, error: GptOssError) -> Iterable[SseEvent]:
        self._response["status"] = "failed"
        told = error_body(error)["error"]
        code = told["code"] or "server_error"
        self._response["error"] = {"code": code, "message": told["message"]}
        return [*self._begin(), self._event("response.failed", response=self._response)]

    def _begin(self) -> Iterable[SseEvent]:
        if not self._has_begun:
            self._has_begun = True
            empty = self._response | {"output": [], "status": "in_progress", "error": None}
            yield self._event("response.created", response=empty)
            yield self._event("response.in_progress", response=empty)

    def _text(self, kind: "type[TextItem]", delta: TextDelta) -> Iterable[SseEvent]:
        if delta.is_next or not isinstance(self._open, kind):
            yield from self._close()
            self._open = kind(len(self._output), delta)
            yield self._event("response.output_item.added", **self._open.added())
            yield self._event(f"response.{kind.part_event}.added", **self._open.part())
        yield self._event(f"response.{kind.text_event}.delta", **self._open.delta(delta))

    def _close(self, status: str = "completed") -> Iterable[SseEvent]:
        item, self._open = self._open, None
        if item is None:
            return
        if isinstance(item, CallItem):
            if status == "completed":
                yield self._event(f"{item.event}.done", **item.text_done())
            yield self._item_done(item.done(status))
            return
        if isinstance(item, MessageItem) and self._hosted:
            for fields in item.annotate(self._hosted.state.pages):
                yield self._event("response.output_text.annotation.added", **fields)
        yield self._event(f"response.{item.text_event}.done", **item.text_done())
        yield self._event(f"response.{item.part_event}.done", **item.part())
        yield self._item_done(item.done(status))

    def _call_text(self, call_id: str, name: str, text: str) -> Iterable[SseEvent]:
        call = self._open
        if not (isinstance(call, CallItem) and call.call_id == call_id):
            yield from self._close()
            self._open = call = CallItem(len(self._output), call_id, self._toolbox.origin(name))
            yield self._event("response.output_item.added", **call.added())
        yield self._event(f"{call.event}.delta", **call.delta(text))

    def _call(self, call: ToolCall) -> Iterable[SseEvent]:
        kind = self._toolbox.origin(call.name).kind
        if kind == SEARCH or kind in OWN_ITEMS:
            yield from self._close()
            item = self._search(call) if kind == SEARCH else own_item(kind, call)
            yield self._item_added(item | {"status": "in_progress"})
            yield self._item_done(item)
            return
        text = call.arguments["input"] if kind == "custom" else call.arguments_json()
        begun = self._open
        if isinstance(begun, CallItem) and begun.call_id == call.id:
            text = text[len(begun.text) :]
        yield from self._call_text(call.id, call.name, text)
        yield from self._close()

    def _search(self, call: ToolCall) -> dict[str, Any]:
        return {
            "id": new_id("tsc_"),
            "type": "tool_search_call",
            "status": "completed",
            "execution": "client",
            "call_id": call.id,
            "arguments": call.arguments,
        }

    def _list(self, listing: ToolListing) -> Iterable[SseEvent]:
        item = tool_list(listing)
        outcome = "failed" if listing.error else "completed"
        yield self._item_added(item | {"tools": [], "error": None})
        yield from self._tell(item["id"], [Told("mcp_list_tools.in_progress")])
        yield from self._tell(item["id"], [Told(f"mcp_list_tools.{outcome}")])
        yield self._item_done(item)

    def _host(self, event: CallBegun | CallEnded) -> Iterable[SseEvent]:
        assert self._hosted is not None
        match event:
            case CallBegun():
                item = self._running = HostedItem(event.call, self._hosted, self._include)
                yield self._item_added(item.item("in_progress"))
                yield from self._tell(item.id, item.begun())
            case CallEnded(call, result):
                assert self._running is not None
                item = self._running
                self._hosted.remember(item.id, call, result)
                yield from self._tell(item.id, item.ended(result))
                yield self._item_done(item.done(result))

    def _tell(self, item_id: str, told: Iterable[Told]) -> Iterable[SseEvent]:
        place = {"item_id": item_id, "output_index": len(self._output)}
        for each in told:
            yield self._event(f"response.{each.name}", **place, **each.fields)

    def _item_added(self, item: dict[str, Any]) -> SseEvent:
        index = len(self._output)
        return self._event("response.output_item.added", output_index=index, item=item)

    def _item_done(self, item: dict[str, Any]) -> SseEvent:
        self._output.append(item)
        return self._event(
            "response.output_item.done", output_index=len(self._output) - 1, item=item
        )

    def _finish(self, done: Done, status: str) -> SseEvent:
        self._response["usage"] = usage(done, "input", "output")
        self._response["status"] = status
        if status == "incomplete":
            self._response["incomplete_details"] = {"reason": self._incomplete}
        else:
            self._response["completed_at"] = now_s()
        self._keep(self._response)
        return self._event(f"response.{status}", response=self._response)

    def _event(self, kind: str, **fields: Any) -> SseEvent:
        numbered = {"type": kind, "sequence_number": next(self._numbers), **fields}
        return SseEvent(numbered, kind)


def _format(form: dict[str, Any]) -> dict[str, Any]:
    """Return a format with the fields that typed clients require."""
    if form.get("type") == "json_schema":
        return {"description": None, "strict": None} | form
    return form or {"type": "text"}


def _response(body: ResponsesBody) -> dict[str, Any]:
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
