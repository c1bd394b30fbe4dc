"""Anthropic's Messages: `/v1/messages` and `/v1/messages/count_tokens`.

Source: Anthropic's API reference. Differences are listed in docs/api.md.
"""

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gptoss_local.chat import n_prompt_tokens
from gptoss_local.server.anthropic_frames import MessagesWriter
from gptoss_local.server.anthropic_request import MessagesBody
from gptoss_local.server.body import read_body
from gptoss_local.server.manager import ModelManager
from gptoss_local.server.model_defaults import ANTHROPIC_NAMES, fill_in_fields
from gptoss_local.server.streaming import AnswerResponse, json_response


def routes() -> list[Route]:
    return [
        Route("/v1/messages", messages, methods=["POST"]),
        Route("/v1/messages/count_tokens", count_tokens, methods=["POST"]),
    ]


async def messages(request: Request) -> Response:
    manager: ModelManager = request.app.state.manager
    fill_in = fill_in_fields(manager.settings, ANTHROPIC_NAMES)
    body = await read_body(request, MessagesBody, fill_in)
    chat_request = body.to_request()
    body.check_max_tokens()
    events = manager.answer(body.model, chat_request)
    return AnswerResponse(events, MessagesWriter(body.model), stream=body.stream)


async def count_tokens(request: Request) -> Response:
    """How long the prompt of a request would be; loads no model."""
    body = await read_body(request, MessagesBody)
    chat_request = body.to_request()
    manager: ModelManager = request.app.state.manager
    vocabulary = await manager.vocabulary(body.model)
    begun = manager.begun(body.model, chat_request)
    n_tokens = await asyncio.to_thread(n_prompt_tokens, begun, vocabulary)
    return json_response({"input_tokens": n_tokens})
