"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from gptoss_local.settings import Settings

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
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
