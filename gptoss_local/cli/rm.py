"""`gptoss rm`: delete models."""

import sys
from typing import Annotated

import typer

from gptoss_local.cli._options import running_server
from gptoss_local.cli._output import say
from gptoss_local.cli._question import confirm
from gptoss_local.errors import UsageError
from gptoss_local.models.catalog import canonical_name
from gptoss_local.settings import load_settings


def rm(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Models to delete.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete models. Asks first; without a terminal, -y is needed."""
    from gptoss_local.models.store import check_deletable

    settings = load_settings()
    names = [canonical_name(model) for model in models]
    for name in names:  # all or none
        check_deletable(name, settings)
    if not yes:
        _confirm(names)
    client = running_server(settings)
    for name in dict.fromkeys(names):
        client.delete("/api/delete", {"model": name})
        say(f"deleted {name}")


def _confirm(names: list[str]) -> None:
    if not sys.stdin.isatty():
        raise UsageError(
            f"there is no terminal to ask whether to delete {', '.join(names)}",
            hint=f"To delete without asking: gptoss rm -y {' '.join(names)}",
        )
    if not confirm(f"Delete {', '.join(names)}?"):
        raise typer.Exit(1)
