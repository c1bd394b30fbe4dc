"""Keep the tools that are on in the chat's option `tools`."""

from collections.abc import Mapping
from typing import Any

from gptoss_local.talk.tools import Toolbox

OPTION = "tools"
"""Comma-separated sources; not there until the user has switched one."""


class ToolChoice:
    """Joins a toolbox, at first with the tools of new chats, with the open chat's options."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox
        self._default = frozenset(toolbox.on)

    def take(self, options: Mapping[str, Any]) -> None:
        """Switch on the tools that the options of a chat name, or else the default."""
        chosen = options.get(OPTION)
        names = self._default if not isinstance(chosen, str) else names_in(chosen)
        self._toolbox.on = set(names) & self._known

    def text(self, options: Mapping[str, Any]) -> str:
        """Return the option for the current tools; unknown names in it stay."""
        before = options.get(OPTION)
        others = names_in(before) - self._known if isinstance(before, str) else set()
        return ",".join(sorted(self._toolbox.on | others))

    @property
    def _known(self) -> set[str]:
        return {group.name for group in self._toolbox.groups()}


def names_in(text: str) -> set[str]:
    return {name for part in text.split(",") if (name := part.strip())}


def without_tools(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != OPTION}
