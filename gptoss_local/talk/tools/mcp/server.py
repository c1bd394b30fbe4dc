"""A server, shared by a process's toolboxes, started when needed and again after its death."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptoss_local.base.errors import GptOssError, ToolError, UsageError
from gptoss_local.base.settings import environment_without_secrets
from gptoss_local.talk.tools.consent import digest, program_digest
from gptoss_local.talk.tools.mcp.config import Entry, Launch
from gptoss_local.talk.tools.mcp.messages import NOT_MCP, NOT_RUN, REFUSED
from gptoss_local.talk.tools.tool import ToolResult
from gptoss_local.talk.tools.tool import Arguments

if TYPE_CHECKING:
    import mcp_types
import importlib
import logging
import math
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from gptoss_local import __version__
from gptoss_local.talk.tools.mcp.log import ServerLog
from gptoss_local.talk.tools.mcp.messages import NO_MCP, Inbox, quoted

if TYPE_CHECKING:
    import anyio
    from mcp.client import Client, IncomingMessage
    from mcp.client._transport import Transport


START_TIMEOUT_S = 30.0
_END_TIMEOUT_S = 15.0  # more than a program has
_PING_TIMEOUT_S = 10.0
_LISTEN_AGAIN_S = 30.0


class Connection:
    """A running server, in a running event loop; `ready` waits until it answers.

    `about` is its own name and version; `is_stale`: its tools must be listed (again).
    """

    def __init__(self, entry: Entry, launch: Launch, folder: Path, log_dir: Path) -> None:
        self.log = ServerLog(log_dir, entry.name, launch.secrets)
        self.about, self.is_stale = "", True
        self._name, self._is_sse = entry.name, entry.is_sse
        self._launch, self._folder = launch, folder
        self._problem = ""
        self._client: Client | None = None
        self._scope: anyio.CancelScope | None = None
        self._is_ready, self._end = asyncio.Event(), asyncio.Event()
        self._inbox = Inbox(self.log, self._on_fault)
        self._task = asyncio.create_task(self._hold(), name=f"mcp {entry.name}")

    @property
    def client(self) -> "Client":
        if self._client is None:
            raise self.error(self._problem) if self._problem else self.end_error()
        return self._client

    @property
    def is_over(self) -> bool:
        return self._end.is_set() or self._task.done()

    async def ready(self) -> None:
        """Wait until the server answers. Raises ToolError, which says why it does not."""
        await self._is_ready.wait()
        _ = self.client

    def error(self, what: str) -> ToolError:
        """Return an error that tells of a fault of the server, with the end of its log."""
        said = f". Its log ends with: {words}" if (words := self.log.last_words) not in what else ""
        hint = f"Its log: {self.log.path}"
        return ToolError(self.log.hide(f"the MCP server '{self._name}' {what}{said}"), hint=hint)

    async def is_lost(self) -> bool:
        """Ask a server that has refused a request whether the session is over."""
        from mcp import MCPError

        try:
            async with asyncio.timeout(_PING_TIMEOUT_S):
                await self.client.session.send_ping()
        except MCPError as error:
            return error.code in (REFUSED, NOT_RUN)
        except (TimeoutError, ValueError):  # the second: of an answer that is none
            return False
        return False

    async def close(self) -> None:
        self._on_fault("")
        await asyncio.wait({self._task})

    def end_error(self, when: str = "") -> ToolError:
        """Return an error that says why the server has ended; `when` follows "ended"."""
        why = f", as it {self._problem}" if self._problem else ""
        return self.error(f"ended{when}{why}")

    def _on_fault(self, what: str) -> None:
        self._problem = self._problem or what
        self._end.set()
        if self._scope is not None and not self._is_ready.is_set():
            self._scope.cancel()

    async def _hold(self) -> None:
        try:
            await self._talk()
        except Exception as error:  # of the SDK, of libraries below it, or a group of them
            self._problem = self._problem or said_by(error)
        finally:
            self._client = None
            self._end.set()
            self._is_ready.set()

    async def _talk(self) -> None:
        import anyio

        # PERF: 0.5 s of imports; the event loop must not stop for so long
        await asyncio.to_thread(importlib.import_module, "mcp.client.client")
        if self._end.is_set():
            return
        late = f"did not answer within {START_TIMEOUT_S:g} s"
        with anyio.CancelScope(deadline=anyio.current_time() + START_TIMEOUT_S) as scope:
            self._scope = scope
            async with AsyncExitStack() as stack:
                self._client = await stack.enter_async_context(self._new_client())
                scope.deadline, late = math.inf, ""
                if info := self._client.server_info:
                    self.about = f"{info.name} {info.version}".strip()
                self._is_ready.set()
                async with anyio.create_task_group() as group:
                    group.start_soon(self._listen, self._client)
                    await self._end.wait()
                    group.cancel_scope.cancel()
                self._client = None
                scope.deadline = anyio.current_time() + _END_TIMEOUT_S
        if late and not self._end.is_set():
            self._problem = self._problem or late

    def _new_client(self) -> "Client":
        from mcp.client import Client
        from mcp_types import Implementation

        return Client(
            self._transport(),
            client_info=Implementation(name="gptoss", version=__version__),
            message_handler=self._on_message,
            cache=None,  # `is_stale` says when to list again
        )

    def _transport(self) -> "Transport":
        for name in ("mcp", "client"):  # the SDK's records quote servers
            logging.getLogger(name).handlers[:] = [logging.NullHandler()]
            logging.getLogger(name).propagate = False
        if self._launch.url:
            from gptoss_local.talk.tools.mcp.http import reach

            return reach(self._launch, is_sse=self._is_sse, log=self.log, inbox=self._inbox)
        from gptoss_local.talk.tools.mcp.stdio import run

        return run(self._launch, self._folder, self.log, self._inbox)

    async def _on_message(self, message: "IncomingMessage") -> None:
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self.is_stale = True

    async def _listen(self, client: "Client") -> None:
        """Subscribe to changes, as the protocol of 2026 requires; earlier ones send them anyway."""
        import anyio
        from mcp import MCPError
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

        capability = client.server_capabilities.tools
        while capability is not None and capability.list_changed:
            try:
                async with client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self.is_stale = True
            except (MCPError, ListenNotSupportedError):
                return
            except (SubscriptionLost, TimeoutError, ValueError):  # the last: not as MCP wants it
                pass
            await anyio.sleep(_LISTEN_AGAIN_S)
            self.is_stale = True


def said_by(error: BaseException) -> str:
    """Return the fault, in words that can follow the name of a server."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case FileNotFoundError() | PermissionError() | NotADirectoryError():
            return f"does not start: {error.strerror}: {error.filename}"
        case OSError():
            return f"cannot be reached: {error.strerror or error}"
    kind: Any = type(error)
    if kind.__module__.startswith("httpx2"):
        return f"cannot be reached: {str(error) or kind.__name__}"
    if kind.__module__.startswith("pydantic"):
        first = kind.errors(error)[0]
        place = ".".join(map(str, first["loc"]))
        return f"{NO_MCP} at {place}: {quoted(repr(first['input']).encode(errors='replace'))}"
    if getattr(getattr(error, "error", None), "message", "") == "Connection closed":
        return "ended before it answered"
    return f"failed: {str(error) or kind.__name__}"


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
