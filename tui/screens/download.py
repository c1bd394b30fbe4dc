from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import ProgressBar, Static

from gptoss_local.base.printable import printable
from tui.downloads import Download
from tui.screens.dialog import Dialog

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
        if self.app.screen is not self:  # `dismiss` would close the one above
            return
        download = self._download
        if not download.is_running:
            self.dismiss(None)
            return
        self._bar.update(total=download.n_bytes or None, progress=download.n_done_bytes)
        self._text.update(download.progress_text())
