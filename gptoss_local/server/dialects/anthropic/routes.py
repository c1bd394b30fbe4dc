"""Anthropic's `/v1/messages`. Source: its API reference; docs/api.md lists differences."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

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
    TokenDelta,
    ToolCall,
)
from gptoss_local.models.store import ModelEntry
from gptoss_local.server.dialect import Endpoints
from gptoss_local.server.dialects.anthropic.request import MessagesBody
from gptoss_local.server.dialects.history import SEAL
from gptoss_local.server.dialects.named_model import NamedModel
from gptoss_local.server.dialects.openai.parts import new_id
from gptoss_local.server.request_id import request_id_of
from gptoss_local.server.streaming import SSE, AnswerResponse, SseEvent, json_response


class AnthropicErrorDetails(msgspec.Struct):
    type: str
    message: str


class AnthropicError(msgspec.Struct):
    type: Literal["error"]
    error: AnthropicErrorDetails
    request_id: str


class AnthropicAnswer(msgspec.Struct):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"] | None
    stop_sequence: str | None
    usage: dict[str, Any]
    stop_details: dict[str, str] | msgspec.UnsetType = msgspec.UNSET


class TokenCount(msgspec.Struct):
    input_tokens: int


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
        self._open = ""  # its key, see `_add`
        self._has_begun = False
        self._n_prompt = 0

    def feed(self, event: ChatEvent) -> Iterable[SseEvent]:
        match event:
            case Started(n_prompt):
                self._n_prompt = n_prompt
                self._message["usage"] = _usage(n_prompt)
                return []
            case Prefilling(n_cached=n_cached):
                self._message["usage"] = _usage(self._n_prompt, 0, n_cached)
                return []
            case Growing() | TokenDelta():
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
                if self._open and self._blocks[-1]["type"] == "tool_use":  # the limit cut it
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
        block = {"type": field, field: ""} | ({"signature": ""} if field == "thinking" else {})
        yield from self._add(field, block, text)
        if not (field == "thinking" and self._hides_thinking):
            yield self._delta(f"{field}_delta", **{field: text})

    def _call_text(self, call_id: str, name: str, text: str) -> Iterable[SseEvent]:
        yield from self._add(
            call_id, {"type": "tool_use", "id": call_id, "name": name, "input": {}}, text
        )
        yield self._delta("input_json_delta", partial_json=text)

    def _add(self, key: str, block: dict[str, Any], text: str) -> Iterable[SseEvent]:
        """Add a text to the open block, or begin another; the `key` is a call's id or a type."""
        if self._open != key:
            yield from self._close()
            self._open = key
            self._blocks.append(block)
            yield self._block_event("content_block_start", content_block=block | {})
        self._texts.append(text)

    def _close(self) -> Iterable[SseEvent]:
        if not self._open:
            return
        block, text = self._blocks[-1], "".join(self._texts)
        self._open, self._texts = "", []
        if block["type"] == "text":
            block["text"] = text
        elif block["type"] == "thinking":
            block["thinking"] = "" if self._hides_thinking else text
            block["signature"] = SEAL + text if self._hides_thinking else _SIGNATURE
            yield self._delta("signature_delta", signature=block["signature"])
        yield self._block_event("content_block_stop")

    def _call(self, call: ToolCall) -> Iterable[SseEvent]:
        n_sent = sum(map(len, self._texts)) if self._open == call.id else 0
        yield from self._call_text(call.id, call.name, call.arguments_json()[n_sent:])
        self._blocks[-1]["input"] = call.arguments
        yield from self._close()

    def _finish(self, done: Done) -> Iterable[SseEvent]:
        counts = done.usage
        usage = _usage(counts.n_prompt, counts.n_generated, counts.n_cached, done.n_reasoning)
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


def _usage(
    n_prompt: int, n_generated: int = 0, n_cached: int = 0, n_thinking: int = 0
) -> dict[str, Any]:
    """Return the token counts; `input_tokens` are those that were not cached."""
    return {
        "input_tokens": n_prompt - n_cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": n_cached,
        "output_tokens": n_generated,
        "output_tokens_details": {"thinking_tokens": n_thinking},
    }


def _event(name: str, **fields: Any) -> SseEvent:
    return SseEvent({"type": name, **fields}, name)


endpoints = Endpoints()
_NAMES = {"stop": "stop_sequences"}


@endpoints.metered(
    "/v1/messages", "Anthropic's Messages", AnthropicAnswer, MessagesBody, stream=SSE
)
async def messages(request: Request) -> Response:
    model = NamedModel(request, _NAMES)
    body = await model.read(MessagesBody)
    model.warn_of(tool.kind for tool in body.tools)
    asked = await model.asked(body.to_request)
    body.check_answerable()
    events = model.manager.answer(model.entry, asked)
    hides_thinking = body.thinking.display == "omitted"
    writer = MessagesWriter(body.model, request_id_of(request), hides_thinking=hides_thinking)
    return AnswerResponse(events, writer, stream=body.stream)


@endpoints.metered("/v1/messages/count_tokens", "Length of a prompt", TokenCount, MessagesBody)
async def count_tokens(request: Request) -> Response:
    model = NamedModel(request, _NAMES)
    body = await model.read(MessagesBody)
    asked = await model.asked(body.to_request)
    return json_response(TokenCount(await model.n_tokens(asked)))
