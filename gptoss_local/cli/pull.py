"""`gptoss pull`: a model of the catalogue, downloaded and converted meanwhile. Needs no server."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal

from gptoss_local.catalog import CatalogModel, canonical_name, known_model, pull_advice
from gptoss_local.cli._options import INTERRUPTED, Json, Quiet
from gptoss_local.cli._output import print_facts, print_json, progress_bar
from gptoss_local.errors import DownloadError, ModelNotFoundError
from gptoss_local.settings import Settings, load_settings

if TYPE_CHECKING:
    from gptoss_local.pull_preview import PullPreview
    from gptoss_local.store.elsewhere import FoundModel
    from gptoss_local.types import Progress

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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be fetched, and fetch nothing.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Download MODEL and convert it meanwhile.

    What was interrupted is continued by the same command. With --json: a line per report, the last
    one with "event": "done".
    """
    settings = load_settings()
    known = known_model(canonical_name(model))
    if known is None:
        raise ModelNotFoundError(
            f"the catalogue does not know {model}", hint=pull_advice(canonical_name(model))
        )
    if dry_run:
        from gptoss_local.pull_preview import preview_pull

        _print_preview(preview_pull(known, settings, gguf=gguf), json)
        return
    was_here = _is_here(known, settings) or (
        not (quiet or json) and _taken_from_disk(known, settings)
    )
    if not was_here:
        with progress_bar(tenths=True, quiet=quiet or json) as bar:
            fetch(known, settings, gguf=gguf, progress=_print_as_json if json else bar)
    if json:
        print_json(event="done", model=model, was_here=was_here)
    elif not quiet:
        what = "is on this machine already" if was_here else "is ready"
        print(f"{model} {what}: gptoss run {model}", file=sys.stderr)


def fetch(
    model: CatalogModel, settings: Settings, *, gguf: bool = False, progress: "Progress"
) -> None:
    """Pull a model; Ctrl-C ends the command at once and loses nothing.

    A process does the work: it can be killed where a thread would wait for a network that is gone.
    """
    from gptoss_local.server.pull_process import STEP, read_line, start

    with start(model.name, settings, gguf=gguf) as process:
        assert process.stdout is not None
        try:
            for text in process.stdout:
                line = read_line(text)
                progress(STEP, line.done, line.total)
            code = process.wait()
        except KeyboardInterrupt:
            print("interrupted; the same command goes on where this one stopped", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None
        finally:
            process.kill()
    if code:
        raise DownloadError(
            f"the pull has unexpectedly stopped (exit code {code})",
            hint="The same command continues it.",
        )


def _is_here(model: CatalogModel, settings: Settings) -> bool:
    from gptoss_local.store import find_model

    try:
        find_model(model.name, settings)
    except ModelNotFoundError:
        return False
    return True


def _taken_from_disk(model: CatalogModel, settings: Settings) -> bool:
    """Offer a file of the model that another program has; without a terminal only tell of it."""
    from gptoss_local.store import adopt_file
    from gptoss_local.store.elsewhere import find_elsewhere

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
    return typer.confirm(f"{what}. Use it where it lies?", default=True, err=True)


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
