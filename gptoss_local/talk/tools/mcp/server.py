"""MCP servers as sources of tools: started when needed and after their death, shared by chats."""

import asyncio
import importlib
import os
import re
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gptoss_local.base.errors import ToolError, UsageError
from gptoss_local.base.settings import Settings, environment_without_secrets
from gptoss_local.talk.tools.consent import digest, program_digest
from gptoss_local.talk.tools.mcp.config import Entry, read_entries
from gptoss_local.talk.tools.tool import Arguments, RunnableTool, ToolResult, ToolSource

if TYPE_CHECKING:
    import mcp_types

    from gptoss_local.talk.tools.mcp.connection import Connection

MAX_DESCRIPTION_CHARACTERS = 4_000
CALL_TIMEOUT_S = 120.0
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_CONNECTION = "gptoss_local.talk.tools.mcp.connection"
_REST = 10  # a failed attempt is not repeated for this many times as long as it took


class Server(ToolSource):
    """A server of the configuration; its program runs in `folder`, or the entry's from there."""

    description = ""
    is_mcp = True

    def __init__(self, entry: Entry, folder: Path, log_dir: Path) -> None:
        self.name, self.is_on = entry.name, not entry.fields.disabled
        self.about = f"is an MCP server ({entry.reached})"
        self.entry, self.version = entry, ""
        self._folder, self._log_dir = folder / os.path.expanduser(entry.fields.cwd), log_dir
        self._identity = ""
        self._lock = asyncio.Lock()
        self._connection: Connection | None = None
        self._listed: Sequence[mcp_types.Tool] = ()
        self._tools: Sequence[RunnableTool] = ()
        self._problem = ""
        self._retry_at_s = 0.0
        self._is_ended = False

    async def tools(self) -> Sequence[RunnableTool]:
        """Return its tools; cheap unless it must be started, or has said that they changed.

        After a failure it rests for ten times as long as the attempt took: a hanging server must
        not delay every request.
        """
        async with self._lock:
            if time.monotonic() < self._retry_at_s:
                raise ToolError(self._problem)
            start_s = time.monotonic()
            try:
                connection = await self._connected()
                if connection.is_stale:
                    self._listed = await connection.list_tools()
                    # It cannot tell tools of the same name apart: the first stands for all.
                    by_name = {tool.name: tool for tool in reversed(self._listed)}
                    self._tools = [self._tool(tool) for tool in reversed(by_name.values())]
            except ToolError as error:
                now_s = time.monotonic()
                self._problem, self._retry_at_s = error.message, now_s + _REST * (now_s - start_s)
                raise
            return self._tools

    def _tool(self, listed: "mcp_types.Tool") -> RunnableTool:
        async def run(arguments: Arguments) -> ToolResult:
            await self.tools()
            if listed not in self._listed:  # the user was shown another
                raise UsageError(f"{listed.name} has changed meanwhile. Call it again.")
            return await self.call(listed.name, arguments)

        about = listed.description or listed.title or ""
        if len(about) > MAX_DESCRIPTION_CHARACTERS:
            about = f"{about[:MAX_DESCRIPTION_CHARACTERS]} [cut]"
        return RunnableTool(
            _NO_NAME.sub("_", listed.name)[:64] or "tool",
            about,
            {"properties": {}, **listed.input_schema},
            run,
            f"is a tool of the MCP server {self.name} ({self.entry.reached})",
            self.name,
            timeout_s=CALL_TIMEOUT_S,
            identity=self._identity,
            own_name=listed.name,
        )

    async def call(self, name: str, arguments: Arguments) -> ToolResult:
        """Call a tool, again only if an address has refused it for a lost session.

        If the caller is cancelled, the server is told to stop.
        """
        for may_repeat in (True, False):
            async with self._lock:
                connection = await self._connected()
            result = await connection.call(name, arguments, may_repeat=may_repeat)
            if result is not None:
                return result
        raise AssertionError

    async def end(self) -> None:
        self._is_ended = True
        if self._connection is not None:
            await self._connection.close()

    async def _connected(self) -> "Connection":
        """Return a connection that answers, made if needed. Called under the lock."""
        if self._connection is None or self._connection.is_over:
            if self._connection is not None:
                await self._connection.close()
            launch = self.entry.launch(environment_without_secrets())
            # PERF: 0.5 s of imports; the event loop must not stop for so long
            await asyncio.to_thread(importlib.import_module, _CONNECTION)
            from gptoss_local.talk.tools.mcp.connection import Connection

            if self._is_ended:
                raise ToolError(f"the MCP server '{self.name}' was ended")
            if launch.url:
                facts = digest(launch.url, launch.headers)
            else:
                facts = program_digest(launch.command, self._folder, launch.env)
            self._identity = f"{facts} {self.entry.written}"
            self._connection = Connection(self.entry, launch, self._folder, self._log_dir)
        await self._connection.ready()
        self.version = self._connection.version
        return self._connection


class McpServers:
    """Keeps one server per entry, which all chats share; programs run in `folder` by default."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings, self._folder = settings, folder
        self._servers: list[Server] = []

    def sources(self, taken: Collection[str] = ()) -> Sequence[Server]:
        return [self._server(entry) for entry in read_entries(self._settings, taken).values()]

    async def end_removed(self) -> None:
        entries = list(read_entries(self._settings).values())
        removed = [server for server in self._servers if server.entry not in entries]
        self._servers = [server for server in self._servers if server not in removed]
        await asyncio.gather(*(server.end() for server in removed))

    def _server(self, entry: Entry) -> Server:
        for server in self._servers:
            if server.entry == entry:
                return server
        server = Server(entry, self._folder, self._settings.log_dir)
        self._servers.append(server)
        return server

    async def close(self) -> None:
        await asyncio.gather(*(server.end() for server in self._servers))
