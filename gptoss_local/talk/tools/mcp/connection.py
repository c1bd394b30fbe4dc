"""A running server, by the SDK's client. It takes 0.5 s to import this."""

import asyncio
import logging
import math
from pathlib import Path
from typing import Any

import anyio
from mcp import MCPError
from mcp.client import Client, IncomingMessage
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp_types import (
    CONNECTION_CLOSED,
    METHOD_NOT_FOUND,
    Implementation,
    Tool,
    ToolListChangedNotification,
)
from pydantic import ValidationError

from gptoss_local import __version__
from gptoss_local.base.errors import GptOssError, ToolError, UsageError
from gptoss_local.talk.tools.mcp.config import Entry, Launch
from gptoss_local.talk.tools.mcp.http import reach
from gptoss_local.talk.tools.mcp.messages import (
    NO_MCP,
    NOT_MCP,
    NOT_RUN,
    REFUSED,
    Inbox,
    ServerLog,
    quoted,
)
from gptoss_local.talk.tools.mcp.stdio import run
from gptoss_local.talk.tools.tool import Arguments, ToolResult

START_TIMEOUT_S = 30.0
LIST_TIMEOUT_S = 30.0
MAX_TOOLS = 2_000
MAX_PAGES = 200
_END_TIMEOUT_S = 15.0  # more than a program has
_PING_TIMEOUT_S = 10.0
_LISTEN_AGAIN_S = 30.0


class Connection:
    """A running server, in a running event loop; `ready` waits until it answers.

    `version` has its own name, too; `is_stale`: its tools must be listed (again).
    """

    def __init__(self, entry: Entry, launch: Launch, folder: Path, log_dir: Path) -> None:
        self._log = ServerLog(log_dir, entry.name, launch.secrets)
        self.version, self.is_stale = "", True
        self._name, self._problem = entry.name, ""
        self._ready_client: Client | None = None
        self._scope: anyio.CancelScope | None = None
        self._is_ready, self._end = asyncio.Event(), asyncio.Event()
        inbox = Inbox(self._log, self._on_fault)
        for name in ("mcp", "client"):  # the SDK's records quote servers
            logging.getLogger(name).handlers[:] = [logging.NullHandler()]
            logging.getLogger(name).propagate = False
        if launch.url:
            transport = reach(launch, is_sse=entry.is_sse, log=self._log, inbox=inbox)
        else:
            transport = run(launch, folder, self._log, inbox)
        client = Client(
            transport,
            client_info=Implementation(name="gptoss", version=__version__),
            message_handler=self._on_message,
            cache=None,  # `is_stale` says when to list again
        )
        self._task = asyncio.create_task(self._hold(client), name=f"mcp {entry.name}")

    @property
    def is_over(self) -> bool:
        return self._end.is_set() or self._task.done()

    async def ready(self) -> None:
        await self._is_ready.wait()
        _ = self._client

    async def list_tools(self) -> list[Tool]:
        self.is_stale = False  # a change while they are listed makes it true again
        try:
            async with asyncio.timeout(LIST_TIMEOUT_S):
                return await self._all_tools()
        except BaseException as error:
            self.is_stale = True
            if isinstance(error, TimeoutError):
                problem = f"did not list its tools within {LIST_TIMEOUT_S:g} s"
                raise self._error(problem) from error
            if isinstance(error, ToolError) or not isinstance(error, Exception):
                raise
            fault = await self._fault(error)
            raise fault if isinstance(fault, ToolError) else self._error(_said_by(error)) from error

    async def call(self, name: str, arguments: Arguments, *, may_repeat: bool) -> ToolResult | None:
        """Call a tool; None if the call has not run and may be repeated in a new session."""
        try:
            answer: Any = await self._client.call_tool(name, dict(arguments))
            return ToolResult(answer.content[0].text, is_error=answer.is_error)
        except Exception as error:  # MCPError, pydantic's, RuntimeError
            code = getattr(error, "code", None)
            fault = await self._fault(error, " during the call")
            if code in (REFUSED, NOT_RUN) and await self._is_lost():
                await self.close()
                if code == NOT_RUN and may_repeat:
                    return None
            raise fault from error

    async def close(self) -> None:
        self._on_fault("")
        await asyncio.wait({self._task})

    @property
    def _client(self) -> Client:
        if self._ready_client is None:
            raise self._error(self._problem) if self._problem else self._end_error()
        return self._ready_client

    def _on_fault(self, what: str) -> None:
        self._problem = self._problem or what
        self._end.set()
        if self._scope is not None and not self._is_ready.is_set():
            self._scope.cancel()

    async def _hold(self, client: Client) -> None:
        try:
            await self._talk(client)
        except Exception as error:  # of the SDK, of libraries below it, or a group of them
            self._problem = self._problem or _said_by(error)
        finally:
            self._ready_client = None
            self._end.set()
            self._is_ready.set()

    async def _talk(self, client: Client) -> None:
        late = f"did not answer within {START_TIMEOUT_S:g} s"
        with anyio.CancelScope(deadline=anyio.current_time() + START_TIMEOUT_S) as scope:
            self._scope = scope
            async with client:
                self._ready_client, scope.deadline, late = client, math.inf, ""
                if info := client.server_info:
                    self.version = f"{info.name} {info.version}".strip()
                self._is_ready.set()
                async with anyio.create_task_group() as group:
                    group.start_soon(self._listen, client)
                    await self._end.wait()
                    group.cancel_scope.cancel()
                self._ready_client = None
                scope.deadline = anyio.current_time() + _END_TIMEOUT_S
        if late and not self._end.is_set():
            self._problem = self._problem or late

    async def _on_message(self, message: IncomingMessage) -> None:
        self.is_stale |= isinstance(message, ToolListChangedNotification)

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes, as the protocol of 2026 requires; earlier ones send them anyway."""
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

    async def _all_tools(self) -> list[Tool]:
        tools: list[Tool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            client = self._client
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
        raise self._error("has a list of tools that does not end")

    async def _is_lost(self) -> bool:
        """Ask a server that has refused a request whether the session is over."""
        try:
            async with asyncio.timeout(_PING_TIMEOUT_S):
                await self._client.session.send_ping()
        except MCPError as error:
            return error.code in (REFUSED, NOT_RUN)
        except (TimeoutError, ValueError, ToolError):  # the second: of an answer that is none
            return False
        return False

    async def _fault(self, error: Exception, when: str = "") -> GptOssError:
        """Return the error to raise for one of the SDK, whose words may be the server's."""
        is_end = self.is_over
        if isinstance(error, MCPError):
            is_end = error.code == CONNECTION_CLOSED and error.message == "Connection closed"
        if is_end:
            await self.close()  # then its log is complete
            return self._end_error(when)
        if isinstance(error, MCPError):
            if error.code in (NOT_MCP, NOT_RUN):
                return self._error(error.message)
            if error.code != CONNECTION_CLOSED:  # of the SDK, and never a server's
                return UsageError(self._log.hide(error.message))  # often about the arguments
        return self._error(_said_by(error))

    def _error(self, what: str) -> ToolError:
        """Return an error that tells of a fault of the server, with the end of its log."""
        words = self._log.last_words
        said = f". Its log ends with: {words}" if words not in what else ""
        hint = f"Its log: {self._log.path}"
        return ToolError(self._log.hide(f"the MCP server '{self._name}' {what}{said}"), hint=hint)

    def _end_error(self, when: str = "") -> ToolError:
        """Return an error that says why the server has ended; `when` follows "ended"."""
        return self._error(f"ended{when}{f', as it {self._problem}' if self._problem else ''}")


def _said_by(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case FileNotFoundError() | PermissionError() | NotADirectoryError():
            return f"does not start: {error.strerror}: {error.filename}"
        case OSError():
            return f"cannot be reached: {error.strerror or error}"
        case ValidationError():
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            return f"{NO_MCP} at {place}: {quoted(repr(first['input']).encode(errors='replace'))}"
    name = type(error).__name__
    if type(error).__module__.startswith("httpx2"):
        return f"cannot be reached: {str(error) or name}"
    if isinstance(error, MCPError) and error.error.message == "Connection closed":
        return "ended before it answered"
    return f"failed: {str(error) or name}"
