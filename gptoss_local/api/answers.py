"""Ollama's wire of answers: the frames of chat and generate, and errors.

Source: Ollama's api/types.go (ChatResponse, GenerateResponse, Metrics, Logprob).
"""

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from gptoss_local.base.events import (
    ChatEvent,
    ContentDelta,
    Done,
    Growing,
    Prefilling,
    ReasoningDelta,
    Started,
    TokenLogprob,
    ToolCall,
)
from gptoss_local.base.types import FinishReason, Usage

_ENDS: dict[str, FinishReason] = {"length": "length", "repetition": "repetition"}


class AnswerMetrics(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The figures of a last frame, durations in ns; zeros are omitted.

    Ours are `prompt_cached_count`, tokens that needed no prefill, and `joules` by device. As in
    Ollama, `prompt_eval_count` includes cached tokens, and `prompt_eval_duration` does not.
    """

    done_reason: str = ""
    total_duration: int = 0
    load_duration: int = 0
    prompt_eval_count: int = 0
    prompt_cached_count: int = 0
    prompt_eval_duration: int = 0
    eval_count: int = 0
    eval_duration: int = 0
    joules: dict[str, float] = {}


def metrics_of(done: Done) -> AnswerMetrics:
    return AnswerMetrics(
        done_reason=done.end,
        total_duration=done.total_ns,
        load_duration=done.load_ns,
        prompt_eval_count=done.usage.n_prompt,
        prompt_cached_count=done.usage.n_cached,
        prompt_eval_duration=done.usage.prefill_ns,
        eval_count=done.usage.n_generated,
        eval_duration=done.usage.decode_ns,
        joules=done.joules,
    )


class CalledFunction(msgspec.Struct):
    index: int
    name: str
    arguments: dict[str, Any]


class AnswerCall(msgspec.Struct):
    id: str
    function: CalledFunction


def call_of(call: ToolCall) -> AnswerCall:
    return AnswerCall(call.id, CalledFunction(call.index, call.name, call.arguments))


class AnswerMessage(msgspec.Struct, omit_defaults=True):
    role: Literal["assistant"]
    content: str
    thinking: str = ""
    tool_calls: list[AnswerCall] = []


class TopLogprob(msgspec.Struct):
    """A token that could have been; `bytes` are of `token`, before it was made text."""

    token: str
    logprob: float
    bytes: list[int]


class OllamaLogprob(TopLogprob, omit_defaults=True):
    """A token of an answer; alternatives are there only if they were asked for."""

    top_logprobs: list[TopLogprob] = []


def logprobs_of(tokens: Iterable[TokenLogprob]) -> list[OllamaLogprob]:
    return [OllamaLogprob(spell(t.data), t.logprob, list(t.data), top_of(t)) for t in tokens]


def top_of(token: TokenLogprob) -> list[TopLogprob]:
    return [TopLogprob(spell(data), value, list(data)) for data, value in token.top]


def spell(data: bytes) -> str:
    r"""Return a token's text; a part of a character as OpenAI shows it, e.g. `\xf0\x9f`."""
    return data.decode("utf-8", "backslashreplace")


class PromptProgress(msgspec.Struct, omit_defaults=True):
    """The progress of reading a prompt, as llama-server's `return_progress` names it.

    `left_out` is ours: messages that the prompt had no room for.
    """

    total: int
    cache: int
    processed: int
    left_out: int = 0


class ContextGrowth(msgspec.Struct, rename={"before": "from", "after": "to"}):
    """The model is loaded again for a long prompt: tokens of it, and of context until now and then.

    Like `prompt_progress`, only for requests with `return_progress`.
    """

    prompt: int
    before: int
    after: int


class ChatFrame(AnswerMetrics, kw_only=True):
    model: str
    created_at: str
    message: AnswerMessage
    done: bool
    logprobs: list[OllamaLogprob] = []
    prompt_progress: PromptProgress | None = None
    context_growth: ContextGrowth | None = None
    tokens: list[int] = []

    def events(self) -> Iterator[ChatEvent]:
        """Yield its events; progress of the prompt begins with Started."""
        if growth := self.context_growth:
            yield Growing(growth.prompt, growth.after, growth.before)
        if progress := self.prompt_progress:
            yield Started(progress.total, progress.left_out)
            yield Prefilling(progress.processed, progress.cache)
        if self.message.thinking:
            yield ReasoningDelta(self.message.thinking)
        if self.message.content:
            yield ContentDelta(self.message.content)
        for call in self.message.tool_calls:
            function = call.function
            yield ToolCall(function.index, call.id, function.name, function.arguments)
        if self.done:
            usage = Usage(
                n_prompt=self.prompt_eval_count,
                n_cached=self.prompt_cached_count,
                prefill_ns=self.prompt_eval_duration,
                n_generated=self.eval_count,
                decode_ns=self.eval_duration,
            )
            yield Done(
                _ENDS.get(self.done_reason, "stop"),
                usage,
                self.tokens,
                joules=self.joules,
                load_ns=self.load_duration,
                total_ns=self.total_duration,
            )


class GenerateFrame(AnswerMetrics, kw_only=True):
    model: str
    created_at: str
    response: str
    thinking: str = ""
    done: bool
    context: list[int] = []
    logprobs: list[OllamaLogprob] = []


class ErrorFrame(msgspec.Struct, omit_defaults=True):
    """Ollama's error body, with our hint and the class name in `gptoss_local.base.errors`.

    The counts are of a prompt that does not fit: its tokens, and what loaded and any context holds.
    """

    error: str
    hint: str = ""
    code: str = ""
    prompt_tokens: int = 0
    context_length: int = 0
    max_context_length: int = 0
