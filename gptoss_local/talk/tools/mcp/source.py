"""MCP servers as sources of tools, under names that models can call; ended with the process."""

import asyncio
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gptoss_local.base.settings import Settings
from gptoss_local.talk.tools.mcp.config import Entry, read_entries
from gptoss_local.talk.tools.mcp.server import Server
from gptoss_local.talk.tools.tool import ToolResult
from gptoss_local.talk.tools.tool import Arguments, RunnableTool, ToolSource

if TYPE_CHECKING:
    import mcp_types

MAX_DESCRIPTION_CHARACTERS = 4_000
CALL_TIMEOUT_S = 120.0
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")


class McpSource(ToolSource):
    """The tools of one server, in one chat; the server is shared, and outlives it."""

    description = ""
    is_mcp = True

    def __init__(self, server: Server) -> None:
        entry = server.entry
        self.name, self.is_on = entry.name, entry.is_on
        self.about = f"is an MCP server ({entry.reached})"
        self.server = server
        self._listed: Sequence[mcp_types.Tool] | None = None
        self._tools: list[RunnableTool] = []

    async def tools(self) -> Sequence[RunnableTool]:
        listed = await self.server.listed()
        if listed is not self._listed:
            # The server cannot tell two tools of the same name apart, so the first stands for both.
            by_name = {tool.name: tool for tool in reversed(listed)}
            self._tools = [self._tool(tool) for tool in reversed(by_name.values())]
            self._listed = listed
        return self._tools

    def _tool(self, listed: "mcp_types.Tool") -> RunnableTool:
        async def run(arguments: Arguments) -> ToolResult:
            return await self.server.call(listed.name, arguments)

        entry = self.server.entry
        return RunnableTool(
            _NO_NAME.sub("_", listed.name)[:64] or "tool",
            _cut(listed.description or listed.title or ""),
            {"properties": {}, **listed.input_schema},
            run,
            f"is a tool of the MCP server {entry.name} ({entry.reached})",
            self.name,
            timeout_s=CALL_TIMEOUT_S,
            identity=self.server.identity,
            own_name=listed.name,
        )


def _cut(text: str) -> str:
    if len(text) <= MAX_DESCRIPTION_CHARACTERS:
        return text
    return f"{text[:MAX_DESCRIPTION_CHARACTERS]} [cut]"


class McpServers:
    """Keeps one server per entry, which all chats share; programs run in `folder` by default."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings, self._folder = settings, folder
        self._servers: list[Server] = []

    def sources(self, taken: Collection[str] = ()) -> Sequence[McpSource]:
        """Return a source per server of the configuration as it is now, for one chat."""
        entries = read_entries(self._settings, taken)
        return [McpSource(self._server(entry)) for entry in entries.values()]

    async def end_removed(self) -> None:
        entries = list(read_entries(self._settings).values())
        removed = [server for server in self._servers if server.entry not in entries]
        self._servers = [server for server in self._servers if server not in removed]
        await asyncio.gather(*(server.close() for server in removed))

    def _server(self, entry: Entry) -> Server:
        for server in self._servers:
            if server.entry == entry:
                return server
        server = Server(entry, self._folder, self._settings.log_dir)
        self._servers.append(server)
        return server

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self._servers))
