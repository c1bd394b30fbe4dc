"""A server, shared by a process's toolboxes, started when needed and again after its death."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptoss_local.errors import GptOssError, ToolError, UsageError
from gptoss_local.settings import environment_without_secrets
from gptoss_local.talk.tools.consent import digest, program_digest
from gptoss_local.talk.tools.mcp.config import Entry, Launch
from gptoss_local.talk.tools.mcp.connection import Connection, said_by
from gptoss_local.talk.tools.mcp.messages import NOT_MCP, NOT_RUN, REFUSED
from gptoss_local.talk.tools.results import ToolResult
from gptoss_local.talk.tools.tool import Arguments

if TYPE_CHECKING:
    import mcp_types

LIST_TIMEOUT_S = 30.0
MAX_TOOLS = 2_000
MAX_PAGES = 200
_REST = 10  # a failed attempt is not repeated for this many times as long as it took


class Server:
    """One server of the configuration; a program runs in `folder`, or the entry's from there.

    `identity` stands for the program or address, with the values that were filled in.
    """

    def __init__(self, entry: Entry, folder: Path, log_dir: Path) -> None:
        self.entry = entry
        self.about = self.identity = ""
        self._folder, self._log_dir = folder / entry.folder, log_dir
        self._lock = asyncio.Lock()
        self._connection: Connection | None = None
        self._listed: Sequence[mcp_types.Tool] = ()
        self._problem = ""
        self._retry_at_s = 0.0
        self._is_closed = False

    async def listed(self) -> "Sequence[mcp_types.Tool]":
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
                    self._listed = await self._list(connection)
            except ToolError as error:
                now_s = time.monotonic()
                self._problem, self._retry_at_s = error.message, now_s + _REST * (now_s - start_s)
                raise
            return self._listed

    async def call(self, name: str, arguments: Arguments) -> ToolResult:
        """Call a tool. If the caller is cancelled, the server is told to stop.

        Raises UsageError if the server refuses the call, ToolError if it does not answer or ends.
        The call is repeated once, only if an address has refused it for a lost session.
        """
        for is_last in (False, True):
            async with self._lock:
                connection = await self._connected()
            client = connection.client
            try:
                answer: Any = await client.call_tool(name, dict(arguments))
                return ToolResult(answer.content[0].text, is_error=answer.is_error)
            except Exception as error:  # MCPError, pydantic's, RuntimeError
                code = getattr(error, "code", None)
                if code in (REFUSED, NOT_RUN) and await connection.is_lost():
                    await connection.close()
                    if code == NOT_RUN and not is_last:
                        continue
                elif _is_end(error, connection):
                    await connection.close()  # then its log is complete
                    raise connection.end_error(" during the call") from error
                raise self._refused(error, connection) from error
        raise AssertionError

    async def close(self) -> None:
        self._is_closed = True
        if self._connection is not None:
            await self._connection.close()

    async def _connected(self) -> Connection:
        """Return a connection that answers, made if needed. Called under the lock."""
        if self._is_closed:
            raise ToolError(f"the MCP server '{self.entry.name}' was ended")
        if self._connection is None or self._connection.is_over:
            if self._connection is not None:
                await self._connection.close()
            launch = self.entry.launch(environment_without_secrets())
            self.identity = f"{self._digest(launch)} {self.entry.written}"
            self._connection = Connection(self.entry, launch, self._folder, self._log_dir)
        await self._connection.ready()
        self.about = self._connection.about
        return self._connection

    def _digest(self, launch: Launch) -> str:
        if launch.url:
            return digest(launch.url, launch.headers)
        return program_digest(launch.command, self._folder, launch.env)

    async def _list(self, connection: Connection) -> "Sequence[mcp_types.Tool]":
        connection.is_stale = False  # a change while they are listed makes it true again
        is_listed = False
        try:
            async with asyncio.timeout(LIST_TIMEOUT_S):
                tools = await _all_tools(connection)
            is_listed = True
        except TimeoutError as error:
            problem = f"did not list its tools within {LIST_TIMEOUT_S:g} s"
            raise connection.error(problem) from error
        except ToolError:
            raise
        except Exception as error:
            if _is_end(error, connection):
                await connection.close()
                raise connection.end_error() from error
            raise connection.error(said_by(error)) from error
        finally:
            connection.is_stale |= not is_listed
        return tools

    def _refused(self, error: Exception, connection: Connection) -> GptOssError:
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED

        if isinstance(error, MCPError):
            if error.code in (NOT_MCP, NOT_RUN):
                return connection.error(error.message)
            if error.code != CONNECTION_CLOSED:  # of the SDK, and never a server's
                return UsageError(connection.log.hide(error.message))  # often about the arguments
        return connection.error(said_by(error))


def _is_end(error: Exception, connection: Connection) -> bool:
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    if not isinstance(error, MCPError):
        return connection.is_over
    return error.code == CONNECTION_CLOSED and error.message == "Connection closed"


async def _all_tools(connection: Connection) -> "Sequence[mcp_types.Tool]":
    from mcp import MCPError
    from mcp_types import METHOD_NOT_FOUND

    tools: list[mcp_types.Tool] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        client = connection.client
        try:
            page = await client.list_tools(cursor=cursor)
        except MCPError as error:
            if error.code == METHOD_NOT_FOUND and client.server_capabilities.tools is None:
                return []  # it offers other things only
            raise
        tools += page.tools
        cursor = page.next_cursor
        if not cursor:
            return tools
        if len(tools) > MAX_TOOLS:
            break
    raise connection.error("has a list of tools that does not end")
