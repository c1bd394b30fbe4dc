"""`gptoss convert`: a checkpoint directory to a GGUF file."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal

from gptoss_local.cli._options import Json
from gptoss_local.cli._output import print_json, progress_bar
from gptoss_local.settings import load_settings


class Dense(StrEnum):
    q8_0 = "q8_0"
    bf16 = "bf16"


def convert(
    source: Annotated[Path, typer.Argument(metavar="DIR", help="Hugging Face checkpoint folder.")],
    target: Annotated[Path, typer.Argument(metavar="OUT.gguf", help="File to write.")],
    dense: Annotated[
        Dense, typer.Option(help="Type of attention, embedding and head.")
    ] = Dense.q8_0,
    json: Json = False,
) -> None:
    """Convert a gpt-oss checkpoint to GGUF; the MXFP4 experts stay bit-exact."""
    from convert import convert_checkpoint

    if target.parent == load_settings().models_dir:
        target.parent.mkdir(parents=True, exist_ok=True)
    with progress_bar() as progress:
        convert_checkpoint(source, target, dense=dense.value, progress=progress)
    size_bytes = target.stat().st_size
    if json:
        print_json(path=str(target), size_bytes=size_bytes)
    else:
        print(f"wrote {target} ({decimal(size_bytes)})", file=sys.stderr)
