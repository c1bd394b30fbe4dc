"""`gptoss pull`: downloads a model of the catalogue and converts it as it arrives."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal

from gptoss_local.catalog import (
    CatalogModel,
    canonical_name,
    catalog,
    known_model,
    pull_advice,
)
from gptoss_local.cli._fetch import fetch
from gptoss_local.cli._options import DenseType, Json, Quiet
from gptoss_local.cli._output import RESUMABLE, confirm, print_facts, print_json, progress_bar
from gptoss_local.cli._repository import repository
from gptoss_local.errors import ModelNotFoundError, UsageError
from gptoss_local.formats.ggml_types import GGML_TYPES
from gptoss_local.formats.gguf_file import read_info
from gptoss_local.settings import Settings, load_settings

if TYPE_CHECKING:
    from gptoss_local.pulling.preview import PullPreview
    from gptoss_local.store.external import FoundModel

_SOURCES = {
    "checkpoint": "{repo}, converted while it arrives",
    "gguf": "{repo}, a ready GGUF",
    "cache": "{repo} in Hugging Face's cache on this disk, converted",
}


def pull(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model of the catalogue, as gpt-oss:20b.")
    ],
    gguf: Annotated[
        bool, typer.Option("--gguf", help="Take the published GGUF, and convert nothing.")
    ] = False,
    dense: DenseType = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be fetched, and fetch nothing.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Download MODEL and convert it while it arrives.

    What was interrupted is continued by the same command. With --json: a line per report, the last
    one with "event": "done".
    """
    settings = load_settings()
    known = known_model(canonical_name(model))
    if known is None and (known := _model_at(repository(model))):
        model = known.name
    if known is None:
        raise ModelNotFoundError(
            f"the catalogue does not know {model}", hint=pull_advice(canonical_name(model))
        )
    if dense:
        _check_dense(dense, is_gguf=gguf or known.checkpoint is None)
    if dry_run:
        from gptoss_local.pulling.preview import preview_pull

        _print_preview(preview_pull(known, settings, gguf=gguf), json)
        return
    was_here = _is_here(known, settings, dense) or (
        not (quiet or json or dense) and _taken_from_disk(known, settings)
    )
    if not was_here:
        is_quiet = quiet or json
        with progress_bar(tenths=True, quiet=is_quiet, if_interrupted=RESUMABLE) as bar:
            progress = _print_as_json if json else bar
            fetch(known, settings, gguf=gguf, dense=dense, progress=progress)
    if json:
        print_json(event="done", model=model, was_here=was_here)
    elif not quiet:
        what = "is on this machine already" if was_here else "is ready"
        print(f"{model} {what}: gptoss run {model}", file=sys.stderr)


def _model_at(repo: str | None) -> CatalogModel | None:
    """Find the model of the catalogue that comes from a repository."""
    for model in catalog() if repo else ():
        sources = [source.repo for source in (model.checkpoint, model.gguf) if source]
        if repo in [source.partition("@")[0] for source in sources]:
            return model
    return None


def _check_dense(dense: str, *, is_gguf: bool) -> None:
    from convert.tensor_map import check_dense

    if is_gguf:
        raise UsageError("--dense is for checkpoints; a published GGUF is taken as it is")
    check_dense(dense)


def _is_here(model: CatalogModel, settings: Settings, dense: str) -> bool:
    """Return whether a model is on this machine.

    Raises:
        UsageError: it is, but its dense weights are of another type than `dense`.
    """
    from gptoss_local.store import find_model

    try:
        entry = find_model(model.name, settings)
    except ModelNotFoundError:
        return False
    if dense and entry.path is not None:
        types = {tensor.name: tensor.type_id for tensor in read_info(entry.path).tensors}
        held = GGML_TYPES.get(types.get("token_embd.weight", -1))
        if held is not None and held.name.lower() != dense.lower():
            raise UsageError(
                f"{model.name} is on this machine already, with weights of type "
                f"{held.name.lower()}",
                hint=f"Delete it first: gptoss rm {model.name}",
            )
    return True


def _taken_from_disk(model: CatalogModel, settings: Settings) -> bool:
    """Offer a file of the model that another program has; without a terminal only mention it."""
    from gptoss_local.store import adopt_file
    from gptoss_local.store.external import find_elsewhere

    found = [f for f in find_elsewhere() if f.model == model.name and f.kind == "gguf"]
    for each in found:
        if each.problem:
            print(f"{each.owner} has {model.name}, but {each.problem}", file=sys.stderr)
    usable = next((each for each in found if not each.problem), None)
    if usable is None or not _is_wanted(usable, model):
        return False
    adopt_file(usable.path, settings, model.name)
    return True


def _is_wanted(found: "FoundModel", model: CatalogModel) -> bool:
    what = f"{found.owner} has {model.name} on this disk ({decimal(found.size_bytes)})"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        print(f"{what}; to use that: gptoss import {found.name} {model.name}", file=sys.stderr)
        return False
    return confirm(f"{what}. Use it where it is?", default=True)


def _print_as_json(step: str, done: int, total: int) -> None:
    print_json(event="progress", step=step, completed_bytes=done, total_bytes=total)


def _print_preview(preview: "PullPreview", json: bool) -> None:
    if json:
        print_json(pull=preview)
        return
    room = "" if preview.free_bytes >= preview.needed_bytes else ": NOT ENOUGH"
    held = f", {decimal(preview.held_bytes)} of it are here" if preview.held_bytes else ""
    files = (f"{name}  {decimal(n_bytes)}" for name, n_bytes in preview.files.items())
    facts = {
        "model": preview.model,
        "from": _SOURCES[preview.source].format(repo=preview.repo),
        "commit": preview.commit or "the hub was not asked",
        "files": "\n".join(files),
        "download": f"{decimal(preview.download_bytes)}{held}",
        "to": str(preview.target),
        "disk": f"{decimal(preview.needed_bytes)} needed, {decimal(preview.free_bytes)} free{room}",
    }
    print_facts({name: text for name, text in facts.items() if text})
