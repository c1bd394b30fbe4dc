"""`gptoss verify`: check a GGUF, or all models of this machine."""

import hashlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.filesize import decimal

from gptoss_local.base.errors import (
    ConvertError,
    ModelLoadError,
    ModelNotFoundError,
    UsageError,
    VerifyError,
)
from gptoss_local.base.printable import on_one_line
from gptoss_local.base.settings import Settings, load_settings
from gptoss_local.base.types import Progress
from gptoss_local.cli._options import (
    Adapter,
    Json,
    Quiet,
    Tokenizer,
    Workers,
    adapter_folder,
    repository,
)
from gptoss_local.cli._output import print_json, print_table, progress_bar, say
from gptoss_local.models.names import name_of
from gptoss_local.models.store import (
    ModelEntry,
    find_model,
    known_sha256,
    list_models,
    unreadable_manifests,
)

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

_MAX_PRINTED = 20
_PIECE_BYTES = 1 << 20


def verify(
    file: Annotated[
        str, typer.Argument(metavar="MODEL|FILE", help="A model, or a .gguf; of several, any.")
    ] = "",
    all_models: Annotated[
        bool, typer.Option("--all", help="Check every model on this machine by itself.")
    ] = False,
    against: Against = "",
    download_dir: DownloadDir = None,
    adapter: Adapter = "",
    tokenizer: Tokenizer = None,
    workers: Workers = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Exit code 0 means that nothing is wrong; notes name things that cannot be proven."""
    from convert.verify import verify_model  # PERF: NumPy, 0.2 s of a Tab

    settings = load_settings()
    if all_models or not file:
        if not all_models:
            raise UsageError("nothing to verify", hint="gptoss verify MODEL, FILE.gguf or --all")
        if file or against:
            raise UsageError("--all takes no model and no --against")
        _verify_all(settings, json=json, quiet=quiet)
        return
    path = Path(file) if Path(file).is_file() else _model_file(file, settings)
    with (
        progress_bar(tenths=True, quiet=quiet) as progress,
        _checkpoint(against, download_dir, progress) as checkpoint,
    ):
        report = verify_model(
            path,
            **checkpoint,
            tokenizer=tokenizer,
            adapter=adapter_folder(adapter, progress),
            n_workers=workers,
            progress=progress,
        )
    if json:
        _print_as_json(report)
    elif not quiet:
        _print(report)
    if not report.is_proven:
        raise _as_error(path, report)


@contextmanager
def _checkpoint(against: str, folder: Path | None, progress: Progress) -> Iterator[dict[str, Any]]:
    """Yield the arguments of `verify_model` about a checkpoint; one of a repository is fetched."""
    if not against or Path(against).is_dir():
        yield {"against": Path(against)} if against else {}
        return
    name = repository(against)
    if name is None:
        raise UsageError(
            f"There is no folder {against}, and it is not the name of a repository.",
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
            yield {
                "against": checkpoint.folder,
                "arrivals": arriving,
                "on_used": lambda shard: None if shard in kept else shard.unlink(),
            }


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
        say(f"note: {note}")
    if report.is_proven:
        size, rate = decimal(report.n_bytes), decimal(int(report.n_bytes / report.seconds))
        what = "plausible, but not proven" if report.unproven else "proven"
        say(
            f"{what}: {report.files[0].name}, {len(report.tensors)} tensors, {size} in "
            f"{report.seconds:.1f} s ({rate}/s)"
        )


def _model_file(name: str, settings: Settings) -> Path:
    """Return the file of a model, after checking its sha256 where that is known."""
    if name.lower().endswith(".gguf"):
        raise ModelNotFoundError(f"There is no file {name}.")
    entry = find_model(name, settings)
    path = entry.ensure_file(settings)
    with progress_bar(tenths=True) as progress:
        for _ in _check_sums(entry, settings, progress):
            pass
    return path


def _verify_all(settings: Settings, *, json: bool, quiet: bool) -> None:
    unreadable = unreadable_manifests(settings)
    damaged = {name_of(path): f"{e.message}. {e.hint}" for path, e in unreadable.items()}
    entries = [entry for entry in list_models(settings) if entry.path is not None]
    is_quiet = json or quiet
    for entry in entries:
        try:
            with progress_bar(tenths=True, quiet=is_quiet) as progress:
                how = _check(entry, settings, progress)
        except (VerifyError, ModelLoadError, ConvertError) as error:
            damaged[entry.name], how = error.message, "DAMAGED"
        if not is_quiet:
            name = on_one_line(entry.name)
            print(f"{name}  {decimal(entry.size_bytes)}  {how}", flush=True)
    if json:
        print_json(models=[entry.name for entry in entries], damaged=damaged)
    if damaged:
        found = "".join(f"\n  - {name}: {message}" for name, message in damaged.items())
        raise VerifyError(
            f"{len(damaged)} of {len(entries) + len(unreadable)} models are damaged:{found}",
            hint="Delete and fetch damaged weights again: gptoss rm NAME, gptoss pull NAME.",
        )


def _check(entry: ModelEntry, settings: Settings, progress: Progress) -> str:
    from convert.verify import verify_model

    assert entry.path is not None
    n_checked = sum(1 for _ in _check_sums(entry, settings, progress))
    report = verify_model(entry.path, progress=progress)
    if not report.is_proven:
        raise _as_error(entry.path, report)
    if n_checked == len(entry.files):
        return "whole: the sha256 is right"
    has_sums = all(tensor.is_sum_right for tensor in report.tensors)
    return "whole: all sums are right" if has_sums else "plausible: it holds no sums"


def _check_sums(entry: ModelEntry, settings: Settings, progress: Progress) -> Iterator[Path]:
    for path in entry.files:
        if expected := known_sha256(path, settings):
            if _sha256(path, f"sha256 of {entry.name}", progress) != expected:
                raise VerifyError(
                    f"{path} is damaged: its sha256 is not {expected}.",
                    hint=f"Fetch the model again: gptoss rm {entry.name}",
                )
            yield path


def _sha256(path: Path, what: str, progress: Progress) -> str:
    digest, n_done, n_total = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
            n_done += len(piece)
            progress(what, n_done, n_total)
    return digest.hexdigest()


def _as_error(file: Path, report: "Report") -> VerifyError:
    several = len(report.files) > 1
    lines = [f"{f'{each.file}: ' if several else ''}{each.message}" for each in report.findings]
    if len(lines) > _MAX_PRINTED:
        rest = f"and {len(lines) - _MAX_PRINTED} more; --json lists them all."
        lines = [*lines[:_MAX_PRINTED], rest]
    found = "".join(f"\n  - {line}" for line in lines)
    return VerifyError(
        f"{file} is not what it should be:{found}", hint="Convert or download it again."
    )
