"""The common parts of OpenAI's dialects: effort, formats, sampling, usage, errors.

Source: OpenAI's API reference (Chat Completions, Responses), and Ollama's openai/openai.go.
"""

import secrets
import time
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec

from gptoss_local.api.answers import TopLogprob, spell, top_of
from gptoss_local.base.errors import GptOssError, UsageError
from gptoss_local.base.formats.o200k import MAX_VOCAB_SIZE
from gptoss_local.base.types import Effort, Penalties
from gptoss_local.harmony import Done, TokenLogprob
from gptoss_local.server.dialects.options import (
    MAX_INT,
    MAX_TOP_LOGPROBS,
    Penalty,
    RepeatPenalty,
    Sampling,
    ThinkBudget,
    first_limit,
)
from gptoss_local.server.streaming import SseEvent

LogitBias = Annotated[
    dict[str, Annotated[float, msgspec.Meta(ge=-100, le=100)]],
    msgspec.Meta(max_length=300, extra_json_schema={"propertyNames": {"pattern": "^[0-9]+$"}}),
]

_EFFORTS: dict[str, Effort] = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "ultra": "high",
    "max": "high",
}


class OpenAIErrorDetails(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(msgspec.Struct):
    error: OpenAIErrorDetails


class InputTokens(msgspec.Struct, kw_only=True):
    object: Literal["response.input_tokens"] = "response.input_tokens"
    input_tokens: int


class Reasoning(msgspec.Struct):
    effort: str = ""
    enabled: bool = True
    summary: str = ""
    max_tokens: ThinkBudget | None = None  # as OpenRouter has it


class SamplingFields(Sampling, kw_only=True):
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    repetition_penalty: RepeatPenalty = 1.0  # vLLM's name
    logit_bias: LogitBias = msgspec.field(default_factory=dict)
    thinking_budget_tokens: ThinkBudget | None = None  # llama.cpp's name
    reasoning_budget: ThinkBudget | None = None  # its older one
    reasoning: Reasoning = msgspec.field(default_factory=Reasoning)
    think: bool | str | None = None  # Ollama's name
    enable_thinking: bool = True  # vLLM's

    def request_fields(self, effort: str, *limits: int | None) -> dict[str, Any]:
        """Return fields of a ChatRequest; the first limit of tokens that is set counts."""
        if self.think is False or not (self.enable_thinking and self.reasoning.enabled):
            effort = "none"
        elif isinstance(self.think, str):
            effort = effort or self.think
        effort, reasoning = parse_effort(effort)
        repeat, presence = self.repetition_penalty, self.presence_penalty
        frequency = self.frequency_penalty
        penalties = Penalties(repeat=repeat, presence=presence, frequency=frequency)
        sampling = self.sampling(
            min_p=self.min_p,
            seed=None if self.seed is None else self.seed & MAX_INT,
            penalties=penalties if penalties != Penalties() else None,
            logit_bias=_read_biases(self.logit_bias),
        )
        budgets = (self.thinking_budget_tokens, self.reasoning_budget, self.think_budget)
        return {
            "effort": effort,
            "reasoning": reasoning,
            "sampling": sampling,
            "think_budget": first_limit(self.reasoning.max_tokens, *budgets),
            "ends_repetition": self.repeat_guard,
            "max_tokens": first_limit(*limits),
        }


def _read_biases(sent: dict[str, float]) -> tuple[tuple[int, float], ...]:
    for name in sent:
        if not (name.isascii() and name.isdecimal() and int(name[:9]) < MAX_VOCAB_SIZE):
            raise UsageError(f"logit_bias: {name[:40]!r} is no token id")
    return tuple(sorted((int(name), bias) for name, bias in sent.items() if bias))


def parse_effort(value: str) -> tuple[Effort, bool]:
    """Return the effort and whether to reason at all; empty means the default."""
    effort = value.lower()
    if effort == "none":
        return "low", False
    if effort and effort not in _EFFORTS:
        allowed = ", ".join(f'"{name}"' for name in ("none", *_EFFORTS))
        raise UsageError(f'invalid reasoning value: "{value}" (must be one of {allowed})')
    return _EFFORTS.get(effort, "medium"), True


class OpenAILogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class CompletionLogprobs(msgspec.Struct):
    """Columns with a row per token; `top_logprobs` has the token itself and the likeliest."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


def openai_logprobs(tokens: Iterable[TokenLogprob]) -> list[OpenAILogprob]:
    """Return those of the content, as OpenAI has no others."""
    return [
        OpenAILogprob(spell(t.data), t.logprob, list(t.data), top_of(t))
        for t in tokens
        if t.offset is not None
    ]


def completion_logprobs(tokens: Iterable[TokenLogprob]) -> CompletionLogprobs | None:
    columns = CompletionLogprobs([], [], [], [])
    for t in tokens:
        if t.offset is None:
            continue
        text = spell(t.data)
        columns.tokens.append(text)
        columns.token_logprobs.append(t.logprob)
        columns.top_logprobs.append({spell(d): value for d, value in t.top} | {text: t.logprob})
        columns.text_offset.append(t.offset)
    return columns if columns.tokens else None


def openai_count(name: str, n_top: int, *, is_on: bool, needs: str) -> int | None:
    """Return how many alternatives an OpenAI body asks for; None: no log-probabilities at all."""
    if not 0 <= n_top <= MAX_TOP_LOGPROBS:
        which, bound = "above maximum", f"<= {MAX_TOP_LOGPROBS}"
        if n_top < 0:
            which, bound = "below minimum", ">= 0"
        wanted = f"Expected a value {bound}, but got {n_top} instead"
        raise UsageError(f"Invalid '{name}': integer {which} value. {wanted}")
    if n_top and not is_on:
        raise UsageError(f"The '{name}' parameter is only allowed when {needs}")
    return n_top if is_on else None


def usage(done: Done, prompt: str, completion: str) -> dict[str, Any]:
    counts = done.usage
    return {
        f"{prompt}_tokens": counts.n_prompt,
        f"{prompt}_tokens_details": {"cached_tokens": counts.n_cached, "cache_write_tokens": 0},
        f"{completion}_tokens": counts.n_generated,
        f"{completion}_tokens_details": {"reasoning_tokens": done.n_reasoning},
        "total_tokens": counts.n_prompt + counts.n_generated,
    }


def error_body(error: GptOssError) -> dict[str, Any]:
    """Return OpenAI's error shape, with our hint in the message, as clients show nothing else."""
    text = f"{error.message}. {error.hint}" if error.hint else error.message
    default = "invalid_request_error" if error.http_status < 500 else "api_error"
    kind = _KINDS.get(error.http_status, default)
    code = _CODES.get(type(error).__name__)
    return {"error": {"message": text, "type": kind, "param": None, "code": code}}


_KINDS = {404: "not_found_error", 429: "rate_limit_error"}
_CODES = {
    "ModelNotFoundError": "model_not_found",
    "ResponseNotFoundError": "not_found",
    "ContextOverflowError": "context_length_exceeded",
    "RateLimitError": "rate_limit_exceeded",
}


END = SseEvent(msgspec.Raw(b"[DONE]"))
"""The last event of a stream."""


def new_id(prefix: str) -> str:
    return f"{prefix}{secrets.token_hex(12)}"


def now_s() -> int:
    return int(time.time())
