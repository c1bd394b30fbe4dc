"""The model picker: what is on this machine, and what the catalogue knows besides."""

from typing import Any, ClassVar

from rich.filesize import decimal
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from gptoss_local.catalog import catalog


class ModelsDialog(ModalScreen[str | None]):
    """Choose a model; None leaves it as it is.

    Args:
        tags: `models` of `/api/tags`.
        loaded: `models` of `/api/ps`.
        current: The model that is in use.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Leave")]

    def __init__(
        self, tags: list[dict[str, Any]], loaded: list[dict[str, Any]], current: str
    ) -> None:
        super().__init__()
        self._tags = tags
        self._loaded = {model["name"] for model in loaded}
        self._current = current

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = "Models"
            yield OptionList(*self._options(), markup=False)
            yield Static("Enter choose   Esc leave", classes="keys", markup=False)

    def on_mount(self) -> None:
        options = self.query_one(OptionList)
        options.focus()
        names = [tag["name"] for tag in self._tags]
        options.highlighted = names.index(self._current) if self._current in names else 0

    @on(OptionList.OptionSelected)
    def choose(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(event.option.id)

    def _options(self) -> list[Option]:
        options = [Option(self._line(tag), id=tag["name"]) for tag in self._tags]
        names = {tag["name"] for tag in self._tags}
        for model in catalog():
            if model.name not in names:
                how = f"gptoss convert {model.repo} …" if model.repo else "built on first use"
                line = Content.assemble(model.name, (f"\n  not on this machine: {how}", "dim"))
                options.append(Option(line, id=model.name, disabled=True))
        return options

    def _line(self, tag: dict[str, Any]) -> Content:
        details = tag["details"]
        facts = [
            decimal(tag["size"]) if tag["size"] else "built on first use",
            details["parameter_size"],
            "loaded" if tag["name"] in self._loaded else "",
            "in use" if tag["name"] == self._current else "",
        ]
        return Content.assemble(tag["name"], "\n  ", (" · ".join(filter(None, facts)), "dim"))
