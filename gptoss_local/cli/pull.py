"""`gptoss pull`: downloads a model of the catalogue or the hub, and converts it as it arrives."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal

from gptoss_local.base.errors import ModelNotFoundError, UsageError
from gptoss_local.base.formats.ggml_types import GGML_TYPES
from gptoss_local.base.formats.gguf_file import read_info
from gptoss_local.base.settings import Settings, load_settings
from gptoss_local.cli._first_model import fetch, take_from_disk
from gptoss_local.cli._options import DenseType, Json, Quiet, repository, say_unreadable
from gptoss_local.cli._output import RESUMABLE, print_facts, print_json, progress_bar, say
from gptoss_local.engine.protocol import N_DRAFT_MAX
from gptoss_local.machine.plan.facts import published_facts
from gptoss_local.machine.plan.options import plan_options
from gptoss_local.machine.plan.words import rate
from gptoss_local.models.catalog import (
    CatalogModel,
    canonical_name,
    known_model,
    model_from,
)

if TYPE_CHECKING:
    from gptoss_local.models.pulling.pull import PullPreview

_SOURCES = {
    "checkpoint": "{repo}, converted while it arrives",
    "gguf": "{repo}, a ready GGUF",
    "cache": "{repo} in Hugging Face's cache on this disk, converted",
}


def pull(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="As gpt-oss:20b; or OWNER/NAME[:FILE|@REVISION]."),
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
    """The same command continues an interrupted download.

    With --json: a line per report, the last one with "event": "done".
    """
    settings = load_settings()
    say_unreadable(settings)
    known = known_model(canonical_name(model)) or model_from(repository(model) or "")
    if known and "/" in model:
        model = known.name
    if known and dense:
        _check_dense(dense, is_gguf=gguf or known.checkpoint is None)
    was_here = _is_here(model, settings, dense)
    if not was_here:
        if known is None:
            from gptoss_local.models.pulling.pull import pulled_model

            known = pulled_model(model)
            if dense:
                _check_dense(dense, is_gguf=known.checkpoint is None)
        if dry_run:
            from gptoss_local.models.pulling.pull import preview_pull

            _print_preview(preview_pull(known, settings, gguf=gguf), json)
            return
        was_here = not (quiet or json or dense) and take_from_disk(known, settings)
    if not was_here:
        is_quiet = quiet or json
        if known and not (is_quiet or dense or gguf):
            _propose_dense(known, settings)
        with progress_bar(tenths=True, quiet=is_quiet, if_interrupted=RESUMABLE) as bar:
            progress = _print_as_json if json else bar
            fetch(model, settings, gguf=gguf, dense=dense, progress=progress)
    if json:
        print_json(event="done", model=model, was_here=was_here)
    elif not quiet:
        what = "is on this machine already" if was_here else "is ready"
        print(f"{model} {what}: gptoss run {model}", file=sys.stderr)


def _propose_dense(known: CatalogModel, settings: Settings) -> None:
    if not (known.checkpoint and known.layers and known.experts):
        return
    from gptoss_local.machine.hardware import read_machine
    from gptoss_local.machine.plan.nearest import smaller_dense

    facts, here = published_facts(known.layers, known.experts), read_machine(settings.models_dir)
    if found := smaller_dense(facts, here, plan_options(settings, N_DRAFT_MAX)):
        plan, better = found
        how_much = "all" if better.is_enough else "more"
        say(
            f"With {better.flag}, a little less exact, {how_much} of it would be in VRAM: answers "
            f"{rate(better.decode_tok_s)} tokens/s instead of {rate(plan.speed.decode_tok_s)}. "
            "`gptoss plan` says more."
        )


def _check_dense(dense: str, *, is_gguf: bool) -> None:
    from convert.tensor_map import check_dense

    if is_gguf:
        raise UsageError("--dense is for checkpoints; a published GGUF is taken as it is")
    check_dense(dense)


def _is_here(name: str, settings: Settings, dense: str) -> bool:
    from gptoss_local.models.store import find_model

    try:
        entry = find_model(name, settings)
    except ModelNotFoundError:
        return False
    if dense and entry.path is not None:
        types = {tensor.name: tensor.type_id for tensor in read_info(entry.path).tensors}
        held = GGML_TYPES.get(types.get("token_embd.weight", -1))
        if held is not None and held.name.lower() != dense.lower():
            raise UsageError(
                f"{name} is on this machine already, with weights of type {held.name.lower()}",
                hint=f"Delete it first: gptoss rm {name}",
            )
    return True


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
