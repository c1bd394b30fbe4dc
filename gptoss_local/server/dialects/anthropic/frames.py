"""Answers of `/v1/messages`. Source: Anthropic's API reference (Messages, streaming)."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from gptoss_local.base.errors import ContextOverflowError, GptOssError
from gptoss_local.harmony import (
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
from gptoss_local.models.store import ModelEntry
from gptoss_local.server.dialects.anthropic.answers import AnthropicAnswer
from gptoss_local.server.dialects.history import SEAL
from gptoss_local.server.dialects.openai.parts import new_id
from gptoss_local.server.streaming import SSE, SseEvent

_SIGNATURE = "gptoss"  # SDKs want one; it is not checked here
_ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}

_DETAILS: dict[str, dict[str, Any]] = {  # on which SDKs send the whole conversation instead
    "ThreadUnsupportedError": {
        "error_code": "thread_unsupported_request",
        "unsupported": ["thread"],
    },
    "ThreadNotFoundError": {"error_code": "thread_not_found"},
}


class MessagesWriter:
    """One answer of `/v1/messages`. A block is open until an event of another kind comes.

    `hides_thinking` puts thinking into its block's signature, which no client shows.
    """

    framing = SSE

    def __init__(self, model: str, request_id: str = "", *, hides_thinking: bool = False) -> None:
        self._request_id = request_id
        self._hides_thinking = hides_thinking
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
        self._open_call = ""  # id of the call that is being written
        self._has_begun = False

    def feed(self, event: ChatEvent) -> Iterable[SseEvent]:
        match event:
            case Started(n_prompt):
                self._message["usage"] = _usage(n_prompt)
                return []
            case Growing() | Prefilling():
                return []
            case ReasoningDelta():
                closed = self._close() if event.is_next else ()
                return [*self._begin(), *closed, *self._text("thinking", event.own_text)]
            case ContentDelta(text):  # with its gap, as programs join the texts of blocks
                return [*self._begin(), *self._text("text", text)]
            case CallDelta(_, call_id, name, text):
                return [*self._begin(), *self._call_text(call_id, name, text)]
            case ToolCall():
                return [*self._begin(), *self._call(event)]
            case Done():
                if self._open_call:  # which the limit cut
                    begun = CallDelta(0, "", "", "".join(self._texts))
                    self._blocks[-1]["input"] = begun.arguments
                return [*self._begin(), *self._close(), *self._finish(event)]

    def keepalive(self) -> Iterable[SseEvent]:
        return [_event("ping")]

    def whole(self) -> AnthropicAnswer:
        return AnthropicAnswer(**self._message)

    def failed(self, error: GptOssError) -> Iterable[SseEvent]:
        return [SseEvent(error_body(error, self._request_id), "error")]

    def _begin(self) -> Iterable[SseEvent]:
        if not self._has_begun:
            self._has_begun = True
            yield _event("message_start", message=self._message | {"content": []})
            yield _event("ping")

    def _text(self, field: str, text: str) -> Iterable[SseEvent]:
        if self._open_field != field:
            yield from self._close()
            self._open_field = field
            self._blocks.append({"type": field, field: ""})
            if field == "thinking":
                self._blocks[-1]["signature"] = ""
            yield self._block_event("content_block_start", content_block=self._blocks[-1] | {})
        self._texts.append(text)
        if not (field == "thinking" and self._hides_thinking):
            yield self._delta(f"{field}_delta", **{field: text})

    def _close(self) -> Iterable[SseEvent]:
        field, self._open_field = self._open_field, ""
        if not (field or self._open_call):
            return
        text, self._texts, self._open_call = "".join(self._texts), [], ""
        is_hidden = field == "thinking" and self._hides_thinking
        if field:
            self._blocks[-1][field] = "" if is_hidden else text
        if field == "thinking":
            signature = SEAL + text if is_hidden else _SIGNATURE
            self._blocks[-1]["signature"] = signature
            yield self._delta("signature_delta", signature=signature)
        yield self._block_event("content_block_stop")

    def _call_text(self, call_id: str, name: str, text: str) -> Iterable[SseEvent]:
        if self._open_call != call_id:
            yield from self._close()
            self._open_call = call_id
            self._blocks.append({"type": "tool_use", "id": call_id, "name": name, "input": {}})
            yield self._block_event("content_block_start", content_block=self._blocks[-1] | {})
        self._texts.append(text)
        yield self._delta("input_json_delta", partial_json=text)

    def _call(self, call: ToolCall) -> Iterable[SseEvent]:
        n_sent = sum(map(len, self._texts)) if self._open_call == call.id else 0
        yield from self._call_text(call.id, call.name, call.arguments_json()[n_sent:])
        self._blocks[-1]["input"] = call.arguments
        yield from self._close()

    def _finish(self, done: Done) -> Iterable[SseEvent]:
        usage = _usage(done.usage.n_prompt, done.usage.n_generated, done.usage.n_cached)
        reasons: dict[str, Any] = {
            "stop_reason": self._stop_reason(done),
            "stop_sequence": done.stop_string or None,
        }
        if done.end == "repetition":
            reasons["stop_details"] = {"type": "repetition"}
        self._message |= reasons
        self._message["usage"] = usage
        yield _event("message_delta", delta=reasons, usage=usage)
        yield _event("message_stop")

    def _stop_reason(self, done: Done) -> str:
        if done.end != "stop":
            return "max_tokens"
        if done.stop_string:
            return "stop_sequence"
        has_call = any(block["type"] == "tool_use" for block in self._blocks)
        return "tool_use" if has_call else "end_turn"

    def _delta(self, kind: str, **fields: str) -> SseEvent:
        return self._block_event("content_block_delta", delta={"type": kind, **fields})

    def _block_event(self, name: str, **fields: Any) -> SseEvent:
        return _event(name, index=len(self._blocks) - 1, **fields)


def error_body(error: GptOssError, request_id: str) -> dict[str, Any]:
    """Return an error in Anthropic's shape, which is also an event within a stream."""
    text = f"{error.message}. {error.hint}" if error.hint else error.message
    if isinstance(error, ContextOverflowError):
        text = f"prompt is too long: {text}"  # agents look for it to shorten a conversation
    default = "invalid_request_error" if error.http_status < 500 else "api_error"
    told: dict[str, Any] = {"type": _ERRORS.get(error.http_status, default), "message": text}
    if details := _DETAILS.get(type(error).__name__):
        told["details"] = details
    return {"type": "error", "error": told, "request_id": request_id}


def model_info(entry: ModelEntry) -> dict[str, Any]:
    made = datetime.fromtimestamp(entry.modified_ns // 10**9, UTC)
    return {
        "type": "model",
        "id": entry.name,
        "display_name": entry.name,
        "created_at": made.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
    }


def model_list(entries: Iterable[ModelEntry]) -> dict[str, Any]:
    data = list(map(model_info, entries))
    ids = [model["id"] for model in data] or [None]
    return {"data": data, "first_id": ids[0], "last_id": ids[-1], "has_more": False}


def _usage(n_prompt: int, n_generated: int = 0, n_cached: int = 0) -> dict[str, int]:
    """Return the token counts; `input_tokens` are those that were not cached."""
    return {
        "input_tokens": n_prompt - n_cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": n_cached,
        "output_tokens": n_generated,
    }


def _event(name: str, **fields: Any) -> SseEvent:
    return SseEvent({"type": name, **fields}, name)
