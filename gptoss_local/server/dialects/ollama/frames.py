"""Answer bodies of Ollama's API: events as frames of chat and generate, and errors."""

import functools
import time
from collections.abc import Iterable
from typing import Any

from gptoss_local.api.answers import (
    AnswerMessage,
    ChatFrame,
    ContextGrowth,
    ErrorFrame,
    GenerateFrame,
    PromptProgress,
)
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
    WholeAnswer,
)
from gptoss_local.server.dialects.logprobs import ollama_logprobs
from gptoss_local.server.streaming import NDJSON
from gptoss_local.talk.answer import figures_of

_Told = ReasoningDelta | ContentDelta | ToolCall | Done


def _metrics(done: Done) -> dict[str, Any]:
    return {name: value for name, value in figures_of(done).items() if name != "tokens"}


def chat_frame(
    model: str, message: AnswerMessage | None = None, *, done: bool, **fields: Any
) -> ChatFrame:
    message = message or AnswerMessage("assistant", "")
    return ChatFrame(model=model, created_at=now(), message=message, done=done, **fields)


def generate_frame(model: str, response: str = "", *, done: bool, **fields: Any) -> GenerateFrame:
    return GenerateFrame(model=model, created_at=now(), response=response, done=done, **fields)


def chat_event_frame(model: str, event: _Told) -> ChatFrame:
    match event:
        case ContentDelta(text, logprobs):
            message = AnswerMessage("assistant", text)
            return chat_frame(model, message, done=False, logprobs=ollama_logprobs(logprobs))
        case ReasoningDelta(text):
            message = AnswerMessage("assistant", "", thinking=text)
        case ToolCall():
            message = AnswerMessage("assistant", "", tool_calls=[_wire_tool_call(event)])
        case Done():
            return chat_frame(model, done=True, **_metrics(event))
    return chat_frame(model, message, done=False)


def generate_event_frame(model: str, event: _Told, *, with_context: bool) -> GenerateFrame:
    """Return the frame of `/api/generate` for one event; without tools, a call is text."""
    match event:
        case ContentDelta(text, logprobs):
            return generate_frame(model, text, done=False, logprobs=ollama_logprobs(logprobs))
        case ReasoningDelta(text):
            return generate_frame(model, thinking=text, done=False)
        case ToolCall():
            return generate_frame(model, f"{event.name}({event.arguments_json()})", done=False)
        case Done():
            context = event.tokens if with_context else []
            return generate_frame(model, done=True, context=context, **_metrics(event))


class _Writer:
    framing = NDJSON

    def __init__(self, model: str) -> None:
        self._model = model
        self._answer = WholeAnswer()

    def failed(self, error: GptOssError) -> Iterable[ErrorFrame]:
        return [error_frame(error)]


class ChatWriter(_Writer):
    """An answer of `/api/chat`; `with_tokens` adds the ids of its tokens to the last frame."""

    def __init__(
        self, model: str, *, with_progress: bool = False, with_tokens: bool = False
    ) -> None:
        super().__init__(model)
        self._with_progress = with_progress
        self._with_tokens = with_tokens
        self._started = Started(0)

    def feed(self, event: ChatEvent) -> Iterable[ChatFrame]:
        self._answer.add(event)
        if isinstance(event, Started):
            self._started = event
            return self._progress(Prefilling(0, 0))
        if isinstance(event, Prefilling):
            return self._progress(event)
        if isinstance(event, CallDelta):
            return []
        if isinstance(event, Growing):
            growth = ContextGrowth(event.n_prompt, event.n_ctx_before, event.n_ctx)
            return [chat_frame(self._model, done=False, context_growth=growth)]
        frame = chat_event_frame(self._model, event)
        if isinstance(event, Done) and self._with_tokens:
            frame.tokens = event.tokens[self._started.n_prompt :]
        return [frame]

    def keepalive(self) -> Iterable[ChatFrame]:
        return [chat_frame(self._model, done=False)]

    def _progress(self, event: Prefilling) -> list[ChatFrame]:
        if not self._with_progress:
            return []
        started = self._started
        progress = PromptProgress(
            started.n_prompt, event.n_cached, event.n_done, started.n_left_out
        )
        return [chat_frame(self._model, done=False, prompt_progress=progress)]

    def whole(self) -> ChatFrame:
        frame = chat_event_frame(self._model, self._answer.done)
        calls = [_wire_tool_call(call) for call in self._answer.calls]
        frame.message = AnswerMessage(
            "assistant", self._answer.content, self._answer.reasoning, calls
        )
        frame.logprobs = ollama_logprobs(self._answer.logprobs)
        return frame


class GenerateWriter(_Writer):
    def __init__(self, model: str, *, with_context: bool) -> None:
        super().__init__(model)
        self._with_context = with_context

    def feed(self, event: ChatEvent) -> Iterable[GenerateFrame]:
        if isinstance(event, Growing | Started | Prefilling | CallDelta):
            return []
        frame = self._frame(event)
        self._answer.add(ContentDelta(frame.response) if isinstance(event, ToolCall) else event)
        return [frame]

    def keepalive(self) -> Iterable[GenerateFrame]:
        return [generate_frame(self._model, done=False)]

    def whole(self) -> GenerateFrame:
        frame = self._frame(self._answer.done)
        frame.response, frame.thinking = self._answer.content, self._answer.reasoning
        frame.logprobs = ollama_logprobs(self._answer.logprobs)
        return frame

    def _frame(self, event: _Told) -> GenerateFrame:
        return generate_event_frame(self._model, event, with_context=self._with_context)


def error_frame(error: GptOssError) -> ErrorFrame:
    """Return the body of an error, also as the last line of a stream."""
    frame = ErrorFrame(error.message, error.hint, type(error).__name__)
    if isinstance(error, ContextOverflowError) and error.n_prompt is not None:
        frame.prompt_tokens, frame.context_length = error.n_prompt, error.n_ctx
        frame.max_context_length = error.n_ctx_max
    return frame


def _wire_tool_call(call: ToolCall) -> dict[str, Any]:
    function = {"index": call.index, "name": call.name, "arguments": call.arguments}
    return {"id": call.id, "function": function}


def now() -> str:
    """Return the current time in UTC as RFC 3339 with nanoseconds."""
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    return f"{_second(seconds)}.{nanoseconds:09d}Z"


@functools.lru_cache(maxsize=1)
def _second(seconds: int) -> str:
    """PERF: every token has a timestamp, and formatting costs ten times the lookup."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
