"""Answers of `/v1/responses`: events as numbered stream events, and as a response object.

Source: OpenAI's API reference (Responses, streaming events). The order of events is what its SDKs
need to put a response together: a part is added before its first delta, every item ends with
`output_item.done`, and its index is never used again.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gptoss_local.chat import (
    CallDelta,
    ChatEvent,
    ContentDelta,
    Done,
    Growing,
    Prefilling,
    ReasoningDelta,
    Started,
    ToolCall,
)
from gptoss_local.errors import GptOssError
from gptoss_local.server.dialects.history import SEAL
from gptoss_local.server.dialects.logprobs import OpenAILogprob, openai_logprobs
from gptoss_local.server.dialects.openai.parts import error_body, new_id, now_s, usage
from gptoss_local.server.dialects.openai.responses_request import ResponsesBody
from gptoss_local.server.dialects.openai.responses_tools import SEARCH, Origin, Toolbox, echo
from gptoss_local.server.dialects.tool_choice import custom_input
from gptoss_local.server.streaming import SSE, SseEvent

_TextDelta = ReasoningDelta | ContentDelta


class ResponsesWriter:
    """One answer of `/v1/responses`.

    Args:
        body: The request.
        toolbox: Its tools.
        keep: Called with the response object when it is complete, before the client sees that.
    """

    framing = SSE

    def __init__(
        self, body: ResponsesBody, toolbox: Toolbox, keep: Callable[[dict[str, Any]], None]
    ) -> None:
        self._response = _response(body)
        self._keep = keep
        self._toolbox = toolbox
        self._output: list[dict[str, Any]] = self._response["output"]
        self._numbers = itertools.count()
        self._open: _TextItem | _CallItem | None = None
        self._has_begun = False

    def feed(self, event: ChatEvent) -> Iterable[SseEvent]:
        match event:
            case Growing() | Started() | Prefilling():
                return []
            case ReasoningDelta():
                return [*self._begin(), *self._text(_ReasoningItem, event)]
            case ContentDelta():
                return [*self._begin(), *self._text(_MessageItem, event)]
            case CallDelta(name=name) if self._toolbox.origin(name).kind != "function":
                return []  # whole, as its input is one of the arguments
            case CallDelta(_, call_id, name, text):
                return [*self._begin(), *self._call_text(call_id, name, text)]
            case ToolCall():
                return [*self._begin(), *self._call(event)]
            case Done(reason):
                status = "incomplete" if reason == "length" else "completed"
                return [*self._begin(), *self._close(status), self._finish(event, status)]

    def keepalive(self) -> Iterable[SseEvent]:
        return [*self._begin(), self._event("keepalive")]

    def whole(self) -> dict[str, Any]:
        return self._response

    def failed(self, error: GptOssError) -> Iterable[SseEvent]:
        self._response["status"] = "failed"
        told = error_body(error)["error"]
        code = told["code"] or "server_error"
        self._response["error"] = {"code": code, "message": told["message"]}
        return [*self._begin(), self._event("response.failed", response=self._response)]

    def error_body(self, error: GptOssError) -> dict[str, Any]:
        return error_body(error)

    def _begin(self) -> Iterable[SseEvent]:
        if not self._has_begun:
            self._has_begun = True
            empty = self._response | {"output": [], "status": "in_progress", "error": None}
            yield self._event("response.created", response=empty)
            yield self._event("response.in_progress", response=empty)

    def _text(self, kind: "type[_TextItem]", delta: _TextDelta) -> Iterable[SseEvent]:
        """Return a piece of text: of the open item, or of a new one."""
        if delta.is_next or not isinstance(self._open, kind):
            yield from self._close()
            self._open = kind(len(self._output), delta)
            yield self._event("response.output_item.added", **self._open.added())
            yield self._event(f"response.{kind.part_event}.added", **self._open.part())
        yield self._event(f"response.{kind.text_event}.delta", **self._open.delta(delta))

    def _close(self, status: str = "completed") -> Iterable[SseEvent]:
        """End the open item, if there is one; an incomplete one is cut off."""
        item, self._open = self._open, None
        if item is None:
            return
        if isinstance(item, _CallItem):
            if status == "completed":
                yield self._event(f"{item.event}.done", **item.text_done())
            yield self._item_done(item.done(status))
            return
        yield self._event(f"response.{item.text_event}.done", **item.text_done())
        yield self._event(f"response.{item.part_event}.done", **item.part())
        yield self._item_done(item.done(status))

    def _call_text(self, call_id: str, name: str, text: str) -> Iterable[SseEvent]:
        """Return a piece of a call's arguments: of the open call, or of a new one."""
        call = self._open
        if not (isinstance(call, _CallItem) and call.call_id == call_id):
            yield from self._close()
            self._open = call = _CallItem(len(self._output), call_id, self._toolbox.origin(name))
            yield self._event("response.output_item.added", **call.added())
        yield self._event(f"{call.event}.delta", **call.delta(text))

    def _call(self, call: ToolCall) -> Iterable[SseEvent]:
        """Return the whole call, or what is left of it."""
        kind = self._toolbox.origin(call.name).kind
        if kind == SEARCH:
            yield from self._close()
            yield from self._search(call)
            return
        text = custom_input(call.arguments) if kind == "custom" else call.arguments_json()
        begun = self._open
        if isinstance(begun, _CallItem) and begun.call_id == call.id:
            text = text[len(begun.text) :]
        yield from self._call_text(call.id, call.name, text)
        yield from self._close()

    def _search(self, call: ToolCall) -> Iterable[SseEvent]:
        """Return a call of the client's search for tools, whose arguments are an object."""
        item = {
            "id": new_id("tsc_"),
            "type": "tool_search_call",
            "status": "in_progress",
            "execution": "client",
            "call_id": call.id,
            "arguments": {},
        }
        yield self._event("response.output_item.added", output_index=len(self._output), item=item)
        yield self._item_done(item | {"status": "completed", "arguments": call.arguments})

    def _item_done(self, item: dict[str, Any]) -> SseEvent:
        self._output.append(item)
        return self._event(
            "response.output_item.done", output_index=len(self._output) - 1, item=item
        )

    def _finish(self, done: Done, status: str) -> SseEvent:
        self._response["usage"] = usage(done, "input", "output")
        self._response["status"] = status
        if status == "incomplete":
            self._response["incomplete_details"] = {"reason": "max_output_tokens"}
        else:
            self._response["completed_at"] = now_s()
        self._keep(self._response)
        return self._event(f"response.{status}", response=self._response)

    def _event(self, kind: str, **fields: Any) -> SseEvent:
        numbered = {"type": kind, "sequence_number": next(self._numbers), **fields}
        return SseEvent(numbered, kind)


class _CallItem:
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
        """The arguments so far."""
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
        """Return the item as a whole."""
        return self._item | {"status": status, self._field: self.text}


class _TextItem(ABC):
    """An output item that grows: its state, and the fields of the events about it."""

    id_prefix: str
    part_event: str
    text_event: str
    part_index: str

    def __init__(self, output_index: int, first: _TextDelta) -> None:
        self._id = new_id(self.id_prefix)
        self._output_index = output_index
        self._texts: list[str] = []
        self._logprobs: list[OpenAILogprob] = []

    def added(self) -> dict[str, Any]:
        return {"output_index": self._output_index, "item": self._item("in_progress", [])}

    def part(self) -> dict[str, Any]:
        return {**self._place(), "part": self._part()}

    def delta(self, delta: _TextDelta) -> dict[str, Any]:
        logprobs = openai_logprobs(delta.logprobs) if isinstance(delta, ContentDelta) else []
        self._texts.append(delta.own_text)
        self._logprobs += logprobs
        return {**self._place(), "delta": delta.own_text, **self._extra(logprobs)}

    def text_done(self) -> dict[str, Any]:
        return {**self._place(), "text": "".join(self._texts), **self._extra(self._logprobs)}

    def done(self, status: str) -> dict[str, Any]:
        """Return the item as a whole."""
        return self._item(status, [self._part()])

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._id, "output_index": self._output_index, self.part_index: 0}

    def _extra(self, logprobs: Sequence[OpenAILogprob]) -> dict[str, Any]:
        return {}

    @abstractmethod
    def _part(self) -> dict[str, Any]: ...

    @abstractmethod
    def _item(self, status: str, parts: list[dict[str, Any]]) -> dict[str, Any]: ...


class _ReasoningItem(_TextItem):
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


class _MessageItem(_TextItem):
    id_prefix = "msg_"
    part_event = "content_part"
    text_event = "output_text"
    part_index = "content_index"

    def __init__(self, output_index: int, first: _TextDelta) -> None:
        super().__init__(output_index, first)
        is_preamble = isinstance(first, ContentDelta) and first.is_preamble
        self._phase = "commentary" if is_preamble else "final_answer"

    def _extra(self, logprobs: Sequence[OpenAILogprob]) -> dict[str, Any]:
        return {"logprobs": list(logprobs)}

    def _part(self) -> dict[str, Any]:
        text = "".join(self._texts)
        extra = self._extra(self._logprobs)
        return {"type": "output_text", "text": text, "annotations": [], **extra}

    def _item(self, status: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "phase": self._phase,
            "content": parts,
        }


def _format(form: dict[str, Any]) -> dict[str, Any]:
    """Return a format with the fields that typed clients require."""
    if form.get("type") == "json_schema":
        return {"description": None, "strict": None} | form
    return form or {"type": "text"}


def _response(body: ResponsesBody) -> dict[str, Any]:
    """Return the response object before anything is known of the answer."""
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
        "max_tool_calls": None,
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
        "text": {"format": _format(body.text.format), "verbosity": body.text.verbosity},
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
