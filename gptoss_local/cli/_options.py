"""Options that several commands share."""

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ModelName = Annotated[str, typer.Argument(metavar="MODEL", help="Name, or path of a GGUF file.")]
