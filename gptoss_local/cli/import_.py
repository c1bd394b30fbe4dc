"""`gptoss import`: use a model where it is: a GGUF file, or what other programs have."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal

from gptoss_local.cli._options import Json, say_unreadable
from gptoss_local.cli._output import print_json, print_table, say
from gptoss_local.errors import ModelNotFoundError, UsageError
from gptoss_local.models.catalog import closest
from gptoss_local.settings import load_settings

if TYPE_CHECKING:
    from gptoss_local.models.store.external import FoundModel


def import_(
    source: Annotated[
        str | None, typer.Argument(metavar="SOURCE", help="GGUF file, or a name of the list.")
    ] = None,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The model's name here.")] = "",
    json: Json = False,
) -> None:
    """Use a model where it is; nothing is copied or changed.

    Without SOURCE: list the models of gpt-oss that Ollama and Hugging Face's cache have on this
    disk.
    """
    from gptoss_local.models.store import adopt_file
    from gptoss_local.models.store.external import find_elsewhere

    if source is None:
        _print(find_elsewhere(), json)
        return
    if Path(source).is_file():
        path = Path(source)
    else:
        path = _chosen(source, find_elsewhere())
        name = name or _name_in(source)
    settings = load_settings()
    say_unreadable(settings)
    entry = adopt_file(path, settings, name)
    if json:
        print_json(name=entry.name, path=str(entry.path), size_bytes=entry.size_bytes)
    else:
        say(f"{entry.name} is ready: gptoss run {entry.name}")


def _name_in(listed: str) -> str:
    """Turn a listed name into a model's name."""
    from gptoss_local.models.names import name_for

    name = listed.rpartition("/")[2]
    return name_for(Path(name)) if name.lower().endswith(".gguf") else name


def _chosen(name: str, found: "list[FoundModel]") -> Path:
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


def _print(found: "list[FoundModel]", json: bool) -> None:
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


def _how(found: "FoundModel") -> str:
    if found.kind == "gguf":
        return f"gptoss import {found.name}"
    return f"gptoss pull {found.model}" if found.model else f"gptoss convert {found.path} OUT.gguf"
