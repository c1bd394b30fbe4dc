"""An MCP server as a source of tools: under names that models can call."""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gptoss_local.talk.tools.mcp.server import Server
from gptoss_local.talk.tools.results import Page, ToolResult
from gptoss_local.talk.tools.tool import Arguments, RunnableTool

if TYPE_CHECKING:
    import mcp_types

MAX_DESCRIPTION_CHARACTERS = 4_000
CALL_TIMEOUT_S = 120.0
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")


class McpSource:
    """The tools of one server, in one chat.

    Args:
        server: Shared with other chats.
    """

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

    async def new_chat(self, pages: Iterable[Page] = ()) -> None:
        """Its state, if it has any, is shared by all chats."""

    async def close(self) -> None:
        """Other chats may use the server; `McpServers` ends it."""

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
