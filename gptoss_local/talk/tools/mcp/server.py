"""A server that is started when it is first needed, and again after it has died.

Shared by all toolboxes of a process. Knows the server's tools and results, and no names that
models use.
"""

import asyncio
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gptoss_local.errors import GptOssError, ToolError, UsageError
from gptoss_local.settings import environment_without_secrets
from gptoss_local.talk.tools.consent import digest, program_digest
from gptoss_local.talk.tools.mcp.config import Entry, Launch
from gptoss_local.talk.tools.mcp.connection import Connection, said_by
from gptoss_local.talk.tools.results import ToolResult
from gptoss_local.talk.tools.tool import Arguments

if TYPE_CHECKING:
    import mcp_types
    from mcp_types import CallToolResult, ContentBlock

LIST_TIMEOUT_S = 30.0
MAX_TOOLS = 2_000
MAX_PAGES = 200
# Servers have a status and words of their own for a session that ended, as when they restart.
_LOST = re.compile(
    r"session.*(not found|terminated|expired|invalid|unknown|not exist|missing|required|closed)"
    r"|(invalid|unknown|expired|no valid|missing|not initialized).*session|not initialized",
    re.IGNORECASE,
)
_REST = 10  # a failed attempt is not repeated for this many times as long as it took


class Server:
    """One server of the configuration.

    Args:
        entry: How it is reached.
        folder: Where a program runs; its entry may name another one, from there.

    Attributes:
        identity: Stands for the program or address, with the values that were filled in.
        about: Name and version as the server gives them; empty before its first start.
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

        A server that fails is left alone for ten times as long as the attempt took, so that one
        that hangs does not hold up every request.
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

        Raises:
            UsageError: the server refuses the call.
            ToolError: it does not answer, or ends during the call, which is then not repeated;
                only a call that it has refused, as it has lost the session, is made once more.
        """
        for is_last in (False, True):
            async with self._lock:
                connection = await self._connected()
            client = connection.client
            try:
                return result_of(await client.call_tool(name, dict(arguments)))
            except Exception as error:  # MCPError, pydantic's, RuntimeError
                is_lost = _LOST.search(_message(error)) is not None
                if not (connection.is_over or _is_end(error) or is_lost):
                    raise self._refused(error, connection) from error
                await connection.close()  # then its log is complete
                if is_last or not is_lost:
                    raise connection.end_error(" during the call") from error
        raise AssertionError

    async def close(self) -> None:
        self._is_closed = True
        if self._connection is not None:
            await self._connection.close()

    async def _connected(self) -> Connection:
        """Return a connection that answers, made if there is none. Called under the lock."""
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
            if connection.is_over or _is_end(error):
                await connection.close()
                raise connection.end_error() from error
            raise connection.error(said_by(error)) from error
        finally:
            connection.is_stale |= not is_listed
        return tools

    def _refused(self, error: Exception, connection: Connection) -> GptOssError:
        from mcp import MCPError

        if isinstance(error, MCPError):  # of the server, often about the arguments
            return UsageError(connection.log.hide(error.error.message))
        return connection.error(said_by(error))


def _message(error: Exception) -> str:
    return str(getattr(getattr(error, "error", None), "message", ""))


def _is_end(error: Exception) -> bool:
    return _message(error) in ("Connection closed", "Session terminated")


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


def result_of(answer: "CallToolResult") -> ToolResult:
    """Return the text of all content, or else the structured content as JSON."""
    import mcp_types

    parts = [_text_of(block) for block in answer.content]
    has_text = any(isinstance(block, mcp_types.TextContent) for block in answer.content)
    if answer.structured_content is not None and not has_text:
        parts.append(msgspec.json.encode(answer.structured_content).decode())
    return ToolResult("\n".join(parts), is_error=bool(answer.is_error))


def _text_of(block: "ContentBlock") -> str:
    import mcp_types

    match block:
        case mcp_types.TextContent():
            return block.text
        case mcp_types.ImageContent() | mcp_types.AudioContent():
            return _note(block.type, block.data, block.mime_type)
        case mcp_types.ResourceLink():
            return str(block.uri)
        case mcp_types.EmbeddedResource(resource=mcp_types.TextResourceContents() as resource):
            return resource.text
        case mcp_types.EmbeddedResource(resource=mcp_types.BlobResourceContents() as resource):
            return _note(str(resource.uri), resource.blob, resource.mime_type or "")
        case _:  # a later revision of the protocol
            return f"[{block.type}]"


def _note(what: str, base64_text: str, kind: str) -> str:
    n_bytes = len(base64_text) * 3 // 4
    size = f"{n_bytes / 1000:.0f} kB" if n_bytes >= 1000 else f"{n_bytes} bytes"
    return f"[{', '.join(filter(None, (what, size, kind)))}]"
