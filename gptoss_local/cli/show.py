"""`gptoss show`: what a model's file says of itself. Reads the disk, needs no server."""

from rich.filesize import decimal

from gptoss_local.cli._options import Json, ModelName, named
from gptoss_local.cli._output import print_json, progress_bar
from gptoss_local.settings import load_settings


def show(model: ModelName, json: Json = False) -> None:
    """Show details of MODEL."""
    from gptoss_local.store import find_model, read_info

    settings = load_settings()
    entry = find_model(named(model, settings), settings)
    with progress_bar() as progress:
        path = entry.ensure_file(settings, progress)
    info = read_info(path)
    if json:
        print_json(name=entry.name, path=str(path), size_bytes=info.size_bytes, keys=info.metadata)
        return
    arch = info.architecture
    facts = {
        "name": entry.name,
        "file": str(path),
        "size": decimal(info.size_bytes),
        "architecture": arch,
        "parameters": f"{info.n_parameters / 1e6:,.1f} M",
        "quantization": info.quantization,
        "context length": f"{info.n_ctx_train:,}",
        "layers": str(info.metadata.get(f"{arch}.block_count", "?")),
        "experts": f"{info.metadata.get(f'{arch}.expert_count', '?')}, "
        f"{info.metadata.get(f'{arch}.expert_used_count', '?')} active",
    }
    for name, value in facts.items():
        print(f"{name:<16}{value}")
