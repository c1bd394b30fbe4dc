"""`gptoss ls`: the models of this machine. Reads the disk, needs no server."""

import time

from rich.filesize import decimal

from gptoss_local.cli._options import Json, NamesOnly
from gptoss_local.cli._output import human_age, print_json, print_table
from gptoss_local.settings import load_settings


def ls(quiet: NamesOnly = False, json: Json = False) -> None:
    """List the models on this machine."""
    from gptoss_local.store import list_models

    entries = list_models(load_settings())
    stats = [(entry, entry.path.stat() if entry.path else None) for entry in entries]
    if json:
        models = [
            {
                "name": entry.name,
                "id": entry.digest[:12],
                "path": str(entry.path) if entry.path else None,
                "size_bytes": stat.st_size if stat else None,
                "modified_s": stat.st_mtime if stat else None,
            }
            for entry, stat in stats
        ]
        print_json(models=models)
        return
    if quiet:
        print("".join(f"{entry.name}\n" for entry in entries), end="")
        return
    rows = [
        (
            entry.name,
            entry.digest[:12],
            decimal(stat.st_size) if stat else "-",
            f"{human_age(time.time() - stat.st_mtime)} ago" if stat else "built on first use",
        )
        for entry, stat in stats
    ]
    print_table(("NAME", "ID", "SIZE", "MODIFIED"), rows)
