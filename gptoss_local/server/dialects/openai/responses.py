"""OpenAI's Responses: `/v1/responses`, and what the server remembers of them.

Source: OpenAI's API reference. Differences are listed in docs/api.md.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from gptoss_local.chat import ChatRequest, n_prompt_tokens
from gptoss_local.errors import UsageError
from gptoss_local.server.body import translate
from gptoss_local.server.dialects.named_model import NamedModel
from gptoss_local.server.dialects.openai.answers import DeletedResponse, InputItems, InputTokens
from gptoss_local.server.dialects.openai.response_store import ResponseStore
from gptoss_local.server.dialects.openai.responses_frames import ResponsesWriter
from gptoss_local.server.dialects.openai.responses_items import Item, with_unknown_aside
from gptoss_local.server.dialects.openai.responses_request import ResponsesBody
from gptoss_local.server.dialects.openai.responses_tools import Toolbox
from gptoss_local.server.streaming import AnswerResponse, json_response
from gptoss_local.server.waiting import while_connected

_N_LISTED_MAX = 100
_N_LISTED = 20

_NAMES = {"num_predict": "max_output_tokens"}


async def responses(request: Request) -> Response:
    model = NamedModel(request, _NAMES)
    body = await model.read(ResponsesBody, with_unknown_aside)
    asked, items, toolbox = await _asked(request, model, body)
    events = model.manager.answer(model.entry, asked)
    listed = await translate(request, lambda: [item.to_wire() for item in items if body.store])

    def keep(made: dict[str, Any]) -> None:
        if body.store:
            _remembered(request).add(listed, made)

    return AnswerResponse(events, ResponsesWriter(body, toolbox, keep), stream=body.stream)


async def input_tokens(request: Request) -> Response:
    """Count the tokens of the prompt that a request would become; loads no model."""
    model = NamedModel(request, _NAMES)
    body = await model.read(ResponsesBody, with_unknown_aside)
    asked, _, _ = await _asked(request, model, body)
    vocabulary = await model.manager.vocabulary(model.entry)
    n_tokens = await while_connected(request, n_prompt_tokens(asked, vocabulary))
    return json_response(InputTokens(input_tokens=n_tokens))


async def response(request: Request) -> Response:
    """An answer as it was given; `stream` cannot repeat how it came."""
    if request.query_params.get("stream", "false").lower() not in ("false", "0", ""):
        raise UsageError("answers of the past are not streamed")
    return json_response(_remembered(request).response(request.path_params["response"]))


async def delete(request: Request) -> Response:
    name = request.path_params["response"]
    _remembered(request).delete(name)
    return json_response(DeletedResponse(name))


async def input_items(request: Request) -> Response:
    """Return what was asked, with what came before it: one page, the newest item first."""
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
        InputItems(
            data=page,
            first_id=page[0]["id"] if page else None,
            last_id=page[-1]["id"] if page else None,
            has_more=len(items) > limit,
        )
    )


async def _asked(
    request: Request, model: NamedModel, body: ResponsesBody
) -> tuple[ChatRequest, list[Item], Toolbox]:
    """Return what is asked, and the conversation and the tools that it was made of."""
    items, toolbox = body.items(_remembered(request)), Toolbox()

    def make() -> ChatRequest:
        nonlocal toolbox
        toolbox = body.toolbox(items)
        return body.to_request(items, toolbox)

    asked = await model.asked(make)
    return asked, items, toolbox


def _remembered(request: Request) -> ResponseStore:
    store: ResponseStore = request.app.state.responses
    return store
