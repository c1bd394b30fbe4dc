"""`gptoss show`: details of a model. Reads the disk, needs no server."""

from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal

from gptoss_local.base.formats.gguf_file import GGUFInfo
from gptoss_local.base.settings import Settings, load_settings
from gptoss_local.cli._options import Json, ModelName, entry_to_read
from gptoss_local.cli._output import print_facts, print_json, progress_bar
from gptoss_local.machine.plan.facts import read_facts
from gptoss_local.machine.plan.memory import token_bytes
from gptoss_local.models.store import ModelDefaults, ModelEntry, read_info, render_modelfile


def show(
    model: ModelName,
    modelfile: Annotated[
        bool, typer.Option("--modelfile", help="Print it as a Modelfile, for `create -f`.")
    ] = False,
    json: Json = False,
) -> None:
    settings = load_settings()
    entry = entry_to_read(model, settings)
    if modelfile:
        text = render_modelfile(entry)
        print_json(name=entry.name, modelfile=text) if json else print(text, end="")
        return
    if json and entry.upstream:
        print_json(name=entry.name, upstream=entry.upstream, defaults=entry.defaults)
    elif json:
        path, info = _read(entry, settings)
        print_json(
            name=entry.name,
            path=str(path),
            adapter=str(entry.adapter) if entry.adapter else None,
            size_bytes=entry.size_bytes or info.size_bytes,
            defaults=entry.defaults,
            keys=info.metadata,
        )
    else:
        print_facts(facts_of(entry, settings))


def facts_of(entry: ModelEntry, settings: Settings) -> dict[str, str]:
    if upstream := entry.upstream:
        facts = {
            "name": entry.name,
            "computed by": upstream.kind,
            "at": "\n".join(upstream.urls),
            "model there": upstream.model,
            "key": f"in the variable {upstream.key_env}" if upstream.key_env else "none",
            "context length": f"{upstream.n_ctx:,}" if upstream.n_ctx else "as it says",
        }
        return {name: value for name, value in facts.items() if value} | _carried(entry.defaults)
    path, info = _read(entry, settings)
    arch, kind = info.architecture, settings.kv_type
    facts = {
        "name": entry.name,
        "file": str(path),
        "adapter": str(entry.adapter or ""),
        "size": decimal(entry.size_bytes or info.size_bytes),
        "architecture": arch,
        "parameters": f"{info.n_parameters / 1e6:,.1f} M",
        "quantization": info.quantization,
        "context length": f"{info.n_ctx_train:,}",
        "KV cache": f"{kind}, {decimal(token_bytes(read_facts(path), kind))} a token",
        "layers": str(info.metadata.get(f"{arch}.block_count", "?")),
        "experts": f"{info.metadata.get(f'{arch}.expert_count', '?')}, "
        f"{info.metadata.get(f'{arch}.expert_used_count', '?')} active",
    }
    return {name: value for name, value in facts.items() if value} | _carried(entry.defaults)


def _read(entry: ModelEntry, settings: Settings) -> tuple[Path, GGUFInfo]:
    with progress_bar() as progress:
        path = entry.ensure_file(settings, progress)
    return path, read_info(path)


def _carried(defaults: ModelDefaults) -> dict[str, str]:
    parameters = (f"{key} {value}" for key, value in defaults.parameters.items())
    messages = (f"{m.get('role')}: {m.get('content', '')}" for m in defaults.messages)
    found = {
        "made from": defaults.parent,
        "system": defaults.system,
        "defaults": "\n".join(parameters),
        "messages": "\n".join(messages),
        "license": "\n".join(defaults.license),
    }
    return {name: value for name, value in found.items() if value}
