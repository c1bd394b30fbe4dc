"""All MCP servers of this process: made from the configuration, ended with the process."""

import asyncio
from collections.abc import Collection, Sequence
from pathlib import Path

from gptoss_local.settings import Settings
from gptoss_local.talk.tools.mcp.config import Entry, read_entries
from gptoss_local.talk.tools.mcp.server import Server
from gptoss_local.talk.tools.mcp.source import McpSource


class McpServers:
    """Keeps one server per entry, which all chats share.

    Args:
        settings: They may name a second file, and say where logs are.
        folder: The working folder of programs whose entries name none.
    """

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings, self._folder = settings, folder
        self._servers: list[Server] = []

    def sources(self, taken: Collection[str] = ()) -> Sequence[McpSource]:
        """Return a source per server of the configuration as it is now, for one chat.

        Args:
            taken: Names of other sources.

        Raises:
            UsageError: a file cannot be read.
        """
        entries = read_entries(self._settings, taken)
        return [McpSource(self._server(entry)) for entry in entries.values()]

    def _server(self, entry: Entry) -> Server:
        for server in self._servers:
            if server.entry == entry:
                return server
        server = Server(entry, self._folder, self._settings.log_dir)
        self._servers.append(server)
        return server

    async def close(self) -> None:
        """End all that were started, with their processes."""
        await asyncio.gather(*(server.close() for server in self._servers))
