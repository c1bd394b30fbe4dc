"""`gptoss stop`: unload models, or end the server."""

from typing import Annotated

import typer

from gptoss_local.cli._options import named
from gptoss_local.cli._output import say
from gptoss_local.errors import UsageError
from gptoss_local.settings import load_settings


def stop(
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="Model to unload; without one, the server ends."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Unload all models; the server keeps running.")
    ] = False,
) -> None:
    """Unload MODEL, or stop the server."""
    from gptoss_local.api.client import Client

    if every and model is not None:
        raise UsageError("either a model or --all")
    settings = load_settings()
    client = Client(settings)
    if not client.is_running():
        say("no server is running")
        return
    if model is None and not every:
        client.post("/api/gptoss/shutdown", {})
        say("the server is stopping")
        return
    loaded = [m.name for m in client.running_models()] if every else []
    for name in loaded if model is None else [named(model, settings)]:
        client.unload(name)
        say(f"unloaded {name}")
