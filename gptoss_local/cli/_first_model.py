"""Choose the model of `run` and `chat` if none is named, and download models with progress."""

import signal
import sys
from typing import TYPE_CHECKING

from rich.filesize import decimal

from gptoss_local.base.errors import DownloadError, GptOssError, UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.cli._output import RESUMABLE, print_error, print_table, progress_bar, say
from gptoss_local.cli._question import choose, confirm, has_terminal
from gptoss_local.models.catalog import CatalogModel, catalog, known_model

if TYPE_CHECKING:
    from gptoss_local.api.gptoss import ModelFit
    from gptoss_local.base.types import Progress
    from gptoss_local.machine.hardware import Machine
    from gptoss_local.models.store.external import FoundModel


def chosen_model(settings: Settings) -> str:
    """Return the newest readable model, or a remote one; with nano alone, offer downloads."""
    from gptoss_local.models.store import check_usable, list_models

    for entry in list_models(settings):
        if entry.upstream:
            return entry.name
        if entry.path is None or entry.embedded:
            continue
        try:
            check_usable(entry.path)
        except GptOssError as error:
            say(
                f"gptoss: {entry.name} is skipped, as it cannot be loaded: {error.message}\n"
                f"  Convert or fetch it again, or delete it: gptoss rm {entry.name}"
            )
        else:
            return entry.name
    if not has_terminal():
        first = next(model.name for model in catalog() if model.repo)
        raise UsageError(
            "no model is on this machine yet, and none was named",
            hint=f"Fetch one: gptoss pull {first}. "
            f"Or try the tiny one that is always here: gptoss run {_embedded()}",
        )
    print("No model is on this machine yet. It can run:\n")
    return ask_for_model(settings)


def offer_download(name: str, settings: Settings) -> bool:
    """Ask whether to download a model of the catalogue; False if it is not downloaded."""
    known = known_model(name)
    if known is None or not known.repo or not has_terminal():
        return False
    question = f"{name} is not on this machine. Download it ({_size(known)})?"
    if not confirm(question, default=True):
        return False
    _fetch(known, settings)
    return True


def ask_for_model(settings: Settings, machine: "Machine | None" = None) -> str:
    from gptoss_local.machine.hardware import read_machine
    from gptoss_local.runner.fits import advice, fit_to_download, suggestion

    machine = machine or read_machine(settings.models_dir)
    models = [model for model in catalog() if model.repo and not model.is_special]
    fits = {
        model.name: fit_to_download(model, machine, settings)
        for model in models
        if model.layers and model.experts
    }
    rows = [
        (str(i), model.name, _size(model), _words(model, fits.get(model.name)))
        for i, model in enumerate(models, start=1)
    ]
    rows.append((str(len(rows) + 1), _embedded(), "is here", "tiny, to try the program"))
    print_table(("", "MODEL", "DOWNLOAD", "HERE, ESTIMATED"), rows)
    best = suggestion(list(fits.values()))
    default = len(rows) if best is None else [model.name for model in models].index(best.name) + 1
    print(f"\n{advice(best, settings)}")
    while True:
        number = choose("Which one?", len(rows), default=default)
        if number == len(rows):
            return _embedded()
        model = models[number - 1]
        try:
            _fetch(model, settings)
        except GptOssError as error:
            print_error(error)
            default = len(rows)
            say(f"{model.name} is not here yet. Enter takes {_embedded()}; {number} tries again.")
        else:
            return model.name


def _embedded() -> str:
    return next(model.name for model in catalog() if model.embedded)


def _words(model: CatalogModel, fit: "ModelFit | None") -> str:
    from gptoss_local.machine.plan.words import rate

    if fit is None:
        return f"for {model.needs.vram} of VRAM, {model.needs.ram} of RAM"
    place = {"vram": "all on the GPU", "split": "partly on the GPU"}.get(fit.fits, "without a GPU")
    return fit.problem or f"about {rate(fit.tokens_s)} tokens/s, {place}"


def _size(model: CatalogModel) -> str:
    return decimal(model.download_bytes) if model.download_bytes else "size unknown"


def _fetch(model: CatalogModel, settings: Settings) -> None:
    if take_from_disk(model, settings):
        return
    with progress_bar(tenths=True, if_interrupted=RESUMABLE) as progress:
        fetch(model.name, settings, progress=progress)


def fetch(
    model: str,
    settings: Settings,
    *,
    gguf: bool = False,
    dense: str = "",
    progress: "Progress",
) -> None:
    """Pull a model; Ctrl-C or SIGTERM ends it immediately and loses nothing.

    A process does the work: a thread could not be killed while the network hangs.
    """
    from gptoss_local.models.pulling.process import STEP, Note, read_line, start

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with start(model, settings, gguf=gguf, dense=dense or "q8_0") as process:
        assert process.stdout is not None
        try:
            for text in process.stdout:
                line = read_line(text)
                if isinstance(line, Note):
                    say(f"note: {line.text}")
                else:
                    progress(STEP, line.done, line.total)
            code = process.wait()
        finally:
            process.kill()
    if code:
        raise DownloadError(
            f"the pull stopped unexpectedly (exit code {code})",
            hint="The same command continues it.",
        )


def take_from_disk(model: CatalogModel, settings: Settings) -> bool:
    """Offer another program's file of the model, or mention it; return whether it was taken."""
    from gptoss_local.models.store import adopt_file
    from gptoss_local.models.store.external import find_elsewhere

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
    if not has_terminal():
        print(f"{what}; to use that: gptoss import {found.name} {model.name}", file=sys.stderr)
        return False
    return confirm(f"{what}. Use it where it is?", default=True)
