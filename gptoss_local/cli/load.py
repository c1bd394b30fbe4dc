"""`gptoss load`: bring a model into memory before it is needed."""

from typing import Annotated, Any

import typer

from gptoss_local.cli._loading import continues, follow_load, loaded_model, warn_if_smaller
from gptoss_local.cli._options import Json, KeepAlive, ModelName, keep_alive_of, named, server_for
from gptoss_local.cli._output import print_json, progress_bar, say
from gptoss_local.models.catalog import canonical_name
from gptoss_local.settings import load_settings


def load(
    model: ModelName,
    ctx: Annotated[
        int | None, typer.Option("--ctx", min=1, help="Least tokens of context.")
    ] = None,
    keep_alive: KeepAlive = "",
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
        body["keep_alive"] = keep_alive_of(keep_alive)
    with progress_bar(tenths=True, quiet=json, if_interrupted=continues(model)) as bar:
        n_tries = follow_load(client, body, _print_as_json if json else bar)
    loaded = loaded_model(client, model)
    warn_if_smaller(loaded, ctx)
    if json:
        print_json(event="done", model=loaded)
    elif loaded is not None:
        tries = f", planned smaller {n_tries - 1} times" if n_tries > 1 else ""
        say(
            f"{canonical_name(model)} is loaded, {loaded.context_length:,} tokens of context{tries}"
        )


def _print_as_json(_what: str, done: int, total: int) -> None:
    print_json(event="progress", completed_bytes=done, total_bytes=total)
