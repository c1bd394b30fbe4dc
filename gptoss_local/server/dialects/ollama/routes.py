"""Ollama's `/api/*`. Source: its server/routes.go; docs/api.md has deliberate differences."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from gptoss_local.api.models import InstalledModels, RunningModels, ServerVersion
from gptoss_local.base.errors import UnauthorizedError, UsageError
from gptoss_local.harmony import ChatEvent
from gptoss_local.models.store import find_model, list_models, read_info
from gptoss_local.runner.manager import ModelManager
from gptoss_local.runner.upstream.wire import N_CTX as UPSTREAM_N_CTX
from gptoss_local.server.access import current_caller
from gptoss_local.server.body import read_body
from gptoss_local.server.dialects.named_model import NamedModel
from gptoss_local.server.dialects.ollama import describe
from gptoss_local.server.dialects.ollama.frames import (
    ChatWriter,
    GenerateWriter,
    chat_frame,
    generate_frame,
)
from gptoss_local.server.dialects.ollama.request import ChatBody, GenerateBody, ModelBody
from gptoss_local.server.streaming import AnswerResponse, AnswerWriter, json_response

OLLAMA_VERSION = "0.33.0"  # the contract we speak; clients compare it with their minimum


async def version(_request: Request) -> Response:
    return json_response(ServerVersion(OLLAMA_VERSION))


async def tags(request: Request) -> Response:
    settings = _manager(request).settings
    models = await asyncio.to_thread(lambda: list(map(describe.tag, list_models(settings))))
    return json_response(InstalledModels(models))


async def ps(request: Request) -> Response:
    manager = _manager(request)
    models = [  # the last used first
        describe.running(model, await manager.energy.of(model)) for model in manager.loaded[::-1]
    ]
    models += map(describe.running_remote, manager.remote)
    return json_response(RunningModels(sorted(models, key=lambda m: m.expires_at, reverse=True)))


async def show(request: Request) -> Response:
    body = await read_body(request, ModelBody)
    name = body.model or body.name
    if not name:
        raise UsageError("model is required")
    settings = _manager(request).settings
    entry = find_model(name, settings)
    if entry.upstream is not None:
        used = (m for m in _manager(request).remote if m.entry.name == entry.name)
        told = next((m.engine.loaded.n_ctx for m in used), entry.upstream.n_ctx)
        n_ctx = told or UPSTREAM_N_CTX
        return json_response(describe.show_remote(entry, entry.upstream, n_ctx))
    path = await asyncio.to_thread(entry.ensure_file, settings)
    entry = find_model(name, settings)  # an embedded model has a file now
    info = await asyncio.to_thread(read_info, path)
    # Copilot Chat lists models by this field, so two of one family would look the same.
    is_copilot = request.headers.get("user-agent", "").startswith("GitHubCopilotChat/")
    return json_response(describe.show(entry, info, basename=name if is_copilot else ""))


async def chat(request: Request) -> Response:
    model = NamedModel(request)
    body = await model.read(ChatBody)
    if not body.model:
        raise UsageError("model is required")
    if not body.messages:
        reason = await _load_or_unload(model, body)
        return json_response(chat_frame(body.model, done=True, done_reason=reason))
    model.warn_of(tool.kind for tool in body.tools)
    writer = ChatWriter(
        body.model, with_progress=body.return_progress, with_tokens=body.return_tokens
    )
    return await _answer(model, body, writer)


async def generate(request: Request) -> Response:
    model = NamedModel(request)
    body = await model.read(GenerateBody)
    if not body.prompt:
        reason = await _load_or_unload(model, body)
        return json_response(generate_frame(body.model, done=True, done_reason=reason))
    return await _answer(model, body, GenerateWriter(body.model, with_context=not body.raw))


def _manager(request: Request) -> ModelManager:
    manager: ModelManager = request.app.state.manager
    return manager


def _keep_alive_s(body: ChatBody | GenerateBody) -> float | None:
    """Return how long the model stays; a user's key leaves that to the server's setting."""
    return None if current_caller().has_users_key else body.keep_alive_s


async def _load_or_unload(model: NamedModel, body: ChatBody | GenerateBody) -> str:
    """Load the model, or unload it with keep_alive 0; return done_reason."""
    manager, keep_alive_s = model.manager, _keep_alive_s(body)
    if body.keep_alive_s == 0:
        if keep_alive_s is None:
            raise UnauthorizedError(
                "unloading a model is for the owner of the server",
                hint="It leaves by itself once it has been idle for a while.",
            )
        await manager.unload(model.entry)
        return "unload"
    async with manager.use(model.entry, n_ctx=body.options.n_ctx, keep_alive_s=keep_alive_s):
        return "load"


async def _answer(
    model: NamedModel, body: ChatBody | GenerateBody, writer: AnswerWriter[ChatEvent]
) -> Response:
    asked = await model.asked(body.to_request)
    events = model.manager.answer(
        model.entry, asked, n_ctx=body.options.n_ctx, keep_alive_s=_keep_alive_s(body)
    )
    return AnswerResponse(events, writer, stream=body.stream)
