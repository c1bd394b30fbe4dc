"""`gptoss convert`: a checkpoint, from a folder or the hub, to a GGUF file."""

import shutil
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.filesize import decimal

from gptoss_local.base.quantities import parse_size
from gptoss_local.base.settings import load_settings
from gptoss_local.cli._options import (
    Adapter,
    DenseType,
    Json,
    Quiet,
    Tokenizer,
    Workers,
    adapter_folder,
    repository,
)
from gptoss_local.cli._output import RESUMABLE, print_json, print_table, progress_bar, say

if TYPE_CHECKING:
    from convert import ConversionPlan, ConvertOptions

Experts = Annotated[
    Literal["mxfp4", "bf16"],
    typer.Option(help="Type of 16-bit or merged experts; mxfp4 rounds them."),
]
MaxShardSize = Annotated[
    str, typer.Option(metavar="SIZE", help="Split the output into files up to SIZE, as 4GB.")
]
DeleteSource = Annotated[
    bool, typer.Option("--delete-source", help="Delete each shard once it is converted.")
]
DownloadDir = Annotated[
    Path | None,
    typer.Option(help="Keep what is downloaded here; by default each shard goes after its use."),
]
Original = Annotated[
    bool, typer.Option("--original", help="Of a repository, take OpenAI's layout in original/.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be written, and write nothing.")
]


def convert(
    source: Annotated[
        str,
        typer.Argument(metavar="DIR|REPO", help="A folder, OWNER/NAME[@REVISION], or its address."),
    ],
    target: Annotated[Path, typer.Argument(metavar="OUT.gguf", help="File to write.")],
    dense: DenseType = "q8_0",
    experts: Experts = "mxfp4",
    adapter: Adapter = "",
    tokenizer: Tokenizer = None,
    workers: Workers = None,
    max_shard_size: MaxShardSize = "",
    delete_source: DeleteSource = False,
    download_dir: DownloadDir = None,
    original: Original = False,
    dry_run: DryRun = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """The same command continues an interrupted conversion."""
    max_shard_bytes = parse_size(max_shard_size, "--max-shard-size") if max_shard_size else None
    options: ConvertOptions = {
        "dense": dense,
        "experts": experts,
        "tokenizer": tokenizer,
        "max_shard_bytes": max_shard_bytes,
    }
    if adapter:
        with progress_bar(quiet=quiet) as progress:
            options["adapter"] = adapter_folder(adapter, progress)
    if dry_run:
        from convert import plan_conversion  # PERF: NumPy, 0.3 s of a Tab

        _print_plan(plan_conversion(Path(source), target, **options), json)
        return
    make = _maker(source, download_dir, original)
    if target.parent == load_settings().models_dir:
        target.parent.mkdir(parents=True, exist_ok=True)
    notes: list[str] = []
    with progress_bar(tenths=True, quiet=quiet, if_interrupted=RESUMABLE) as progress:
        written = make(
            target=target,
            **options,
            n_workers=workers,
            delete_source=delete_source,
            progress=progress,
            on_note=notes.append,
        )
    _print_result(written, notes, json, quiet)


def _maker(source: str, download_dir: Path | None, original: bool) -> Callable[..., list[Path]]:
    repo = None if Path(source).exists() else repository(source)
    if repo is None:
        from convert import convert_checkpoint

        return partial(convert_checkpoint, Path(source))
    from gptoss_local.models.pulling.pull import pull_checkpoint

    return partial(pull_checkpoint, repo, folder=download_dir, original=original)


def _print_result(written: list[Path], notes: list[str], json: bool, quiet: bool) -> None:
    first, *others = map(str, written)
    size_bytes = sum(path.stat().st_size for path in written)
    if json:
        print_json(path=first, size_bytes=size_bytes, files=[first, *others], notes=notes)
    elif not quiet:
        _print_notes(notes)
        more = f" and {len(others)} more" if others else ""
        say(f"wrote {first}{more} ({decimal(size_bytes)})")


def _print_notes(notes: Iterable[str]) -> None:
    for note in notes:
        say(f"note: {note}")


def _print_plan(plan: "ConversionPlan", json: bool) -> None:
    folder = next(path for path in plan.target.absolute().parents if path.is_dir())
    n_free = shutil.disk_usage(folder).free
    if json:
        files = [
            {
                "path": str(file.path),
                "size_bytes": file.n_bytes,
                "tensors": [
                    {
                        "name": tensor.name,
                        "type": tensor.qtype.name,
                        "shape": tensor.shape[::-1],
                        "size_bytes": tensor.n_bytes,
                        "offset": offset,
                    }
                    for tensor, offset in zip(file.tensors, file.offsets, strict=True)
                ],
            }
            for file in plan.files
        ]
        print_json(files=files, size_bytes=plan.n_file_bytes, free_bytes=n_free, notes=plan.notes)
        return
    rows = [
        [
            tensor.name,
            tensor.qtype.name,
            " x ".join(map(str, tensor.shape[::-1])),
            f"{tensor.n_bytes:,}",
            file.path.name,
            f"{offset:,}",
        ]
        for file in plan.files
        for tensor, offset in zip(file.tensors, file.offsets, strict=True)
    ]
    print_table(["NAME", "TYPE", "SHAPE", "BYTES", "FILE", "OFFSET"], rows)
    _print_notes(plan.notes)
    print(
        f"{len(rows)} tensors, {decimal(plan.n_file_bytes)} in {len(plan.files)} "
        f"file{'s' if len(plan.files) > 1 else ''}; {decimal(n_free)} free"
    )
