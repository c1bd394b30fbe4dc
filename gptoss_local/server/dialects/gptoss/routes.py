"""Serves our own programs beyond Ollama's API; docs/api.md documents it for others, too."""

import asyncio
import os
import time
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gptoss_local import __version__
from gptoss_local.api.gptoss import GpuMemory, Inspection, ServerStatus
from gptoss_local.api.models import JobStatus
from gptoss_local.base.errors import AnsweringError, UsageError
from gptoss_local.base.off_loop import Check, run_off_loop
from gptoss_local.harmony import (
    ChatRequest,
    Message,
    inspect_tokens,
    prompt_tokens,
    text_size,
)
from gptoss_local.machine.hardware import read_usable_gpus
from gptoss_local.runner.elsewhere import RemoteModel
from gptoss_local.runner.fits import all_fits
from gptoss_local.runner.loading import LoadedModel
from gptoss_local.runner.manager import ModelManager
from gptoss_local.server.access import owner_of
from gptoss_local.server.body import read_body
from gptoss_local.server.dialects.bounds import TokenId, number_in
from gptoss_local.server.dialects.named_model import NamedModel
from gptoss_local.server.dialects.ollama.management import StatusWriter
from gptoss_local.server.dialects.ollama.request import (
    ChatBody,
    GenerateBody,
    OllamaMessage,
    to_message,
)
from gptoss_local.server.streaming import AnswerResponse, json_response, while_connected


class AnswerNowBody(msgspec.Struct):
    """The answer's `x-request-id`."""

    id: str = ""


async def answer_now(request: Request) -> Response:
    """End the reasoning of the caller's own answer, so that the answer itself comes."""
    body = await read_body(request, AnswerNowBody)
    wish = request.app.state.wishes.get((owner_of(request), body.id))
    if wish is None:
        raise AnsweringError(
            f"no answer of yours has the id '{body.id}' now",
            hint="Send the x-request-id of an answer while it comes.",
        )
    wish.is_wished = True
    return json_response(JobStatus("success"))


class InspectBody(ChatBody, msgspec.Struct, kw_only=True):
    """A request of `/api/chat`, and its answer.

    Attributes:
        answer: The answer as a message of the next request.
        tokens: The answer's ids, as `return_tokens` has them.
    """

    answer: OllamaMessage | None = None
    tokens: list[TokenId] = []


async def inspect(request: Request) -> Response:
    """Return a conversation as harmony has it, with token ids; loads no model."""
    model = NamedModel(request)
    body, manager = await model.read(InspectBody), model.manager
    if not body.model:
        raise UsageError("model is required")
    vocabulary = await manager.vocabulary(model.entry)
    n_ctx_train = await manager.n_ctx_train(model.entry)
    asked = await model.asked(body.to_request)
    usable: list[LoadedModel | RemoteModel] = [*manager.loaded, *manager.remote]
    loaded = (m.engine.loaded.n_ctx for m in usable if m.entry.name == model.entry.name)
    n_ctx = next(loaded, None)

    def look(check: Check) -> Inspection:
        render = partial(
            prompt_tokens,
            vocabulary=vocabulary,
            n_ctx=n_ctx,
            n_ctx_train=n_ctx_train,
            check=check,
        )
        prompt = render(asked)
        following = [] if body.answer is None else render(_next(asked, body))
        pieces = inspect_tokens(prompt, body.tokens, following, vocabulary)
        return Inspection(len(prompt), len(body.tokens), pieces)

    work = run_off_loop(look, text_size(asked))
    return json_response(await while_connected(request, work))


async def status(request: Request) -> Response:
    manager = _manager(request)
    gpus = await asyncio.to_thread(read_usable_gpus)
    return json_response(
        ServerStatus(
            server_version=__version__,
            pid=os.getpid(),
            uptime_s=round(time.monotonic() - request.app.state.start_s, 3),
            loading=manager.loading,
            models_dir=str(manager.settings.models_dir.absolute()),
            gpus=[GpuMemory(gpu.name, gpu.total_bytes, gpu.free_bytes) for gpu in gpus],
            clients=request.app.state.access.clients,
            lan=request.app.state.lan.urls,
        )
    )


async def shut_down(request: Request) -> Response:
    request.app.state.shut_down()
    return json_response(JobStatus("success"))


async def load(request: Request) -> Response:
    """Load a model and report progress; loading continues if the client leaves."""
    model = NamedModel(request)
    body = await model.read(GenerateBody)
    if not body.model:
        raise UsageError("model is required")
    events = model.manager.load(
        model.entry, n_ctx=body.options.n_ctx, keep_alive_s=body.keep_alive_s
    )
    return AnswerResponse(events, StatusWriter(), stream=body.stream)


async def fits(request: Request) -> Response:
    """Send where each model here or in the catalogue would go; slow."""
    manager = _manager(request)
    n_ctx = number_in(request.query_params, "n_ctx")
    freed = [model.engine for model in manager.loaded]
    found = await asyncio.to_thread(all_fits, manager.settings, n_ctx, freed=freed)
    return json_response(found)


def _manager(request: Request) -> ModelManager:
    manager: ModelManager = request.app.state.manager
    return manager


def _next(asked: ChatRequest, body: InspectBody) -> ChatRequest:
    assert body.answer is not None
    answer = to_message(body.answer)
    following = Message(role="tool" if answer.tool_calls else "user")
    return msgspec.structs.replace(asked, messages=(*asked.messages, answer, following))
