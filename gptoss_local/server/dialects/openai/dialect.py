"""OpenAI's API: `/v1/*`."""

from typing import Any

from gptoss_local.server.dialect import Dialect, for_keys
from gptoss_local.server.dialects import embeddings
from gptoss_local.server.dialects.openai import answers, chat, responses
from gptoss_local.server.dialects.openai.chat_request import ChatCompletionBody, CompletionBody
from gptoss_local.server.dialects.openai.parts import error_body
from gptoss_local.server.dialects.openai.responses_request import ResponsesBody
from gptoss_local.server.streaming import SSE

_MODEL = ("model",)
_PAGE: dict[str, dict[str, Any]] = {
    "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
    "order": {"enum": ["asc", "desc"], "default": "desc"},
    "after": {"type": "string"},
}

OPENAI = Dialect(
    name="openai",
    is_spoken=lambda path, _headers: path.startswith("/v1/"),
    endpoints=(
        for_keys(
            "POST",
            "/v1/chat/completions",
            chat.chat_completions,
            "OpenAI's Chat Completions",
            answers.ChatCompletion,
            ChatCompletionBody,
            SSE,
            ("model", "messages"),
            is_metered=True,
        ),
        for_keys(
            "POST",
            "/v1/completions",
            chat.completions,
            "OpenAI's Completions",
            answers.TextCompletion,
            CompletionBody,
            SSE,
            _MODEL,
            is_metered=True,
        ),
        for_keys("GET", "/v1/models", chat.models, "Models on disk", answers.OpenAIModels),
        for_keys(
            "GET", "/v1/models/{name:path}", chat.model, "A model on disk", answers.OpenAIModel
        ),
        for_keys(
            "POST",
            "/v1/responses",
            responses.responses,
            "OpenAI's Responses",
            answers.ResponseObject,
            ResponsesBody,
            SSE,
            _MODEL,
            is_metered=True,
        ),
        for_keys(
            "POST",
            "/v1/responses/input_tokens",
            responses.input_tokens,
            "Length of a prompt",
            answers.InputTokens,
            ResponsesBody,
            required=_MODEL,
            is_metered=True,
        ),
        for_keys(
            "GET",
            "/v1/responses/{response}",
            responses.response,
            "An answer that is remembered",
            answers.ResponseObject,
        ),
        for_keys(
            "DELETE",
            "/v1/responses/{response}",
            responses.delete,
            "Forget an answer",
            answers.DeletedResponse,
        ),
        for_keys(
            "GET",
            "/v1/responses/{response}/input_items",
            responses.input_items,
            "What an answer was given to",
            answers.InputItems,
            queries=_PAGE,
        ),
        for_keys(
            "POST",
            "/v1/embeddings",
            embeddings.openai_embeddings,
            "Embeddings of another server",
            embeddings.OpenAIEmbeddings,
            embeddings.OpenAIEmbedBody,
            is_metered=True,
        ),
    ),
    error_body=lambda error, _request: error_body(error),
    error=answers.OpenAIError,
)
