"""`gptoss gc`: remove what no model needs. Works on the disk, needs no server."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal

from gptoss_local.cli._options import Json, say_unreadable
from gptoss_local.cli._output import print_json, print_table, say
from gptoss_local.errors import ModelLoadError
from gptoss_local.settings import load_settings

if TYPE_CHECKING:
    from gptoss_local.models.store import Leftover


def gc(
    interrupted: Annotated[
        bool, typer.Option("--interrupted", help="Also what interrupted pulls would resume from.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list it.")] = False,
    json: Json = False,
) -> None:
    """Remove files that no model needs.

    These are uploads of which nothing was made in ten minutes, and what killed processes left,
    also in the cache. While a manifest cannot be read, weights and uploads stay, with exit code 10.
    """
    from gptoss_local.models.store import find_garbage

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
        _print(going, kept, "could be freed" if dry_run else "freed")
    if unreadable:
        raise typer.Exit(ModelLoadError.exit_code)


def _print(going: "list[Leftover]", kept: "list[Leftover]", what: str) -> None:
    if going:
        print_table(
            ("FILE", "SIZE", "WHAT"),
            [(each.path.name, decimal(each.size_bytes), each.kind) for each in going],
        )
    say(f"{_size(going)} {what}")
    if kept:
        say(f"{_size(kept)} belong to interrupted pulls; --interrupted removes them")


def _size(files: "list[Leftover]") -> str:
    return decimal(sum(each.size_bytes for each in files))
