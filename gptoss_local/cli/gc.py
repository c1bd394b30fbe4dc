"""`gptoss gc`: remove what no model needs. Works on the disk, needs no server."""

import sys
from typing import Annotated

import typer
from rich.filesize import decimal

from gptoss_local.cli._options import Json
from gptoss_local.cli._output import print_json, print_table
from gptoss_local.settings import load_settings


def gc(
    interrupted: Annotated[
        bool, typer.Option("--interrupted", help="Also what interrupted pulls would resume from.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list it.")] = False,
    json: Json = False,
) -> None:
    """Remove files that no model needs.

    These are uploads of which nothing was made, and what killed processes left, also in the cache.
    What was touched in the models folder in the last ten minutes stays.
    """
    from gptoss_local.models.store import find_garbage

    found = find_garbage(load_settings())
    going = [each for each in found if interrupted or each.kind != "interrupted"]
    if not dry_run:
        for each in going:
            each.remove()
    n_bytes = sum(each.size_bytes for each in going)
    kept = [each for each in found if each not in going]
    if json:
        print_json(files=going, freed_bytes=n_bytes, removed=not dry_run, kept=kept)
        return
    if going:
        print_table(
            ("FILE", "SIZE", "WHAT"),
            [(each.path.name, decimal(each.size_bytes), each.kind) for each in going],
        )
    what = "could be freed" if dry_run else "freed"
    print(f"{decimal(n_bytes)} {what}", file=sys.stderr)
    if kept:
        n_kept_bytes = sum(each.size_bytes for each in kept)
        print(
            f"{decimal(n_kept_bytes)} belong to interrupted pulls; --interrupted removes them",
            file=sys.stderr,
        )
