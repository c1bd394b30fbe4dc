"""Commands of the models on this machine: ls, cp, rm, gc and import."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal

from gptoss_local.base.errors import ModelLoadError, ModelNotFoundError, UsageError
from gptoss_local.base.formats.gguf_file import read_info, unused_keys
from gptoss_local.base.settings import load_settings
from gptoss_local.cli._options import (
    Json,
    ModelName,
    NamesOnly,
    named,
    running_server,
    say_unreadable,
)
from gptoss_local.cli._output import human_age, print_json, print_names, print_table, report, say
from gptoss_local.cli._question import confirm
from gptoss_local.models.catalog import canonical_name, closest
from gptoss_local.models.names import name_for
from gptoss_local.models.store import (
    Leftover,
    ModelEntry,
    adopt_file,
    check_deletable,
    find_garbage,
    list_models,
)
from gptoss_local.models.store.external import FoundModel, find_elsewhere


def ls(quiet: NamesOnly = False, json: Json = False) -> None:
    settings = load_settings()
    entries = list_models(settings)
    unreadable = say_unreadable(settings)
    if json:
        models = [
            {
                "name": entry.name,
                "id": entry.digest[:12],
                "path": str(entry.path) if entry.path else None,
                "adapter": str(entry.adapter) if entry.adapter else None,
                "size_bytes": entry.size_bytes if entry.path else None,
                "modified_s": entry.modified_ns / 1e9 if entry.path else None,
                "in_place": entry.is_in_place,
                "upstream": entry.upstream,
            }
            for entry in entries
        ]
        print_json(models=models, unreadable=unreadable)
        return
    if quiet:
        print_names(entry.name for entry in entries)
        return
    rows = [
        (
            entry.name,
            entry.digest[:12],
            decimal(entry.size_bytes) if entry.path else "-",
            _since(entry),
            _where(entry),
        )
        for entry in entries
    ]
    header = ["NAME", "ID", "SIZE", "MODIFIED"]
    if any(row[-1] for row in rows):  # some lie elsewhere
        print_table([*header, "WHERE"], rows)
    else:
        print_table(header, [row[:-1] for row in rows])


def _since(entry: ModelEntry) -> str:
    if entry.upstream:
        return "-"
    if not entry.path:
        return "built on first use"
    return f"{human_age(time.time() - entry.modified_ns / 1e9)} ago"


def _where(entry: ModelEntry) -> str:
    if entry.upstream:
        return f"{entry.upstream.kind} at {', '.join(entry.upstream.urls)}"
    return str(entry.path) if entry.is_in_place else ""


def cp(
    source: ModelName,
    destination: Annotated[str, typer.Argument(metavar="NAME", help="Its other name.")],
) -> None:
    settings = load_settings()
    source = named(source, settings)
    client = running_server(settings)
    client.post("/api/copy", {"source": source, "destination": destination})
    say(f"copied {source} to {destination}")


def rm(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Models to delete.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Asks first; without a terminal, -y is needed."""
    settings = load_settings()
    names = [canonical_name(model) for model in models]
    for name in names:  # all or none
        check_deletable(name, settings)
    if not yes:
        _confirm(names)
    client = running_server(settings)
    for name in dict.fromkeys(names):
        client.delete("/api/delete", {"model": name})
        say(f"deleted {name}")


def _confirm(names: list[str]) -> None:
    if not sys.stdin.isatty():
        raise UsageError(
            f"there is no terminal to ask whether to delete {', '.join(names)}",
            hint=f"To delete without asking: gptoss rm -y {' '.join(names)}",
        )
    if not confirm(f"Delete {', '.join(names)}?"):
        raise typer.Exit(1)


def gc(
    interrupted: Annotated[
        bool, typer.Option("--interrupted", help="Also what interrupted pulls would resume from.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list it.")] = False,
    json: Json = False,
) -> None:
    """They are uploads of which nothing was made in ten minutes, and leftovers of killed processes,
    also in the cache. While a manifest cannot be read, weights and uploads stay, with exit code 10.
    """
    settings = load_settings()
    unreadable = say_unreadable(settings)
    found = find_garbage(settings)
    going = [each for each in found if interrupted or each.kind != "interrupted"]
    if not dry_run:
        for each in going:
            each.remove()
    kept = [each for each in found if each not in going]
    if json:
        n_bytes = sum(each.size_bytes for each in going)
        removed = {"files": going, "freed_bytes": n_bytes, "removed": not dry_run, "kept": kept}
        print_json(**removed, unreadable=unreadable)
    else:
        _print_leftovers(going, kept, "could be freed" if dry_run else "freed")
    if unreadable:
        raise typer.Exit(ModelLoadError.exit_code)


def _print_leftovers(going: list[Leftover], kept: list[Leftover], what: str) -> None:
    if going:
        print_table(
            ("FILE", "SIZE", "WHAT"),
            [(each.path.name, decimal(each.size_bytes), each.kind) for each in going],
        )
    say(f"{size_of(going)} {what}")
    if kept:
        say(f"{size_of(kept)} belong to interrupted pulls; --interrupted removes them")


def size_of(files: list[Leftover]) -> str:
    return decimal(sum(each.size_bytes for each in files))


def import_(
    source: Annotated[
        str | None, typer.Argument(metavar="SOURCE", help="GGUF file, or a name of the list.")
    ] = None,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The model's name here.")] = "",
    json: Json = False,
) -> None:
    """Without SOURCE: list the models of gpt-oss that Ollama and Hugging Face's cache have on this
    disk.
    """
    if source is None:
        _print_found(find_elsewhere(), json)
        return
    if Path(source).is_dir() or source.endswith(".safetensors"):
        raise UsageError(
            f"{source} is a checkpoint, which has to be converted",
            hint="gptoss convert FOLDER OUT.gguf",
        )
    if Path(source).is_file():
        path = Path(source)
    else:
        path = _chosen(source, find_elsewhere())
        listed = source.rpartition("/")[2]
        name = name or (name_for(Path(listed)) if listed.lower().endswith(".gguf") else listed)
    settings = load_settings()
    say_unreadable(settings)
    entry = adopt_file(path, settings, name)
    for note in unused_keys(read_info(path).metadata):
        say(f"note: {note}")
    facts = {"name": entry.name, "path": str(entry.path), "size_bytes": entry.size_bytes}
    report(f"{entry.name} is ready: gptoss run {entry.name}", as_json=json, **facts)


def _chosen(name: str, found: list[FoundModel]) -> Path:
    each = next((each for each in found if each.name == name), None)
    if each is None:
        close = closest(name, [each.name for each in found])
        raise ModelNotFoundError(
            f"there is no file {name}, and no other program has a model of that name",
            hint=f"Did you mean {close}?" if close else "gptoss import lists what there is.",
        )
    if each.problem:
        raise UsageError(f"{name} cannot be used: {each.problem}")
    if each.kind == "checkpoint":
        how = f"gptoss pull {each.model}" if each.model else f"gptoss convert {each.path} OUT.gguf"
        raise UsageError(f"{name} is a checkpoint, which has to be converted", hint=how)
    return each.path


def _print_found(found: list[FoundModel], json: bool) -> None:
    if json:
        print_json(models=found)
        return
    if not found:
        say("neither Ollama nor Hugging Face's cache has a gpt-oss here")
        return
    rows = [
        (each.name, decimal(each.size_bytes), f"no: {each.problem}" if each.problem else _how(each))
        for each in found
    ]
    print_table(("NAME", "SIZE", "USE"), rows)


def _how(found: FoundModel) -> str:
    if found.kind == "gguf":
        return f"gptoss import {found.name}"
    return f"gptoss pull {found.model}" if found.model else f"gptoss convert {found.path} OUT.gguf"
