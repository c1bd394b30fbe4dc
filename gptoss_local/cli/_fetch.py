"""A pull with its progress, for `gptoss pull` and for models that are fetched when first used."""

import sys
from typing import TYPE_CHECKING

from rich.filesize import decimal

from gptoss_local.cli._question import confirm
from gptoss_local.errors import DownloadError
from gptoss_local.models.catalog import CatalogModel
from gptoss_local.settings import Settings

if TYPE_CHECKING:
    from gptoss_local.models.store.external import FoundModel
    from gptoss_local.types import Progress


def fetch(
    model: CatalogModel,
    settings: Settings,
    *,
    gguf: bool = False,
    dense: str = "",
    progress: "Progress",
) -> None:
    """Pull a model; Ctrl-C ends it immediately and loses nothing.

    A process does the work: it can be killed where a thread would wait for a network that is gone.
    """
    from gptoss_local.models.pulling.process import STEP, read_line, start

    with start(model.name, settings, gguf=gguf, dense=dense or "q8_0") as process:
        assert process.stdout is not None
        try:
            for text in process.stdout:
                line = read_line(text)
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
    """Offer a file of the model that another program has; True if it is the model from now on.

    Without a terminal it is only mentioned.
    """
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
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        print(f"{what}; to use that: gptoss import {found.name} {model.name}", file=sys.stderr)
        return False
    return confirm(f"{what}. Use it where it is?", default=True)
