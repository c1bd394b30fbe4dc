"""OpenAI's answers, for the encoder and the OpenAPI document; `/v1/responses` uses a dictionary."""

from typing import Any, Literal

import msgspec

from gptoss_local.server.dialects.logprobs import CompletionLogprobs, OpenAILogprob


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


class OpenAIModel(msgspec.Struct, kw_only=True):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "library"


class OpenAIModels(msgspec.Struct, kw_only=True):
    object: Literal["list"] = "list"
    data: list[OpenAIModel]


class CompletionUsage(msgspec.Struct):
    prompt_tokens: int
    prompt_tokens_details: dict[str, int]
    completion_tokens: int
    completion_tokens_details: dict[str, int]
    total_tokens: int


class CompletionMessage(msgspec.Struct, kw_only=True, omit_defaults=True):
    role: Literal["assistant"]
    content: str | None
    reasoning: str = ""
    reasoning_content: str = ""
    tool_calls: list[dict[str, Any]] = []


class ChoiceLogprobs(msgspec.Struct):
    content: list[OpenAILogprob]
    refusal: None = None


class ChatChoice(msgspec.Struct):
    message: CompletionMessage
    logprobs: ChoiceLogprobs | None
    finish_reason: str
    index: int = 0
    native_finish_reason: str | msgspec.UnsetType = msgspec.UNSET


class ChatCompletion(msgspec.Struct):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: CompletionUsage


class TextChoice(msgspec.Struct):
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str
    index: int = 0
    native_finish_reason: str | msgspec.UnsetType = msgspec.UNSET


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
    """An answer of `/v1/responses`; only fields that programs rely on are spelled out."""

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
    object: Literal["response"] = "response"
    deleted: Literal[True] = True


class InputItems(msgspec.Struct, kw_only=True):
    object: Literal["list"] = "list"
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool
