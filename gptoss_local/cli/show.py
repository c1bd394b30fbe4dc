"""`gptoss show`: details of a model. Reads the disk, needs no server."""

from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal

from gptoss_local.base.errors import UsageError
from gptoss_local.base.formats.gguf_file import GGUFInfo
from gptoss_local.base.settings import Settings, load_settings
from gptoss_local.cli._options import Json, ModelName, entry_to_read
from gptoss_local.cli._output import print_facts, print_json, progress_bar
from gptoss_local.machine.plan.facts import read_facts
from gptoss_local.machine.plan.memory import token_bytes
from gptoss_local.models.store import (
    ModelDefaults,
    ModelEntry,
    parameter_lines,
    read_info,
    render_modelfile,
)


def show(
    model: ModelName,
    modelfile: Annotated[
        bool, typer.Option("--modelfile", help="Print it as a Modelfile, for `create -f`.")
    ] = False,
    parameters: Annotated[bool, typer.Option("--parameters", help="Its options.")] = False,
    template: Annotated[bool, typer.Option("--template", help="Its prompt format.")] = False,
    system: Annotated[bool, typer.Option("--system", help="Its system message.")] = False,
    license: Annotated[bool, typer.Option("--license", help="Its license.")] = False,
    json: Json = False,
) -> None:
    settings = load_settings()
    entry = entry_to_read(model, settings)
    flags = {
        "modelfile": modelfile,
        "parameters": parameters,
        "template": template,
        "system": system,
        "license": license,
    }
    if wanted := [part for part, is_wanted in flags.items() if is_wanted]:
        if len(wanted) > 1:
            raise UsageError(f"--{wanted[0]} and --{wanted[1]} are two parts", hint="Choose one.")
        text = part_of(entry, wanted[0])
        print_json(name=entry.name, **{wanted[0]: text}) if json else print(text.rstrip("\n"))
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


def part_of(entry: ModelEntry, part: str) -> str:
    defaults = entry.defaults
    match part:
        case "modelfile":
            return render_modelfile(entry)
        case "parameters":
            return "\n".join(
                f"{name:<31}{value}" for name, value in parameter_lines(defaults.parameters)
            )
        case "template":
            return "gptoss renders harmony itself; a template is not used."
        case "system":
            return defaults.system or "No system message was specified for this model."
        case _:
            return "\n".join(defaults.license) or "No license was specified for this model."


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
