"""Anthropic's API: `/v1/messages`."""

from collections.abc import Mapping

from gptoss_local.server.dialect import Dialect, for_keys
from gptoss_local.server.dialects.anthropic import answers, routes
from gptoss_local.server.dialects.anthropic.frames import error_body
from gptoss_local.server.dialects.anthropic.request import MessagesBody
from gptoss_local.server.request_id import request_id_of
from gptoss_local.server.streaming import SSE

_REQUIRED = ("model", "messages")


def _is_spoken(path: str, headers: Mapping[str, str]) -> bool:
    is_shared = path.startswith("/v1/models")  # with OpenAI's clients
    return path.startswith("/v1/messages") or (is_shared and "anthropic-version" in headers)


ANTHROPIC = Dialect(
    name="anthropic",
    is_spoken=_is_spoken,
    endpoints=(
        for_keys(
            "POST",
            "/v1/messages",
            routes.messages,
            "Anthropic's Messages",
            answers.AnthropicAnswer,
            MessagesBody,
            SSE,
            _REQUIRED,
            is_metered=True,
        ),
        for_keys(
            "POST",
            "/v1/messages/count_tokens",
            routes.count_tokens,
            "Length of a prompt",
            answers.TokenCount,
            MessagesBody,
            required=_REQUIRED,
            is_metered=True,
        ),
    ),
    error_body=lambda error, request: error_body(error, request_id_of(request)),
    error=answers.AnthropicError,
)
