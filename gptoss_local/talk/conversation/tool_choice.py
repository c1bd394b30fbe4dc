"""Keep which tools are on as a property of the chat: its option `tools`."""

from collections.abc import Mapping
from typing import Any

from gptoss_local.talk.tools import Toolbox

OPTION = "tools"
"""Names of sources with commas between them; not there until the user has switched one."""


class ToolChoice:
    """Joins a toolbox with the options of the chat that is open.

    Args:
        toolbox: As it was made, with the tools of new chats on.
    """

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox
        self._default = frozenset(toolbox.on)

    def take(self, options: Mapping[str, Any]) -> None:
        """Switch on the tools that the options of a chat name, or else the default."""
        chosen = options.get(OPTION)
        names = self._default if not isinstance(chosen, str) else names_in(chosen)
        self._toolbox.on = set(names) & self._known

    def text(self, options: Mapping[str, Any]) -> str:
        """Return the option that names the current tools.

        Args:
            options: Of the chat so far; names in them that are not known here stay.
        """
        before = options.get(OPTION)
        others = names_in(before) - self._known if isinstance(before, str) else set()
        return ",".join(sorted(self._toolbox.on | others))

    @property
    def _known(self) -> set[str]:
        return {group.name for group in self._toolbox.groups()}


def names_in(text: str) -> set[str]:
    return {name for part in text.split(",") if (name := part.strip())}


def without_tools(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as requests and presets have them."""
    return {name: value for name, value in options.items() if name != OPTION}
