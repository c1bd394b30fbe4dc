"""Anthropic's `/v1/messages`. Source: its API reference; docs/api.md lists differences."""

from starlette.requests import Request
from starlette.responses import Response

from gptoss_local.harmony import n_prompt_tokens
from gptoss_local.server.dialects.anthropic.answers import TokenCount
from gptoss_local.server.dialects.anthropic.frames import MessagesWriter
from gptoss_local.server.dialects.anthropic.request import MessagesBody
from gptoss_local.server.dialects.named_model import NamedModel
from gptoss_local.server.request_id import request_id_of
from gptoss_local.server.streaming import AnswerResponse, json_response, while_connected

_NAMES = {"stop": "stop_sequences"}


async def messages(request: Request) -> Response:
    model = NamedModel(request, _NAMES)
    body = await model.read(MessagesBody)
    model.warn_of(tool.kind for tool in body.tools)
    asked = await model.asked(body.to_request)
    body.check_answerable()
    events = model.manager.answer(model.entry, asked)
    hides_thinking = body.thinking.display == "omitted"
    writer = MessagesWriter(body.model, request_id_of(request), hides_thinking=hides_thinking)
    return AnswerResponse(events, writer, stream=body.stream)


async def count_tokens(request: Request) -> Response:
    model = NamedModel(request, _NAMES)
    body = await model.read(MessagesBody)
    asked = await model.asked(body.to_request)
    vocabulary = await model.manager.vocabulary(model.entry)
    n_tokens = await while_connected(request, n_prompt_tokens(asked, vocabulary))
    return json_response(TokenCount(n_tokens))
