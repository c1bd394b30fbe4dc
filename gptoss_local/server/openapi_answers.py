"""Shapes of answers for the OpenAPI document, where the code builds them as plain dictionaries.

Tests hold real answers against them. Sources as in the modules that make the answers.
"""

from typing import Any, Literal

import msgspec

from gptoss_local.server.loads import LoadStatus
from gptoss_local.server.logprobs import CompletionLogprobs, OpenAILogprob


class Details(msgspec.Struct, kw_only=True):
    parent_model: str
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str
    context_length: int = 0
    embedding_length: int = 0


class Tag(msgspec.Struct):
    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: Details
    capabilities: list[str]


class Tags(msgspec.Struct):
    models: list[Tag]


class Running(msgspec.Struct):
    name: str
    model: str
    size: int
    digest: str
    details: Details
    expires_at: str
    size_vram: int
    context_length: int


class Ps(msgspec.Struct):
    models: list[Running]


class Show(msgspec.Struct):
    license: str
    modelfile: str
    parameters: str
    template: str
    system: str
    messages: list[dict[str, Any]]
    details: Details
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str


class Version(msgspec.Struct):
    version: str


class Cloud(msgspec.Struct):
    disabled: bool
    source: str


class CloudStatus(msgspec.Struct):
    cloud: Cloud


class Health(msgspec.Struct):
    status: Literal["ok"]


class GpuMemory(msgspec.Struct):
    name: str
    total_bytes: int
    free_bytes: int


class ServerStatus(msgspec.Struct):
    server_version: str
    pid: int
    uptime_s: float
    gpus: list[GpuMemory]
    loading: list[LoadStatus]


class OpenAIErrorDetails(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(msgspec.Struct):
    error: OpenAIErrorDetails


class OpenAIModel(msgspec.Struct):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class OpenAIModels(msgspec.Struct):
    object: Literal["list"]
    data: list[OpenAIModel]


class CompletionUsage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int]
    completion_tokens_details: dict[str, int]


class ChatMessage(msgspec.Struct):
    role: Literal["assistant"]
    content: str | None
    reasoning: str = ""
    reasoning_content: str = ""
    tool_calls: list[dict[str, Any]] = []


class ChoiceLogprobs(msgspec.Struct):
    content: list[OpenAILogprob]
    refusal: None


class ChatChoice(msgspec.Struct):
    index: int
    message: ChatMessage
    finish_reason: Literal["stop", "length", "tool_calls"]
    logprobs: ChoiceLogprobs | None


class ChatCompletion(msgspec.Struct):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: CompletionUsage


class TextChoice(msgspec.Struct):
    index: int
    text: str
    finish_reason: Literal["stop", "length"]
    logprobs: CompletionLogprobs | None


class TextCompletion(msgspec.Struct):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChoice]
    usage: CompletionUsage


class ResponsesUsage(msgspec.Struct):
    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: dict[str, int]
    output_tokens_details: dict[str, int]


class ResponseObject(msgspec.Struct):
    """An answer of `/v1/responses`; only what programs rely on is spelled out."""

    id: str
    object: Literal["response"]
    status: Literal["completed", "incomplete", "failed", "in_progress"]
    model: str
    output: list[dict[str, Any]]
    usage: ResponsesUsage | None
    error: dict[str, Any] | None
    incomplete_details: dict[str, Any] | None


class DeletedResponse(msgspec.Struct):
    id: str
    object: Literal["response"]
    deleted: Literal[True]


class InputItems(msgspec.Struct):
    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


class AnthropicErrorDetails(msgspec.Struct):
    type: str
    message: str


class AnthropicError(msgspec.Struct):
    type: Literal["error"]
    error: AnthropicErrorDetails
    request_id: str


class AnthropicMessage(msgspec.Struct):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"] | None
    stop_sequence: str | None
    usage: dict[str, int]


class TokenCount(msgspec.Struct):
    input_tokens: int
