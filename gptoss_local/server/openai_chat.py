"""OpenAI's Chat Completions, Completions and Models: `/v1/*`.

Source: OpenAI's API reference. Differences are listed in docs/api.md.
"""

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gptoss_local.server.body import read_body
from gptoss_local.server.manager import ModelManager
from gptoss_local.server.model_defaults import CHAT_NAMES, fill_in_fields
from gptoss_local.server.openai_chat_frames import ChatCompletionWriter, CompletionWriter
from gptoss_local.server.openai_chat_request import ChatCompletionBody, CompletionBody
from gptoss_local.server.streaming import AnswerResponse, json_response
from gptoss_local.store import ModelEntry, find_model, list_models


def routes() -> list[Route]:
    return [
        Route("/v1/chat/completions", chat_completions, methods=["POST"]),
        Route("/v1/completions", completions, methods=["POST"]),
        Route("/v1/models", models, methods=["GET"]),
        Route("/v1/models/{name:path}", model, methods=["GET"]),
    ]


async def chat_completions(request: Request) -> Response:
    manager: ModelManager = request.app.state.manager
    fill_in = fill_in_fields(manager.settings, CHAT_NAMES)
    body = await read_body(request, ChatCompletionBody, fill_in)
    events = manager.answer(body.model, body.to_request())
    writer = ChatCompletionWriter(
        body.model,
        include_usage=body.stream_options.include_usage,
        custom_names=body.custom_names,
    )
    return AnswerResponse(events, writer, stream=body.stream)


async def completions(request: Request) -> Response:
    manager: ModelManager = request.app.state.manager
    fill_in = fill_in_fields(manager.settings, CHAT_NAMES)
    body = await read_body(request, CompletionBody, fill_in)
    events = manager.answer(body.model, body.to_request())
    writer = CompletionWriter(body.model, include_usage=body.stream_options.include_usage)
    return AnswerResponse(events, writer, stream=body.stream)


async def models(request: Request) -> Response:
    settings = request.app.state.manager.settings
    found = await asyncio.to_thread(lambda: list(map(_model, list_models(settings))))
    return json_response({"object": "list", "data": found})


async def model(request: Request) -> Response:
    name = request.path_params["name"]
    return json_response(_model(find_model(name, request.app.state.manager.settings)))


def _model(entry: ModelEntry) -> dict[str, Any]:
    return {
        "id": entry.name,
        "object": "model",
        "created": entry.modified_ns // 10**9,
        "owned_by": "library",
    }
