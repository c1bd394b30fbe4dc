"""Answer bodies of Ollama's API: events as frames of chat and generate, and errors."""

import functools
import time
from collections.abc import Iterable
from typing import Any

from msgspec.structs import asdict

from gptoss_local.api.answers import (
    AnswerMessage,
    ChatFrame,
    ContextGrowth,
    ErrorFrame,
    GenerateFrame,
    PromptProgress,
    call_of,
    logprobs_of,
    metrics_of,
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
    TokenDelta,
    ToolCall,
    WholeAnswer,
)
from gptoss_local.server.streaming import NDJSON

Event = ReasoningDelta | ContentDelta | ToolCall | Done


def chat_frame(
    model: str, message: AnswerMessage | None = None, *, done: bool = False, **fields: Any
) -> ChatFrame:
    message = message or AnswerMessage("assistant", "")
    return ChatFrame(model=model, created_at=now(), message=message, done=done, **fields)


def generate_frame(
    model: str, response: str = "", *, done: bool = False, **fields: Any
) -> GenerateFrame:
    return GenerateFrame(model=model, created_at=now(), response=response, done=done, **fields)


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
        match event:
            case Started():
                self._started = event
                return self._progress(Prefilling(0, 0))
            case Prefilling():
                return self._progress(event)
            case CallDelta() | TokenDelta():
                return []
            case Growing():
                growth = ContextGrowth(event.n_prompt, event.n_ctx_before, event.n_ctx)
                return [chat_frame(self._model, context_growth=growth)]
        frame = self._frame(event)
        if isinstance(event, Done) and self._with_tokens:
            frame.tokens = event.tokens[self._started.n_prompt :]
        return [frame]

    def keepalive(self) -> Iterable[ChatFrame]:
        return [chat_frame(self._model)]

    def whole(self) -> ChatFrame:
        answer, frame = self._answer, self._frame(self._answer.done)
        calls = list(map(call_of, answer.calls))
        frame.message = AnswerMessage("assistant", answer.content, answer.reasoning, calls)
        frame.logprobs = logprobs_of(answer.logprobs)
        return frame

    def _frame(self, event: Event) -> ChatFrame:
        message = AnswerMessage("assistant", "")
        fields: dict[str, Any] = {"logprobs": logprobs_of(event.logprobs)}
        match event:
            case ContentDelta(text):
                message.content = text
            case ReasoningDelta(text):
                message.thinking = text
            case ToolCall():
                message.tool_calls = [call_of(event)]
            case Done():
                fields |= {"done": True} | asdict(metrics_of(event))
        return chat_frame(self._model, message, **fields)

    def _progress(self, event: Prefilling) -> list[ChatFrame]:
        if not self._with_progress:
            return []
        n_prompt, n_left_out = self._started.n_prompt, self._started.n_left_out
        progress = PromptProgress(n_prompt, event.n_cached, event.n_done, n_left_out)
        return [chat_frame(self._model, prompt_progress=progress)]


class GenerateWriter(_Writer):
    """An answer of `/api/generate`; without tools, a call is text."""

    def __init__(self, model: str, *, with_context: bool) -> None:
        super().__init__(model)
        self._with_context = with_context

    def feed(self, event: ChatEvent) -> Iterable[GenerateFrame]:
        if isinstance(event, Growing | Started | Prefilling | CallDelta | TokenDelta):
            return []
        frame, is_call = self._frame(event), isinstance(event, ToolCall)
        self._answer.add(ContentDelta(frame.response, event.logprobs) if is_call else event)
        return [frame]

    def keepalive(self) -> Iterable[GenerateFrame]:
        return [generate_frame(self._model)]

    def whole(self) -> GenerateFrame:
        frame = self._frame(self._answer.done)
        frame.response, frame.thinking = self._answer.content, self._answer.reasoning
        frame.logprobs = logprobs_of(self._answer.logprobs)
        return frame

    def _frame(self, event: Event) -> GenerateFrame:
        text, fields = "", dict[str, Any]()
        match event:
            case ContentDelta(text):
                pass
            case ReasoningDelta():
                fields["thinking"] = event.text
            case ToolCall():
                text = f"{event.name}({event.arguments_json()})"
            case Done():
                context = event.tokens if self._with_context else []
                fields = {"done": True, "context": context} | asdict(metrics_of(event))
        logprobs = logprobs_of(event.logprobs)
        return generate_frame(self._model, text, logprobs=logprobs, **fields)


def error_frame(error: GptOssError) -> ErrorFrame:
    frame = ErrorFrame(error.message, error.hint, type(error).__name__)
    if isinstance(error, ContextOverflowError) and error.n_prompt is not None:
        frame.prompt_tokens, frame.context_length = error.n_prompt, error.n_ctx
        frame.max_context_length = error.n_ctx_max
    return frame


def now() -> str:
    """Return the current time in UTC as RFC 3339 with nanoseconds."""
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    return f"{_second(seconds)}.{nanoseconds:09d}Z"


@functools.lru_cache(maxsize=1)
def _second(seconds: int) -> str:
    """PERF: every token has a timestamp, and formatting costs ten times the lookup."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
