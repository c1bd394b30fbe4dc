"""Describes a model for tags, show and ps. Source: Ollama's server/routes.go."""

import datetime
import time
from typing import Any

from gptoss_local.api.models import (
    InstalledModel,
    ModelDetails,
    ModelEnergy,
    RunningModel,
    ShownModel,
)
from gptoss_local.base.errors import ModelLoadError
from gptoss_local.models.catalog import UpstreamAddress
from gptoss_local.models.store import (
    GGUFInfo,
    ModelEntry,
    parameter_lines,
    read_info,
    render_modelfile,
)
from gptoss_local.runner.elsewhere import RemoteModel
from gptoss_local.runner.loading import LoadedModel

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


def _remote_fields(upstream: UpstreamAddress | None) -> dict[str, str]:
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


def show(entry: ModelEntry, info: GGUFInfo, *, basename: str = "") -> ShownModel:
    """Return the answer of `POST /api/show`; `basename` replaces the file's `general.basename`."""
    model_info = _model_info(info)
    if basename:
        model_info["general.basename"] = basename
    return _shown(entry, details(info, entry.defaults.parent), model_info)


def show_remote(entry: ModelEntry, upstream: UpstreamAddress, n_ctx: int) -> ShownModel:
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
        template="",
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


def _parameter_size(n_parameters: int) -> str:
    if n_parameters >= 1e9:
        return f"{n_parameters / 1e9:.1f}B"
    return f"{n_parameters / 1e6:.1f}M"


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
