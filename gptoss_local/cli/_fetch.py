"""A pull with its progress, for `gptoss pull` and for models that are fetched when first used."""

from typing import TYPE_CHECKING

from gptoss_local.catalog import CatalogModel
from gptoss_local.errors import DownloadError
from gptoss_local.settings import Settings

if TYPE_CHECKING:
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
    from gptoss_local.pulling.process import STEP, read_line, start

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
