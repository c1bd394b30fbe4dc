"""Options that several commands share, and what these need before they ask the server."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gptoss_local.cli._output import progress_bar
from gptoss_local.errors import ModelNotFoundError
from gptoss_local.settings import Settings

if TYPE_CHECKING:
    from gptoss_local.client import Client

INTERRUPTED = 130  # the exit code after Ctrl-C

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
NamesOnly = Annotated[bool, typer.Option("--quiet", "-q", help="Print names only.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Threads; by default one per core, at most 8.")
]
Tokenizer = Annotated[
    Path | None,
    typer.Option(help="Folder, tokenizer.json, .tiktoken or .gguf with the vocabulary."),
]
ModelName = Annotated[str, typer.Argument(metavar="MODEL", help="Name, or path of a GGUF file.")]


def named(model: str, settings: Settings) -> str:
    """Return the name of a model; the path of a GGUF file makes it one where it lies.

    The server takes names alone, so that no request reaches a file that its user did not name.
    """
    from gptoss_local.store import adopt_file

    is_file = model.endswith(".gguf") and Path(model).is_file()
    return adopt_file(Path(model), settings).name if is_file else model


def running_server(settings: Settings) -> "Client":
    """A client of the server, which is started unless it runs."""
    from gptoss_local.client import Client

    client = Client(settings)
    client.ensure_running()
    return client


def server_for(model: str, settings: Settings) -> "Client":
    """Make sure that a model's file and a server are there; show what takes time.

    Raises:
        ModelNotFoundError: there is no such model, and it is not to be downloaded.
    """
    from gptoss_local.store import find_model

    try:
        entry = find_model(model, settings)
    except ModelNotFoundError:
        from gptoss_local.catalog import canonical_name
        from gptoss_local.cli._first_model import offer_download

        if not offer_download(canonical_name(model), settings):
            raise
        entry = find_model(model, settings)
    if entry.path is None:
        with progress_bar() as progress:
            entry.ensure_file(settings, progress)
    return running_server(settings)
