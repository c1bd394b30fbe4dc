"""Answers of `/v1/responses`: events as numbered stream events, and as a response object.

Source: OpenAI's API reference (Responses, streaming events). The order of events is what its SDKs
need to put a response together: a part is added before its first delta, every item ends with
`output_item.done`, and its index is never used again.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from gptoss_local.chat import (
    ChatEvent,
    ContentDelta,
    Done,
    Prefilling,
    ReasoningDelta,
    Started,
    ToolCall,
)
from gptoss_local.errors import GptOssError
from gptoss_local.server.logprobs import OpenAILogprob, openai_logprobs
from gptoss_local.server.openai_parts import custom_input, error_body, new_id, now_s, usage
from gptoss_local.server.openai_responses_request import SEAL, ResponsesBody
from gptoss_local.server.streaming import SSE, SseEvent


class ResponsesWriter:
    """One answer of `/v1/responses`.

    Args:
        body: The request.
        keep: Called with the response object when it is complete, before the client sees that.
    """

    framing = SSE

    def __init__(self, body: ResponsesBody, keep: Callable[[dict[str, Any]], None]) -> None:
        self._response = _response(body)
        self._keep = keep
        self._custom_names = body.custom_names
        self._output: list[dict[str, Any]] = self._response["output"]
        self._numbers = itertools.count()
        self._open: _TextItem | None = None
        self._has_begun = False

    def feed(self, event: ChatEvent) -> Iterable[SseEvent]:
        match event:
            case Started() | Prefilling():
                return []
            case ReasoningDelta(text):
                return [*self._begin(), *self._text(_ReasoningItem, text)]
            case ContentDelta(text, tokens):
                return [*self._begin(), *self._text(_MessageItem, text, openai_logprobs(tokens))]
            case ToolCall():
                return [*self._begin(), *self._close(), *self._call(event)]
            case Done(reason):
                status = "incomplete" if reason == "length" else "completed"
                return [*self._begin(), *self._close(status), self._finish(event, status)]

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

    def _text(
        self, kind: "type[_TextItem]", text: str, logprobs: Sequence[OpenAILogprob] = ()
    ) -> Iterable[SseEvent]:
        """A piece of text: of the open item, or of a new one."""
        if not isinstance(self._open, kind):
            yield from self._close()
            self._open = kind(len(self._output))
            yield self._event("response.output_item.added", **self._open.added())
            yield self._event(f"response.{kind.part_event}.added", **self._open.part())
        yield self._event(f"response.{kind.text_event}.delta", **self._open.delta(text, logprobs))

    def _close(self, status: str = "completed") -> Iterable[SseEvent]:
        """End the open item, if there is one; an incomplete one is cut off."""
        item = self._open
        if item is None:
            return
        self._open = None
        yield self._event(f"response.{item.text_event}.done", **item.text_done())
        yield self._event(f"response.{item.part_event}.done", **item.part())
        yield self._item_done(item.done(status))

    def _call(self, call: ToolCall) -> Iterable[SseEvent]:
        if call.name in self._custom_names:
            text, field, kind = custom_input(call.arguments), "input", "custom_tool_call"
        else:
            text = msgspec.json.encode(call.arguments).decode()
            field, kind = "arguments", "function_call"
        item = {
            "id": new_id("ctc_" if field == "input" else "fc_"),
            "type": kind,
            "status": "in_progress",
            "call_id": call.id,
            "name": call.name,
            field: "",
        }
        at = {"item_id": item["id"], "output_index": len(self._output)}
        event = f"response.{kind}_{field}"
        yield self._event("response.output_item.added", output_index=at["output_index"], item=item)
        yield self._event(f"{event}.delta", **at, delta=text)
        yield self._event(f"{event}.done", **at, name=call.name, **{field: text})
        yield self._item_done(item | {"status": "completed", field: text})

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


class _TextItem(ABC):
    """An output item that grows: its state, and the fields of the events about it."""

    id_prefix: str
    part_event: str
    text_event: str
    part_index: str

    def __init__(self, output_index: int) -> None:
        self._id = new_id(self.id_prefix)
        self._output_index = output_index
        self._texts: list[str] = []
        self._logprobs: list[OpenAILogprob] = []

    def added(self) -> dict[str, Any]:
        return {"output_index": self._output_index, "item": self._item("in_progress", [])}

    def part(self) -> dict[str, Any]:
        return {**self._place(), "part": self._part()}

    def delta(self, text: str, logprobs: Sequence[OpenAILogprob]) -> dict[str, Any]:
        self._texts.append(text)
        self._logprobs += logprobs
        return {**self._place(), "delta": text, **self._extra(logprobs)}

    def text_done(self) -> dict[str, Any]:
        return {**self._place(), "text": "".join(self._texts), **self._extra(self._logprobs)}

    def done(self, status: str) -> dict[str, Any]:
        """The item as a whole."""
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
            "content": [],  # clients iterate over it
            "encrypted_content": SEAL + text if text else None,
        }


class _MessageItem(_TextItem):
    id_prefix = "msg_"
    part_event = "content_part"
    text_event = "output_text"
    part_index = "content_index"

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
            "content": parts,
        }


def _response(body: ResponsesBody) -> dict[str, Any]:
    """The response object before anything is known of the answer."""
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
        "text": {"format": body.text.format or {"type": "text"}, "verbosity": body.text.verbosity},
        "tool_choice": body.tool_choice,
        "tools": body.tools,
        "top_logprobs": body.top_logprobs,
        "top_p": body.top_p,
        "presence_penalty": body.presence_penalty,
        "frequency_penalty": body.frequency_penalty,
        "truncation": body.truncation,
        "usage": None,
        "metadata": body.metadata,
    }
