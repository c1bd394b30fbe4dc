"""`gptoss verify`: whether a GGUF is what it should be."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal

from gptoss_local.cli._options import Json, Quiet, Tokenizer, Workers
from gptoss_local.cli._output import print_json, print_table, progress_bar
from gptoss_local.cli._repository import repository
from gptoss_local.cli._verify_store import as_error, model_file, verify_all
from gptoss_local.errors import UsageError
from gptoss_local.settings import load_settings
from gptoss_local.types import Progress

if TYPE_CHECKING:
    from convert.verify import Report

_N_PARALLEL = 2  # downloads in parallel: with the shard that is compared, three are on the disk

Against = Annotated[
    str,
    typer.Option(metavar="DIR|REPO", help="Checkpoint to compare with: a folder or OWNER/NAME."),
]
DownloadDir = Annotated[
    Path | None, typer.Option(help="Folder for a REPO's shards while they are needed.")
]


def verify(
    file: Annotated[
        str, typer.Argument(metavar="MODEL|FILE", help="A model, or a .gguf; of several, any.")
    ] = "",
    all_models: Annotated[
        bool, typer.Option("--all", help="Check every model on this machine by itself.")
    ] = False,
    against: Against = "",
    download_dir: DownloadDir = None,
    tokenizer: Tokenizer = None,
    workers: Workers = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Verify that a gpt-oss GGUF is complete and matches its checkpoint.

    Exit code 0 means that nothing is wrong; notes say what cannot be proven.
    """
    from convert.verify import verify_model

    settings = load_settings()
    if all_models or not file:
        _check_usage(file, against, all_models)
        verify_all(settings, json=json, quiet=quiet)
        return
    path = Path(file) if Path(file).is_file() else model_file(file, settings)
    with progress_bar(tenths=True, quiet=quiet) as progress:
        if not against or Path(against).is_dir():
            source = Path(against) if against else None
            report = verify_model(
                path, against=source, tokenizer=tokenizer, n_workers=workers, progress=progress
            )
        else:
            with _download(against, download_dir, progress) as (source, arrivals, on_used):
                report = verify_model(
                    path,
                    against=source,
                    tokenizer=tokenizer,
                    arrivals=arrivals,
                    on_used=on_used,
                    n_workers=workers,
                    progress=progress,
                )
    if json:
        _print_as_json(report)
    elif not quiet:
        _print(report)
    if not report.is_proven:
        raise as_error(path, report)


def _check_usage(file: str, against: str, all_models: bool) -> None:
    if not all_models:
        raise UsageError("nothing to verify", hint="gptoss verify MODEL, FILE.gguf or --all")
    if file or against:
        raise UsageError("--all takes no model and no --against")


@contextmanager
def _download(
    repo: str, folder: Path | None, progress: Progress
) -> Iterator[tuple[Path, Iterable[Path], Callable[[Path], None]]]:
    """Fetch a checkpoint: its folder, the shards as they arrive, and what to do with used ones."""
    name = repository(repo)
    if name is None:
        raise UsageError(
            f"There is no folder {repo}, and it is not the name of a repository.",
            hint="Name a checkpoint's folder, or a repository such as openai/gpt-oss-20b.",
        )
    from gptoss_local.models.hub import open_checkpoint

    cache = load_settings().cache_dir
    cache.mkdir(parents=True, exist_ok=True)
    with (
        TemporaryDirectory(prefix="verify-", dir=cache) as temporary,
        open_checkpoint(name, folder or Path(temporary)) as checkpoint,
    ):
        checkpoint.fetch_small_files(progress=progress)
        kept = set(checkpoint.folder.glob("*.safetensors"))  # not ours to delete
        shards = [f for f in checkpoint.listing.files.values() if f.name.endswith(".safetensors")]
        sizes = [shard.size_bytes for shard in shards if "/" not in shard.name]
        needed_bytes = (_N_PARALLEL + 2) * max(sizes, default=0)
        arriving = checkpoint.iter_shards(
            n_parallel=_N_PARALLEL,
            extra_bytes=min(0, needed_bytes - sum(sizes)),
            progress=progress,
        )
        with closing(arriving):
            yield checkpoint.folder, arriving, lambda p: None if p in kept else p.unlink()


def _print_as_json(report: "Report") -> None:
    print_json(
        proven=report.is_proven and not report.unproven,
        unproven=report.unproven,
        files=[str(path) for path in report.files],
        findings=report.findings,
        notes=report.notes,
        classes=report.classes,
        tensors=report.tensors,
        size_bytes=report.n_bytes,
        seconds=round(report.seconds, 3),
    )


def _print(report: "Report") -> None:
    rows = [
        [
            each.name,
            str(each.n_tensors),
            str(each.n_equal),
            str(each.n_rounded),
            str(each.n_alike),
            str(each.n_different),
            "not finite" if each.worst_error is None else f"{each.worst_error:.3g}",
            each.worst_tensor if each.worst_error != 0 else "",
        ]
        for each in report.classes
    ]
    if rows:
        matches = ("EQUAL", "ROUNDED", "ALIKE", "DIFFERENT")
        print_table(["CLASS", "TENSORS", *matches, "WORST ERROR", "IN"], rows)
    for note in report.notes:
        print(f"note: {note}", file=sys.stderr)
    if report.is_proven:
        size, rate = decimal(report.n_bytes), decimal(int(report.n_bytes / report.seconds))
        what = "plausible, but not proven" if report.unproven else "proven"
        print(
            f"{what}: {report.files[0].name}, {len(report.tensors)} tensors, {size} in "
            f"{report.seconds:.1f} s ({rate}/s)",
            file=sys.stderr,
        )
