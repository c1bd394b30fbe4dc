"""OpenAI's Chat Completions, Completions and Models: `/v1/*`. Source: its API reference."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from gptoss_local.models.store import ModelEntry, find_model, list_models
from gptoss_local.server.dialects.anthropic import frames as anthropic_frames
from gptoss_local.server.dialects.named_model import NamedModel
from gptoss_local.server.dialects.openai.answers import OpenAIModel, OpenAIModels
from gptoss_local.server.dialects.openai.chat_frames import ChatCompletionWriter, CompletionWriter
from gptoss_local.server.dialects.openai.chat_request import ChatCompletionBody, CompletionBody
from gptoss_local.server.streaming import AnswerResponse, json_response

_NAMES = {"num_predict": "max_tokens"}


async def chat_completions(request: Request) -> Response:
    model = NamedModel(request, _NAMES)
    body = await model.read(ChatCompletionBody)
    model.warn_of(tool.kind for tool in body.tools)
    asked = await model.asked(body.to_request)
    writer = ChatCompletionWriter(
        body.model,
        include_usage=body.stream_options.include_usage,
        custom_names=frozenset(t.name for t in asked.tools if t.free_text is not None),
    )
    return AnswerResponse(model.manager.answer(model.entry, asked), writer, stream=body.stream)


async def completions(request: Request) -> Response:
    model = NamedModel(request, _NAMES)
    body = await model.read(CompletionBody)
    asked = await model.asked(body.to_request)
    echo = body.text if body.echo else ""
    include_usage = body.stream_options.include_usage
    writer = CompletionWriter(body.model, include_usage=include_usage, echo=echo)
    return AnswerResponse(model.manager.answer(model.entry, asked), writer, stream=body.stream)


async def models(request: Request) -> Response:
    settings = request.app.state.manager.settings
    found = await asyncio.to_thread(list_models, settings)
    if is_of_anthropic(request):
        return json_response(anthropic_frames.model_list(found))
    return json_response(OpenAIModels(data=list(map(_model, found))))


async def model(request: Request) -> Response:
    entry = find_model(request.path_params["name"], request.app.state.manager.settings)
    if is_of_anthropic(request):
        return json_response(anthropic_frames.model_info(entry))
    return json_response(_model(entry))


def is_of_anthropic(request: Request) -> bool:
    """Return whether Anthropic's client sent a request to a path that OpenAI has, too."""
    return "anthropic-version" in request.headers


def _model(entry: ModelEntry) -> OpenAIModel:
    return OpenAIModel(id=entry.name, created=entry.modified_ns // 10**9)
