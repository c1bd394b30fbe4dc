"""Options that several commands share."""

import os
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ModelName = Annotated[str, typer.Argument(metavar="MODEL", help="Name, or path of a GGUF file.")]


def absolute(model: str) -> str:
    """Make the path of a model file absolute: the server has a working directory of its own."""
    return os.path.abspath(model) if os.path.isfile(model) else model
