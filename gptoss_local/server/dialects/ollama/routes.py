"""Ollama's `/api/*`. Source: its server/routes.go; docs/api.md has deliberate differences."""

import asyncio
import datetime
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from gptoss_local.api.answers import ChatFrame, GenerateFrame
from gptoss_local.api.models import (
    InstalledModel,
    InstalledModels,
    ModelDetails,
    ModelEnergy,
    RunningModel,
    RunningModels,
    ServerVersion,
    ShownModel,
    ShownTensor,
)
from gptoss_local.base.errors import (
    ModelLoadError,
    ModelNotFoundError,
    UnauthorizedError,
    UsageError,
)
from gptoss_local.base.formats.ggml_types import GGML_TYPES
from gptoss_local.base.formats.gguf_file import TensorInfo
from gptoss_local.harmony import ChatEvent
from gptoss_local.models.catalog import UpstreamAddress
from gptoss_local.models.store import (
    GGUFInfo,
    ModelEntry,
    find_model,
    list_models,
    parameter_lines,
    read_info,
    render_modelfile,
)
from gptoss_local.runner.elsewhere import RemoteModel
from gptoss_local.runner.loading import LoadedModel
from gptoss_local.runner.upstream.wire import N_CTX as UPSTREAM_N_CTX
from gptoss_local.server.access import current_caller
from gptoss_local.server.dialect import Endpoints
from gptoss_local.server.dialects.named_model import NamedModel, manager_of, read_named, settings_of
from gptoss_local.server.dialects.ollama.frames import (
    ChatWriter,
    GenerateWriter,
    chat_frame,
    generate_frame,
)
from gptoss_local.server.dialects.ollama.request import TEMPLATE, ChatBody, GenerateBody, ShowBody
from gptoss_local.server.streaming import NDJSON, AnswerResponse, AnswerWriter, json_response

CAPABILITIES = ["completion", "tools", "thinking"]
_FAMILY = "gptoss"  # the name under which clients know the architecture
_DEFAULTS = {"temperature": 1, "top_p": 1, "top_k": 0}
_NEVER = "2318-01-01T00:00:00Z"  # keep-alive forever, as Ollama spells it


def tag(entry: ModelEntry) -> InstalledModel:
    """Return one element of `GET /api/tags`; a broken file is listed without its details."""
    upstream = entry.upstream
    try:
        info = read_info(entry.path) if entry.path and not upstream else None
    except ModelLoadError:
        info = None
    parent = entry.defaults.parent
    return InstalledModel(
        name=entry.name,
        model=entry.name,
        modified_at=_modified_at(entry),
        size=info.size_bytes if info else 0,
        digest=entry.digest,
        details=_remote_details(upstream.n_ctx) if upstream else details(info, parent),
        capabilities=CAPABILITIES,
        **_remote_fields(upstream),
    )


def _remote_fields(upstream: UpstreamAddress | None) -> dict[str, Any]:
    if upstream is None:
        return {}
    return {"remote_model": upstream.model, "remote_host": upstream.urls[0]}


def _remote_details(n_ctx: int) -> ModelDetails:
    return ModelDetails(
        parent_model="",
        format="",
        family=_FAMILY,
        families=[_FAMILY],
        parameter_size="",
        quantization_level="",
        context_length=n_ctx,
    )


def details(info: GGUFInfo | None, parent: str = "") -> ModelDetails:
    return ModelDetails(
        parent_model=parent,
        format="gguf",
        family=_FAMILY,
        families=[_FAMILY],
        parameter_size=_parameter_size(info.n_parameters) if info else "",
        quantization_level=info.quantization if info else "MXFP4",
        context_length=info.n_ctx_train if info else 0,
        embedding_length=info.n_embd if info else 0,
    )


def described(entry: ModelEntry, info: GGUFInfo, *, basename: str = "") -> ShownModel:
    """Return the answer of `POST /api/show`; `basename` replaces the file's `general.basename`."""
    model_info = _model_info(info)
    if basename:
        model_info["general.basename"] = basename
    return _shown(entry, details(info, entry.defaults.parent), model_info)


def described_remote(entry: ModelEntry, upstream: UpstreamAddress, n_ctx: int) -> ShownModel:
    model_info = {
        "general.architecture": _FAMILY,
        "general.basename": entry.name,
        f"{_FAMILY}.context_length": n_ctx,
    }
    return _shown(entry, _remote_details(n_ctx), model_info)


def _shown(entry: ModelEntry, found: ModelDetails, model_info: dict[str, Any]) -> ShownModel:
    defaults = entry.defaults
    parameters = parameter_lines(_DEFAULTS | defaults.parameters)
    return ShownModel(
        license="\n".join(defaults.license),
        modelfile=render_modelfile(entry),
        parameters="\n".join(f"{name:<31}{value}" for name, value in parameters),
        template=TEMPLATE,
        system=defaults.system,
        messages=[{"role": "", "content": ""} | message for message in defaults.messages],
        details=found,
        model_info=model_info,
        capabilities=CAPABILITIES,
        modified_at=_modified_at(entry),
        **_remote_fields(entry.upstream),
    )


def running_remote(model: RemoteModel) -> RunningModel:
    n_ctx, address = model.engine.loaded.n_ctx, model.engine.address
    return RunningModel(
        name=model.entry.name,
        model=model.entry.name,
        size=0,
        digest=model.entry.digest,
        details=_remote_details(n_ctx),
        expires_at=_NEVER,
        size_vram=0,
        context_length=n_ctx,
        remote_model=address.model,
        remote_host=address.urls[0],
    )


def running(model: LoadedModel, energy: ModelEnergy | None) -> RunningModel:
    loaded = model.engine.loaded
    return RunningModel(
        name=model.entry.name,
        model=model.entry.name,
        size=loaded.size_bytes,
        digest=model.entry.digest,
        details=details(model.info, model.entry.defaults.parent),
        expires_at=_expires_at(model),
        size_vram=_size_vram(model),
        context_length=loaded.n_ctx,
        energy=energy,
        kv_type=model.plan.shape.cache_type,
    )


def _size_vram(model: LoadedModel) -> int:
    """Return the weights on GPUs; all of them if llama.cpp chose for itself and found a device."""
    loaded, plan = model.engine.loaded, model.plan
    if not plan.n_gpus:
        return loaded.size_bytes if loaded.has_gpu else 0
    return round(loaded.size_bytes * plan.vram_share)


def _model_info(info: GGUFInfo) -> dict[str, Any]:
    """Return the GGUF's keys, sorted: clients take the first that contains `context_length`."""
    prefix = f"{info.architecture}."
    found = {
        key.replace(prefix, f"{_FAMILY}.", 1) if key.startswith(prefix) else key: value
        for key, value in info.metadata.items()
        if key not in ("general.name", "tokenizer.chat_template")
    }
    found["general.architecture"] = _FAMILY
    found["general.parameter_count"] = info.n_parameters
    found.setdefault("general.basename", "gpt-oss")
    return dict(sorted(found.items()))


def _tensor(tensor: TensorInfo) -> ShownTensor:
    known = GGML_TYPES.get(tensor.type_id)
    kind = known.name if known else str(tensor.type_id)
    return ShownTensor(tensor.name, kind, list(tensor.shape[::-1]))


def _parameter_size(n_parameters: int) -> str:
    n_millions = n_parameters / 1e6
    return f"{n_millions / 1e3:.1f}B" if n_millions >= 1e3 else f"{n_millions:.1f}M"


def _modified_at(entry: ModelEntry) -> str:
    return datetime.datetime.fromtimestamp(entry.modified_ns / 1e9).astimezone().isoformat()


def _expires_at(model: LoadedModel) -> str:
    if model.keep_alive_s < 0:
        return _NEVER
    left_s = model.keep_alive_s
    if model.expires_s is not None:
        left_s = model.expires_s - time.monotonic()
    expires = datetime.datetime.now().astimezone() + datetime.timedelta(seconds=left_s)
    return expires.isoformat()


endpoints = Endpoints()
OLLAMA_VERSION = "0.33.0"  # the contract we speak; clients compare it with their minimum


@endpoints.for_keys("GET", "/api/version", "Ollama's version", ServerVersion)
async def version(_request: Request) -> Response:
    return json_response(ServerVersion(OLLAMA_VERSION))


@endpoints.for_keys("GET", "/api/tags", "Models on disk", InstalledModels)
async def tags(request: Request) -> Response:
    settings = settings_of(request)
    models = await asyncio.to_thread(lambda: list(map(tag, list_models(settings))))
    return json_response(InstalledModels(models))


@endpoints.for_keys("GET", "/api/ps", "Models in memory", RunningModels)
async def ps(request: Request) -> Response:
    manager = manager_of(request)
    models = [  # the last used first
        running(model, await manager.energy.of(model)) for model in manager.loaded[::-1]
    ]
    models += map(running_remote, manager.remote)
    return json_response(RunningModels(sorted(models, key=lambda m: m.expires_at, reverse=True)))


@endpoints.for_keys("POST", "/api/show", "Details of a model", ShownModel, ShowBody)
async def show(request: Request) -> Response:
    body = await read_named(request, ShowBody)
    name = body.model or body.name
    if not name:
        raise UsageError("model is required")
    settings = settings_of(request)
    entry = find_model(name, settings)
    if entry.upstream is not None:
        used = (m for m in manager_of(request).remote if m.entry.name == entry.name)
        told = next((m.engine.loaded.n_ctx for m in used), entry.upstream.n_ctx)
        n_ctx = told or UPSTREAM_N_CTX
        return json_response(described_remote(entry, entry.upstream, n_ctx))
    path = await asyncio.to_thread(entry.ensure_file, settings)
    entry = find_model(name, settings)  # an embedded model has a file now
    info = await asyncio.to_thread(read_info, path)
    # Copilot Chat lists models by this field, so two of one family would look the same.
    is_copilot = request.headers.get("user-agent", "").startswith("GitHubCopilotChat/")
    shown = described(entry, info, basename=name if is_copilot else "")
    if body.verbose:
        shown.tensors = list(map(_tensor, info.tensors))
    return json_response(shown)


@endpoints.metered("/api/chat", "Answer a conversation", ChatFrame, ChatBody, stream=NDJSON)
async def chat(request: Request) -> Response:
    model = NamedModel(request)
    body = await model.read(ChatBody)
    if not body.messages:
        reason = await _load_or_unload(model, body)
        return json_response(chat_frame(body.model, done=True, done_reason=reason))
    model.warn_of(tool.kind for tool in body.tools)
    writer = ChatWriter(
        body.model, with_progress=body.return_progress, with_tokens=body.return_tokens
    )
    return await _answer(model, body, writer)


@endpoints.metered("/api/generate", "Answer a prompt", GenerateFrame, GenerateBody, stream=NDJSON)
async def generate(request: Request) -> Response:
    model = NamedModel(request)
    body = await model.read(GenerateBody)
    if not body.model:
        raise ModelNotFoundError("model '' not found")
    if not body.prompt:
        reason = await _load_or_unload(model, body)
        return json_response(generate_frame(body.model, done=True, done_reason=reason))
    return await _answer(model, body, GenerateWriter(body.model, with_context=not body.raw))


def _keep_alive_s(body: ChatBody | GenerateBody) -> float | None:
    return None if current_caller().has_users_key else body.keep_alive_s


async def _load_or_unload(model: NamedModel, body: ChatBody | GenerateBody) -> str:
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
