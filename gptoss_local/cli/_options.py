"""Options that several commands share."""

import os
from pathlib import Path
from typing import Annotated

import typer

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


def absolute(model: str) -> str:
    """Make the path of a model file absolute: the server has a working directory of its own."""
    return os.path.abspath(model) if os.path.isfile(model) else model
