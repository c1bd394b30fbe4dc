"""OpenAI's Responses: `/v1/responses`, and what the server remembers of them.

Source: OpenAI's API reference. Differences are listed in docs/api.md.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gptoss_local.errors import UsageError
from gptoss_local.server.body import read_body
from gptoss_local.server.manager import ModelManager
from gptoss_local.server.model_defaults import RESPONSES_NAMES, fill_in_fields
from gptoss_local.server.openai_responses_frames import ResponsesWriter
from gptoss_local.server.openai_responses_request import ResponsesBody, without_unknown
from gptoss_local.server.response_store import ResponseStore
from gptoss_local.server.streaming import AnswerResponse, json_response

_N_LISTED_MAX = 100
_N_LISTED = 20


def routes() -> list[Route]:
    return [
        Route("/v1/responses", responses, methods=["POST"]),
        Route("/v1/responses/{response}", response, methods=["GET"]),
        Route("/v1/responses/{response}", delete, methods=["DELETE"]),
        Route("/v1/responses/{response}/input_items", input_items, methods=["GET"]),
    ]


async def responses(request: Request) -> Response:
    manager: ModelManager = request.app.state.manager
    fill_in = fill_in_fields(manager.settings, RESPONSES_NAMES)
    body = await read_body(request, ResponsesBody, lambda sent: fill_in(without_unknown(sent)))
    remembered = _remembered(request)
    items = body.items(remembered)
    events = manager.answer(body.model, body.to_request(items))

    def keep(made: dict[str, Any]) -> None:
        if body.store:
            remembered.add([item.to_wire() for item in items], made)

    return AnswerResponse(events, ResponsesWriter(body, keep), stream=body.stream)


async def response(request: Request) -> Response:
    """An answer as it was given; `stream` cannot repeat how it came."""
    if request.query_params.get("stream", "false").lower() not in ("false", "0", ""):
        raise UsageError("answers of the past are not streamed")
    return json_response(_remembered(request).response(request.path_params["response"]))


async def delete(request: Request) -> Response:
    name = request.path_params["response"]
    _remembered(request).delete(name)
    return json_response({"id": name, "object": "response", "deleted": True})


async def input_items(request: Request) -> Response:
    """What an answer was given to, with what came before it; a page, the newest item first."""
    items = _remembered(request).items(request.path_params["response"])
    query = request.query_params
    match query.get("order", "desc"):
        case "desc":
            items.reverse()
        case "asc":
            pass
        case other:
            raise UsageError(f"order must be asc or desc, not '{other}'")
    try:
        limit = int(query.get("limit", _N_LISTED))
    except ValueError as error:
        raise UsageError("limit must be a number") from error
    if not 1 <= limit <= _N_LISTED_MAX:
        raise UsageError(f"limit must be between 1 and {_N_LISTED_MAX}")
    if after := query.get("after"):
        ids = [item["id"] for item in items]
        if after not in ids:
            raise UsageError(f"after names no item: '{after}'")
        items = items[ids.index(after) + 1 :]
    page = items[:limit]
    return json_response(
        {
            "object": "list",
            "data": page,
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
            "has_more": len(items) > limit,
        }
    )


def _remembered(request: Request) -> ResponseStore:
    store: ResponseStore = request.app.state.responses
    return store
