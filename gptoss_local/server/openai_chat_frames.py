"""Answers of `/v1/chat/completions` and `/v1/completions`: events as chunks, and as a whole.

Source: OpenAI's API reference (chat.completion, chat.completion.chunk, text_completion).
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from gptoss_local.chat import (
    ChatEvent,
    ContentDelta,
    Done,
    Prefilling,
    ReasoningDelta,
    Started,
    TokenLogprob,
    ToolCall,
    WholeAnswer,
)
from gptoss_local.errors import GptOssError
from gptoss_local.server.logprobs import CompletionLogprobs, completion_logprobs, openai_choice
from gptoss_local.server.openai_parts import custom_input, error_body, new_id, now_s, usage
from gptoss_local.server.streaming import SSE, SseEvent

_FINGERPRINT = "fp_ollama"
_END = SseEvent(msgspec.Raw(b"[DONE]"))


class _Writer:
    """What both endpoints share: every body has the same head, and the stream the same end."""

    framing = SSE
    _id_prefix: str
    _chunk_object: str
    _whole_object: str

    def __init__(self, model: str, *, include_usage: bool) -> None:
        self._head: dict[str, Any] = {
            "id": new_id(self._id_prefix),
            "object": self._chunk_object,
            "created": now_s(),
            "model": model,
            "system_fingerprint": _FINGERPRINT,
        }
        self._include_usage = include_usage
        self._answer = WholeAnswer()

    def failed(self, error: GptOssError) -> Iterable[SseEvent]:
        return [SseEvent(error_body(error)), _END]

    def error_body(self, error: GptOssError) -> dict[str, Any]:
        return error_body(error)

    def _body(self, choice: dict[str, Any]) -> dict[str, Any]:
        """The answer as a whole, with its only choice."""
        counts = usage(self._answer.done, "prompt", "completion")
        return self._head | {
            "object": self._whole_object,
            "choices": [choice | {"index": 0}],
            "usage": counts,
        }

    def _chunk(self, finish_reason: str | None = None, **fields: Any) -> SseEvent:
        choice = {"index": 0, "logprobs": None, **fields, "finish_reason": finish_reason}
        return SseEvent(self._head | {"choices": [choice]})

    def _last(self, done: Done) -> list[SseEvent]:
        """What follows the chunk with the finish reason."""
        if not self._include_usage:
            return [_END]
        counts = usage(done, "prompt", "completion")
        return [SseEvent(self._head | {"choices": [], "usage": counts}), _END]


class ChatCompletionWriter(_Writer):
    """An answer of `/v1/chat/completions`. Reasoning goes by both names that clients read."""

    _id_prefix = "chatcmpl-"
    _chunk_object = "chat.completion.chunk"
    _whole_object = "chat.completion"

    def __init__(
        self, model: str, *, include_usage: bool, custom_names: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(model, include_usage=include_usage)
        self._custom_names = custom_names
        self._opening: dict[str, Any] = {"role": "assistant", "content": ""}

    def feed(self, event: ChatEvent) -> Iterable[SseEvent]:
        self._answer.add(event)
        logprobs = None
        match event:
            case Started() | Prefilling():
                return []
            case ReasoningDelta(text):
                delta: dict[str, Any] = {"reasoning": text, "reasoning_content": text}
            case ContentDelta(text, tokens):
                delta, logprobs = {"content": text}, openai_choice(tokens)
            case ToolCall():
                delta = {"tool_calls": [self._tool_call(event)]}
            case Done():
                finish = self._chunk(self._finish_reason(), delta=self._opening)
                return [finish, *self._last(event)]
        delta, self._opening = self._opening | delta, {}
        return [self._chunk(delta=delta, logprobs=logprobs)]

    def whole(self) -> dict[str, Any]:
        answer = self._answer
        message: dict[str, Any] = {"role": "assistant", "content": answer.content}
        if answer.reasoning:
            message["reasoning"] = message["reasoning_content"] = answer.reasoning
        if answer.calls:
            message["tool_calls"] = [self._tool_call(call) for call in answer.calls]
        logprobs = openai_choice(answer.logprobs)
        finish_reason = self._finish_reason()
        return self._body(
            {"message": message, "logprobs": logprobs, "finish_reason": finish_reason}
        )

    def _finish_reason(self) -> str:
        if self._answer.done.reason == "length":
            return "length"
        return "tool_calls" if self._answer.calls else "stop"

    def _tool_call(self, call: ToolCall) -> dict[str, Any]:
        head = {"id": call.id, "index": call.index}
        if call.name in self._custom_names:
            custom = {"name": call.name, "input": custom_input(call.arguments)}
            return head | {"type": "custom", "custom": custom}
        arguments = msgspec.json.encode(call.arguments).decode()
        return head | {
            "type": "function",
            "function": {"name": call.name, "arguments": arguments},
        }


class CompletionWriter(_Writer):
    """An answer of `/v1/completions`: content alone."""

    _id_prefix = "cmpl-"
    _chunk_object = "text_completion"
    _whole_object = "text_completion"

    def feed(self, event: ChatEvent) -> Iterable[SseEvent]:
        self._answer.add(event)
        match event:
            case ContentDelta(text, tokens):
                return [self._chunk(text=text, logprobs=self._logprobs(tokens))]
            case Done():
                return [self._chunk(self._finish_reason(), text=""), *self._last(event)]
        return []

    def whole(self) -> dict[str, Any]:
        text, logprobs = self._answer.content, self._logprobs(self._answer.logprobs)
        finish_reason = self._finish_reason()
        return self._body({"text": text, "logprobs": logprobs, "finish_reason": finish_reason})

    def _logprobs(self, tokens: Sequence[TokenLogprob]) -> CompletionLogprobs | None:
        return completion_logprobs(tokens) if tokens else None

    def _finish_reason(self) -> str:
        return "length" if self._answer.done.reason == "length" else "stop"
