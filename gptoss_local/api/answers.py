"""Ollama's wire of answers: the frames of chat and generate, and errors.

Source: Ollama's api/types.go (ChatResponse, GenerateResponse, Metrics, Logprob).
"""

from typing import Any, Literal

import msgspec


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


class AnswerMessage(msgspec.Struct, omit_defaults=True):
    role: Literal["assistant"]
    content: str
    thinking: str = ""
    tool_calls: list[dict[str, Any]] = []


class TopLogprob(msgspec.Struct):
    """A token that could have been; `bytes` are of `token`, before it was made text."""

    token: str
    logprob: float
    bytes: list[int]


class OllamaLogprob(TopLogprob, omit_defaults=True):
    """A token of an answer; alternatives are there only if they were asked for."""

    top_logprobs: list[TopLogprob] = []


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
