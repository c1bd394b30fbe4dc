"""`gptoss cp`: another name for a model."""

from typing import Annotated

import typer

from gptoss_local.cli._options import ModelName, named, running_server
from gptoss_local.cli._output import say
from gptoss_local.settings import load_settings


def cp(
    source: ModelName,
    destination: Annotated[str, typer.Argument(metavar="NAME", help="Its other name.")],
) -> None:
    """Give MODEL another name; both share one file on the disk."""
    settings = load_settings()
    source = named(source, settings)
    client = running_server(settings)
    client.post("/api/copy", {"source": source, "destination": destination})
    say(f"copied {source} to {destination}")
