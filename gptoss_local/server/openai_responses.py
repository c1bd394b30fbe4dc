"""OpenAI's Responses: `POST /v1/responses`, without storage.

Source: OpenAI's API reference. Differences are listed in docs/api.md.
"""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gptoss_local.server.body import read_body
from gptoss_local.server.manager import ModelManager
from gptoss_local.server.model_defaults import RESPONSES_NAMES, fill_in_fields
from gptoss_local.server.openai_responses_frames import ResponsesWriter
from gptoss_local.server.openai_responses_request import ResponsesBody
from gptoss_local.server.streaming import AnswerResponse


def routes() -> list[Route]:
    return [Route("/v1/responses", responses, methods=["POST"])]


async def responses(request: Request) -> Response:
    manager: ModelManager = request.app.state.manager
    fill_in = fill_in_fields(manager.settings, RESPONSES_NAMES)
    body = await read_body(request, ResponsesBody, fill_in)
    events = manager.answer(body.model, body.to_request())
    return AnswerResponse(events, ResponsesWriter(body), stream=body.stream)
