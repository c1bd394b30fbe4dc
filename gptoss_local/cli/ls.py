"""`gptoss ls`: the models of this machine. Reads the disk, needs no server."""

import time
from typing import TYPE_CHECKING

from rich.filesize import decimal

from gptoss_local.cli._options import Json, NamesOnly, say_unreadable
from gptoss_local.cli._output import human_age, print_json, print_names, print_table
from gptoss_local.settings import load_settings

if TYPE_CHECKING:
    from gptoss_local.models.store import ModelEntry


def ls(quiet: NamesOnly = False, json: Json = False) -> None:
    """List the models on this machine."""
    from gptoss_local.models.store import list_models

    settings = load_settings()
    entries = list_models(settings)
    unreadable = say_unreadable(settings)
    if json:
        models = [
            {
                "name": entry.name,
                "id": entry.digest[:12],
                "path": str(entry.path) if entry.path else None,
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


def _since(entry: "ModelEntry") -> str:
    if entry.upstream:
        return "-"
    if not entry.path:
        return "built on first use"
    return f"{human_age(time.time() - entry.modified_ns / 1e9)} ago"


def _where(entry: "ModelEntry") -> str:
    if entry.upstream:
        return f"{entry.upstream.kind} at {', '.join(entry.upstream.urls)}"
    return str(entry.path) if entry.is_in_place else ""
