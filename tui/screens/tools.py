from collections.abc import Callable
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from gptoss_local.talk.tools import Group, RunnableTool, Toolbox
from tui.screens.dialog import Dialog

_ABOUT = "The model asks before each call. [tools.NAME] tables in config.toml are your own."
_N_NAMES = 12


class ToolsDialog(Dialog[None]):
    """Turns tools on and off until it is left; `is_in_use`: an answer streams with the old ones."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("space", "switch", "On or off")]
    TITLE = "Tools"
    LOOK = "-question"
    KEYS = "Enter, Space on or off   Esc leave"

    def __init__(
        self,
        toolbox: Toolbox,
        switched: Callable[[], None] = lambda: None,
        *,
        is_in_use: bool = False,
    ) -> None:
        super().__init__()
        self.sub_title = "from your next message on" if is_in_use else ""
        self._is_in_use = is_in_use
        self._toolbox = toolbox
        self._switched = switched
        self._is_preparing = False
        self._is_stale = False

    def content(self) -> ComposeResult:
        yield Static(_ABOUT, markup=False)
        yield OptionList(markup=False)

    def opened(self) -> None:
        self._refill(0)
        self._prepare()

    @on(OptionList.OptionSelected)
    def switch(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._toolbox.switch(str(event.option.id))
        self._switched()
        self._refill(event.option_index)
        self._prepare()

    def action_switch(self) -> None:
        self.query_one(OptionList).action_select()

    @work
    async def _prepare(self) -> None:
        self._is_stale = True
        if self._is_preparing or self._is_in_use:
            return
        self._is_preparing = True
        try:
            while self._is_stale:
                self._is_stale = False
                await self._toolbox.prepare()
                self._refill(self.query_one(OptionList).highlighted or 0)
        finally:
            self._is_preparing = False

    def _refill(self, marked: int) -> None:
        options = self.query_one(OptionList)
        groups = self._toolbox.groups()
        options.set_options(Option(self._line(group), id=group.name) for group in groups)
        options.highlighted = marked

    def _line(self, group: Group) -> Content:
        mark = "on " if group.is_on else "off"
        lines = [group.description, f"It {group.about}"]
        names = [tool.name + self._trust(tool) for tool in group.tools]
        if names and names != [group.name]:
            more = f" and {len(names) - _N_NAMES} more" if len(names) > _N_NAMES else ""
            lines.append(", ".join(names[:_N_NAMES]) + more)
        about = "".join(f"\n      {line}" for line in lines if line)
        problem = (f"\n      {group.problem}", "$text-error") if group.problem else ""
        return Content.assemble((mark, "bold"), f"   {group.name}", (about, "dim"), problem)

    def _trust(self, tool: RunnableTool) -> str:
        if tool.name in self._toolbox.trusted:
            return " (always allowed in this chat)"
        return "" if self._toolbox.needs_consent(tool) else " (always allowed)"
