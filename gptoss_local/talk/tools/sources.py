"""Makes the toolboxes of this process, and ends the servers that they share."""

from collections.abc import Iterable
from pathlib import Path

from gptoss_local.settings import Settings, config_path
from gptoss_local.talk.tools.browser import Browser
from gptoss_local.talk.tools.consent import Consents
from gptoss_local.talk.tools.files import Files
from gptoss_local.talk.tools.mcp import McpServers
from gptoss_local.talk.tools.programs import Program
from gptoss_local.talk.tools.python import Python
from gptoss_local.talk.tools.tool import ToolSource
from gptoss_local.talk.tools.toolbox import Toolbox


def taken_names(settings: Settings) -> set[str]:
    """Return the names that no MCP server may have: built-in tools and programs."""
    return {Files.name, Python.name, Browser.name, *settings.tools}


class ToolSources:
    """Makes the toolboxes of chats; programs run in `folder`, and `read_file` reads there."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self.consents = Consents(config_path().parent / "allowed-tools.json")
        self._mcp = McpServers(settings, folder)

    def toolbox(self) -> Toolbox:
        """Return a new chat's tools. Raises UsageError if the configuration cannot be used."""
        settings, folder = self._settings, self._folder
        on = {name.strip() for name in settings.enabled_tools.split(",")}
        built_in: list[ToolSource] = [
            Files(settings, folder, is_on="read_file" in on),
            Python(settings, folder, is_on="python" in on),
            Browser(settings, is_on="browser" in on),
        ]
        sources = [source for source in built_in if source.name not in settings.tools]
        sources += [Program(name, each, folder) for name, each in settings.tools.items()]
        sources += self._mcp.sources(taken=taken_names(settings))
        n_rounds, loop_s = self._settings.tool_rounds, self._settings.tool_loop_s
        return Toolbox(sources, self.consents, n_rounds=n_rounds, loop_s=loop_s)

    async def renew(self, toolboxes: Iterable[Toolbox]) -> None:
        """Let toolboxes have the MCP servers of a configuration that was changed."""
        for toolbox in toolboxes:
            toolbox.set_servers(self._mcp.sources(taken=taken_names(self._settings)))
        await self._mcp.end_removed()

    async def close(self) -> None:
        await self._mcp.close()
