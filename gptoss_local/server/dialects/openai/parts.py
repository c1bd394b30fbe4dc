"""The common parts of OpenAI's dialects: effort, formats, sampling, usage, errors.

Source: OpenAI's API reference (Chat Completions, Responses), and Ollama's openai/openai.go.
"""

import secrets
import time
from typing import Annotated, Any

import msgspec

from gptoss_local.base.errors import GptOssError, UsageError
from gptoss_local.base.types import Effort, Penalties, SamplingParams
from gptoss_local.harmony import Done, JsonFormat
from gptoss_local.server.dialects.bounds import (
    MAX_INT,
    Penalty,
    Temperature,
    ThinkBudget,
    TokenId,
    think_budget,
)

LogitBias = Annotated[
    dict[TokenId, Annotated[float, msgspec.Meta(ge=-100, le=100)]],
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


class Reasoning(msgspec.Struct):
    effort: str = ""
    summary: str = ""
    max_tokens: ThinkBudget | None = None  # as OpenRouter has it


class SamplingFields(msgspec.Struct, kw_only=True):
    temperature: Temperature = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    logit_bias: LogitBias = msgspec.field(default_factory=dict)
    think_budget: ThinkBudget | None = None
    thinking_budget_tokens: ThinkBudget | None = None  # llama.cpp's name
    reasoning_budget: ThinkBudget | None = None  # its older one
    reasoning: Reasoning = msgspec.field(default_factory=Reasoning)
    repeat_guard: bool = True

    @property
    def most_thinking(self) -> int | None:
        """Return the budget of reasoning tokens, by the first name that has one."""
        return think_budget(
            self.reasoning.max_tokens,
            self.thinking_budget_tokens,
            self.reasoning_budget,
            self.think_budget,
        )

    @property
    def penalties(self) -> Penalties | None:
        presence, frequency = self.presence_penalty, self.frequency_penalty
        return Penalties(presence=presence, frequency=frequency) if presence or frequency else None

    @property
    def sampling(self) -> SamplingParams:
        return SamplingParams(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=max(0, min(self.top_k, MAX_INT)),
            min_p=self.min_p,
            seed=None if self.seed is None else self.seed & MAX_INT,
            penalties=self.penalties,
            logit_bias=tuple(sorted((t, bias) for t, bias in self.logit_bias.items() if bias)),
        )


def parse_effort(value: str) -> tuple[Effort, bool]:
    """Return the effort and whether to reason at all; empty means the default."""
    effort = value.lower()
    if effort == "none":
        return "low", False
    if effort and effort not in _EFFORTS:
        allowed = ", ".join(f'"{name}"' for name in ("none", *_EFFORTS))
        raise UsageError(f'invalid reasoning value: "{value}" (must be one of {allowed})')
    return _EFFORTS.get(effort, "medium"), True


def parse_format(wanted: dict[str, Any], schema: Any) -> JsonFormat | None:
    """Return `response_format` or `text.format`; the dialect keeps its `schema` elsewhere."""
    match wanted.get("type", "text"):
        case "text":
            return None
        case "json_object" if wanted.get("schema") is None:
            return JsonFormat()
        case "json_object" if isinstance(wanted["schema"], dict):  # as llama.cpp takes it
            return JsonFormat(wanted["schema"])
        case "json_schema" if isinstance(schema, dict):
            inner = wanted.get("json_schema")
            told = inner if isinstance(inner, dict) else wanted
            name, about = told.get("name"), told.get("description")
            return JsonFormat(schema, str(name or "response"), str(about or ""))
        case "json_object" | "json_schema" as kind:
            raise UsageError(f"the schema of a format of type {kind} must be an object")
        case other:
            raise UsageError(f"unknown format type '{other}'; use text, json_object or json_schema")


def usage(done: Done, prompt: str, completion: str) -> dict[str, Any]:
    """Return the token counts; Chat Completions and Responses only name them differently."""
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


def new_id(prefix: str) -> str:
    return f"{prefix}{secrets.token_hex(12)}"


def now_s() -> int:
    return int(time.time())
