"""Lists the tools, to choose those that the model may use."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from gptoss_local.tools import Group, Toolbox
from tui.screens.dialog import Dialog

_ABOUT = "The model asks before each call. [tools.NAME] tables in config.toml are your own."


class ToolsDialog(Dialog[None]):
    """Turns tools on and off until it is left."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Leave"),
        Binding("space", "switch", "On or off"),
    ]

    def __init__(self, toolbox: Toolbox) -> None:
        super().__init__()
        self._toolbox = toolbox

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -question") as dialog:
            dialog.border_title = "Tools"
            yield Static(_ABOUT, markup=False)
            yield OptionList(markup=False)
            yield Static("Enter, Space on or off   Esc leave", classes="keys", markup=False)

    def opened(self) -> None:
        self.query_one(OptionList).focus()
        self._refill(0)

    @on(OptionList.OptionSelected)
    def switched(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._toolbox.switch(str(event.option.id))
        self._refill(event.option_index)

    def action_switch(self) -> None:
        self.query_one(OptionList).action_select()

    def _refill(self, marked: int) -> None:
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options(
            [Option(self._line(group), id=group.name) for group in self._toolbox.groups()]
        )
        options.highlighted = marked

    def _line(self, group: Group) -> Content:
        mark = "on " if group.is_on else "off"
        trust = ", always allowed in this chat" if group.name in self._toolbox.trusted else ""
        about = f"\n      {group.description or '(no description)'}\n      It {group.about}{trust}"
        return Content.assemble((mark, "bold"), f"   {group.name}", (about, "dim"))
