"""One session with a server, held by a task of its own.

The SDK's task groups must be left by the task that entered them, while calls come from any.
"""

import asyncio
import importlib
import logging
import math
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptoss_local import __version__
from gptoss_local.errors import ToolError
from gptoss_local.talk.tools.mcp.config import Entry, Launch
from gptoss_local.talk.tools.mcp.log import ServerLog
from gptoss_local.talk.tools.mcp.messages import NO_MCP, NOT_RUN, REFUSED, Inbox, quoted

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
