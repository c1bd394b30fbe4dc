"""`gptoss load`: bring a model into memory before it is needed."""

import sys
from typing import Annotated, Any

import typer

from gptoss_local.catalog import canonical_name
from gptoss_local.cli._loading import follow_load
from gptoss_local.cli._options import Json, ModelName, named, server_for
from gptoss_local.cli._output import print_json, progress_bar
from gptoss_local.settings import load_settings


def load(
    model: ModelName,
    ctx: Annotated[
        int | None, typer.Option("--ctx", min=1, help="Least tokens of context.")
    ] = None,
    keep_alive: Annotated[
        str,
        typer.Option("--keep-alive", metavar="TIME", help="As 90s, 10m or 2h; -1 is for ever."),
    ] = "",
    json: Json = False,
) -> None:
    """Load MODEL into memory.

    With --json: a line per report, the last one with "event": "done".
    """
    settings = load_settings()
    model = named(model, settings)
    client = server_for(model, settings)
    body: dict[str, Any] = {"model": model}
    if ctx is not None:
        body["options"] = {"num_ctx": ctx}
    if keep_alive:
        body["keep_alive"] = int(keep_alive) if keep_alive.lstrip("-").isdigit() else keep_alive
    with progress_bar(tenths=True, quiet=json) as bar:
        n_tries = follow_load(client, body, _print_as_json if json else bar)
    name = canonical_name(model)
    loaded = next((m for m in client.get("/api/ps")["models"] if m["name"] == name), None)
    if json:
        print_json(event="done", model=loaded)
    elif loaded is not None:
        tries = f", planned smaller {n_tries - 1} times" if n_tries > 1 else ""
        print(
            f"{name} is loaded, {loaded['context_length']:,} tokens of context{tries}",
            file=sys.stderr,
        )


def _print_as_json(_what: str, done: int, total: int) -> None:
    print_json(event="progress", completed_bytes=done, total_bytes=total)
