"""Answers of `/v1/messages`: events as content blocks, streamed and as a whole.

Source: Anthropic's API reference (Messages, streaming).
"""

from collections.abc import Iterable
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
from gptoss_local.errors import ContextOverflowError, GptOssError
from gptoss_local.server.openai_parts import new_id
from gptoss_local.server.streaming import SSE, SseEvent

_SIGNATURE = "gptoss"  # SDKs want one; nobody checks it here
_ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    503: "overloaded_error",
}


class MessagesWriter:
    """One answer of `/v1/messages`. A block is open until an event of another kind comes."""

    framing = SSE

    def __init__(self, model: str) -> None:
        self._message: dict[str, Any] = {
            "id": new_id("msg_"),
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(0),
        }
        self._blocks: list[dict[str, Any]] = self._message["content"]
        self._texts: list[str] = []  # pieces of the open block
        self._open_field = ""  # its field that grows; empty while none is open
        self._has_begun = False

    def feed(self, event: ChatEvent) -> Iterable[SseEvent]:
        match event:
            case Started(n_prompt):
                self._message["usage"] = _usage(n_prompt)
                return []
            case Prefilling():
                return []
            case ReasoningDelta(text):
                return [*self._begin(), *self._text("thinking", text)]
            case ContentDelta(text):
                return [*self._begin(), *self._text("text", text)]
            case ToolCall():
                return [*self._begin(), *self._close(), *self._call(event)]
            case Done():
                return [*self._begin(), *self._close(), *self._finish(event)]

    def whole(self) -> dict[str, Any]:
        return self._message

    def failed(self, error: GptOssError) -> Iterable[SseEvent]:
        return [SseEvent(error_body(error), "error")]

    def error_body(self, error: GptOssError) -> dict[str, Any]:
        return error_body(error)

    def _begin(self) -> Iterable[SseEvent]:
        if not self._has_begun:
            self._has_begun = True
            yield _event("message_start", message=self._message | {"content": []})
            yield _event("ping")

    def _text(self, field: str, text: str) -> Iterable[SseEvent]:
        """A piece of text: of the open block, or of a new one."""
        if self._open_field != field:
            yield from self._close()
            self._open_field = field
            self._blocks.append({"type": field, field: ""})
            if field == "thinking":
                self._blocks[-1]["signature"] = ""
            yield self._block_event("content_block_start", content_block=self._blocks[-1] | {})
        self._texts.append(text)
        yield self._delta(f"{field}_delta", **{field: text})

    def _close(self) -> Iterable[SseEvent]:
        """End the open block, if there is one."""
        field, self._open_field = self._open_field, ""
        if not field:
            return
        self._blocks[-1][field] = "".join(self._texts)
        self._texts = []
        if field == "thinking":
            self._blocks[-1]["signature"] = _SIGNATURE
            yield self._delta("signature_delta", signature=_SIGNATURE)
        yield self._block_event("content_block_stop")

    def _call(self, call: ToolCall) -> Iterable[SseEvent]:
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
        self._blocks.append(block)
        yield self._block_event("content_block_start", content_block=block | {"input": {}})
        arguments = msgspec.json.encode(call.arguments).decode()
        yield self._delta("input_json_delta", partial_json=arguments)
        yield self._block_event("content_block_stop")

    def _finish(self, done: Done) -> Iterable[SseEvent]:
        usage = _usage(done.usage.n_prompt, done.usage.n_generated, done.usage.n_cached)
        reasons = {
            "stop_reason": self._stop_reason(done),
            "stop_sequence": done.stop_string or None,
        }
        self._message |= reasons
        self._message["usage"] = usage
        yield _event("message_delta", delta=reasons, usage=usage)
        yield _event("message_stop")

    def _stop_reason(self, done: Done) -> str:
        if done.reason == "length":
            return "max_tokens"
        if done.stop_string:
            return "stop_sequence"
        has_call = any(block["type"] == "tool_use" for block in self._blocks)
        return "tool_use" if has_call else "end_turn"

    def _delta(self, kind: str, **fields: str) -> SseEvent:
        return self._block_event("content_block_delta", delta={"type": kind, **fields})

    def _block_event(self, name: str, **fields: Any) -> SseEvent:
        return _event(name, index=len(self._blocks) - 1, **fields)


def error_body(error: GptOssError) -> dict[str, Any]:
    """Anthropic's error shape, also as an event amid a stream."""
    text = f"{error.message}. {error.hint}" if error.hint else error.message
    if isinstance(error, ContextOverflowError):
        text = f"prompt is too long: {text}"  # what agents look for to shorten a conversation
    return error_shape(text, error.http_status)


def error_shape(text: str, status: int) -> dict[str, Any]:
    kind = _ERRORS.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {
        "type": "error",
        "error": {"type": kind, "message": text},
        "request_id": new_id("req_"),
    }


def _usage(n_prompt: int, n_generated: int = 0, n_cached: int = 0) -> dict[str, int]:
    """Token counts; `input_tokens` are those that were not cached."""
    return {
        "input_tokens": n_prompt - n_cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": n_cached,
        "output_tokens": n_generated,
    }


def _event(name: str, **fields: Any) -> SseEvent:
    return SseEvent({"type": name, **fields}, name)
