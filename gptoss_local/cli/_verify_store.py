"""Verifies models of this machine for `gptoss verify`: by name, by their sums, or all of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.filesize import decimal

from gptoss_local.cli._output import print_json, progress_bar
from gptoss_local.errors import ConvertError, ModelLoadError, ModelNotFoundError, VerifyError
from gptoss_local.models.names import name_of
from gptoss_local.printable import on_one_line
from gptoss_local.settings import Settings
from gptoss_local.types import Progress

if TYPE_CHECKING:
    from convert.verify import Report
    from gptoss_local.models.store import ModelEntry

_MAX_PRINTED = 20
_PIECE_BYTES = 1 << 20


def model_file(name: str, settings: Settings) -> Path:
    """Return the file of a model, after checking its sha256 where that is known.

    Raises:
        ModelNotFoundError: there is no such model, and no such file.
        VerifyError: a file of it is damaged.
    """
    from gptoss_local.models.store import find_model

    if name.lower().endswith(".gguf"):
        raise ModelNotFoundError(f"There is no file {name}.")
    entry = find_model(name, settings)
    path = entry.ensure_file(settings)
    with progress_bar(tenths=True) as progress:
        for _ in _check_sums(entry, settings, progress):
            pass
    return path


def verify_all(settings: Settings, *, json: bool, quiet: bool) -> None:
    """Check every model by itself, and name those that are damaged.

    Raises:
        VerifyError: some are.
    """
    from gptoss_local.models.store import list_models, unreadable_manifests

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


def _check(entry: "ModelEntry", settings: Settings, progress: Progress) -> str:
    """Check one model; by what, in words."""
    from convert.verify import verify_model

    assert entry.path is not None
    n_checked = sum(1 for _ in _check_sums(entry, settings, progress))
    report = verify_model(entry.path, progress=progress)
    if not report.is_proven:
        raise as_error(entry.path, report)
    if n_checked == len(entry.files):
        return "whole: the sha256 is right"
    has_sums = all(tensor.is_sum_right for tensor in report.tensors)
    return "whole: all sums are right" if has_sums else "plausible: it holds no sums"


def _check_sums(entry: "ModelEntry", settings: Settings, progress: Progress) -> Iterator[Path]:
    """Yield the files that have the sha256 that is known of them."""
    from gptoss_local.models.store import known_sha256

    for path in entry.files:
        if expected := known_sha256(path, settings):
            if _sha256(path, f"sha256 of {entry.name}", progress) != expected:
                raise VerifyError(
                    f"{path} is damaged: its sha256 is not {expected}.",
                    hint=f"Fetch the model again: gptoss rm {entry.name}",
                )
            yield path


def _sha256(path: Path, what: str, progress: Progress) -> str:
    import hashlib

    digest, n_done, n_total = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
            n_done += len(piece)
            progress(what, n_done, n_total)
    return digest.hexdigest()


def as_error(file: Path, report: "Report") -> VerifyError:
    """Say all that was found, as far as it can be read."""
    several = len(report.files) > 1
    lines = [f"{f'{each.file}: ' if several else ''}{each.message}" for each in report.findings]
    if len(lines) > _MAX_PRINTED:
        rest = f"and {len(lines) - _MAX_PRINTED} more; --json lists them all."
        lines = [*lines[:_MAX_PRINTED], rest]
    found = "".join(f"\n  - {line}" for line in lines)
    return VerifyError(
        f"{file} is not what it should be:{found}", hint="Convert or download it again."
    )
