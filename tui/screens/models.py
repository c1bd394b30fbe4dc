"""The model picker: models on this machine, and others of the catalogue."""

from collections.abc import Awaitable, Callable, Iterator
from typing import ClassVar

from rich.filesize import decimal
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import OptionList, ProgressBar, Static
from textual.widgets.option_list import Option

from gptoss_local.api.gptoss import ModelFit
from gptoss_local.api.models import InstalledModel, RunningModel
from gptoss_local.base.errors import GptOssError
from gptoss_local.base.printable import printable
from gptoss_local.models.catalog import CatalogModel, catalog
from tui.downloads import Download
from tui.screens.dialog import Dialog


class ModelsDialog(Dialog[str | None]):
    """Chooses a model; None leaves it as it is. `fits` is asked once the list is shown."""

    TITLE = "Models"
    KEYS = "Enter choose, or download   Esc leave"

    def __init__(
        self,
        tags: list[InstalledModel],
        loaded: list[RunningModel],
        current: str,
        fits: Callable[[], Awaitable[dict[str, ModelFit]]],
        downloading: Callable[[str], Download | None],
    ) -> None:
        super().__init__()
        self._tags = tags
        self._ask_fits = fits
        self._downloading = downloading
        self._fits: dict[str, ModelFit] = {}
        self._loaded = {model.name for model in loaded}
        self._current = current
        names = {tag.name for tag in tags}
        self._missing = [model for model in catalog() if model.name not in names]
        self.chosen_place = ""

    def content(self) -> ComposeResult:
        options = (Option(line, id=name, disabled=off) for name, line, off in self._lines())
        yield OptionList(*options, markup=False)

    def opened(self) -> None:
        options = self.query_one(OptionList)
        names = [tag.name for tag in self._tags]
        options.highlighted = names.index(self._current) if self._current in names else 0
        self._mark_fits()
        self.set_interval(1.0, self._refill)

    def _refill(self) -> None:
        for options in self.query(OptionList):  # none if the dialog was left meanwhile
            for name, line, _ in self._lines():
                if options.get_option(name).prompt != line:
                    options.replace_option_prompt(name, line)

    @work
    async def _mark_fits(self) -> None:
        try:
            self._fits = await self._ask_fits()
        except GptOssError as error:
            self.notify(error.message, severity="warning", markup=False)
        else:
            self._refill()

    @on(OptionList.OptionSelected)
    def choose(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        fit = self._fits.get(event.option.id or "")
        self.chosen_place = place_text(fit) if fit else ""
        self.dismiss(event.option.id)

    def _lines(self) -> Iterator[tuple[str, Content, bool]]:
        """Yield the names of models, with their lines, and whether they cannot be chosen."""
        yield from ((tag.name, self._line(tag), False) for tag in self._tags)
        yield from ((m.name, self._missing_line(m), not m.repo) for m in self._missing)

    def _missing_line(self, model: CatalogModel) -> Content:
        fit = self._fits.get(model.name)
        facts = [self._how_to_get(model), place_text(fit) if fit else ""]
        return Content.assemble(model.name, "\n  ", (" · ".join(filter(None, facts)), "dim"))

    def _how_to_get(self, model: CatalogModel) -> str:
        if (download := self._downloading(model.name)) is not None:
            return f"downloading: {download.progress_text()}"
        if not model.repo:
            return "built on first use"
        size = f"{decimal(model.download_bytes)} " if model.download_bytes else ""
        return f"not on this machine: {size}to download"

    def _line(self, tag: InstalledModel) -> Content:
        host = tag.remote_host
        where = f"computed at {host}" if host else "built on first use"
        facts = [
            decimal(tag.size) if tag.size else where,
            tag.details.parameter_size,
            fit_text(self._fits.get(tag.name)),
            "loaded" if tag.name in self._loaded else "",
            "in use" if tag.name == self._current else "",
        ]
        return Content.assemble(tag.name, "\n  ", (" · ".join(filter(None, facts)), "dim"))


def fit_text(fit: ModelFit | None) -> str:
    """Return where a model would go, with its context; empty while it is not known."""
    if fit is None:
        return ""
    return place_text(fit) + (f" · ctx {fit.n_ctx:,}" if fit.n_ctx else "")


def place_text(fit: ModelFit) -> str:
    words = {
        "vram": "✓ fits in VRAM",
        "split": f"◐ {100 * fit.vram_share:.0f} % in VRAM",
        "ram": "○ RAM, no GPU",
        "no": "✗ does not fit",
    }
    return words[fit.fits]


_EVERY_S = 0.25


class DownloadDialog(Dialog[None]):
    """Shows a download, which continues when the dialog is left; closes at its end."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Leave it running"),
        Binding("x", "cancel", "Cancel the download", id="download.cancel"),
    ]
    LOOK = "-small"
    KEYS = "Esc leave it running   x cancel"
    DEFAULT_CSS = "DownloadDialog ProgressBar { margin: 1 0; width: 100%; } Bar { width: 1fr; }"

    def __init__(self, download: Download) -> None:
        super().__init__()
        self.title = f"Downloading {printable(download.name)}"
        self._download = download
        self._bar = ProgressBar(show_eta=False)
        self._text = Static(markup=False)

    def content(self) -> ComposeResult:
        yield self._bar
        yield self._text

    def opened(self) -> None:
        self._show()
        self.set_interval(_EVERY_S, self._show)

    def action_cancel(self) -> None:
        self._download.cancel()

    def _show(self) -> None:
        download = self._download
        if not download.is_running:
            self.dismiss(None)
            return
        self._bar.update(total=download.n_bytes or None, progress=download.n_done_bytes)
        self._text.update(download.progress_text())
