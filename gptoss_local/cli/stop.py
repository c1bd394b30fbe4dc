"""`gptoss stop`: unload a model, or end the server."""

import sys
from typing import Annotated

import typer

from gptoss_local.cli._options import named
from gptoss_local.settings import load_settings


def stop(
    model: Annotated[
        str | None, typer.Argument(help="Model to unload; without one, the server ends.")
    ] = None,
) -> None:
    """Unload MODEL, or stop the server."""
    from gptoss_local.client import Client

    settings = load_settings()
    client = Client(settings)
    if not client.is_running():
        print("no server is running", file=sys.stderr)
    elif model is None:
        client.post("/api/gptoss/shutdown", {})
        print("the server stops", file=sys.stderr)
    else:
        client.post("/api/generate", {"model": named(model, settings), "keep_alive": 0})
