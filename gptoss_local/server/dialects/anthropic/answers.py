"""Anthropic's answers, as they are encoded and as the OpenAPI document shows them."""

from typing import Any, Literal

import msgspec


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
    usage: dict[str, int]
    stop_details: dict[str, str] | msgspec.UnsetType = msgspec.UNSET


class TokenCount(msgspec.Struct):
    input_tokens: int
