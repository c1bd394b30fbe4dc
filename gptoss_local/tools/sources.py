"""Where the tools of this process come from: shared by its chats, ended with it."""

from pathlib import Path

from gptoss_local.settings import Settings, config_path
from gptoss_local.tools.consent import Consents
from gptoss_local.tools.files import Files
from gptoss_local.tools.mcp import McpServers
from gptoss_local.tools.programs import Program
from gptoss_local.tools.tool import Source
from gptoss_local.tools.toolbox import Toolbox


class ToolSources:
    """Makes the toolboxes of chats, and ends what they have started.

    Args:
        settings: The user's; they say what there is, and what is on in new chats.
        folder: Where programs run, and what built-in tools may read.

    Raises:
        UsageError: a name or a schema that no model could use.
    """

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self.consents = Consents(config_path().parent / "allowed-tools.json")
        self._mcp = McpServers(settings, folder)

    def toolbox(self) -> Toolbox:
        """Return the tools of a new chat.

        Raises:
            UsageError: mcp.json cannot be read, or has a name that is taken.
        """
        on = {name.strip() for name in self._settings.enabled_tools.split(",")}
        sources: list[Source] = [
            Files(self._folder, is_on="read_file" in on),
            *(Program(name, each, self._folder) for name, each in self._settings.tools.items()),
        ]
        sources += self._mcp.sources(taken=[source.name for source in sources])
        n_rounds, loop_s = self._settings.tool_rounds, self._settings.tool_loop_s
        return Toolbox(sources, self.consents, n_rounds=n_rounds, loop_s=loop_s)

    async def close(self) -> None:
        """End what all toolboxes share."""
        await self._mcp.close()
