"""The ASGI application and the uvicorn server around it."""

import asyncio
import errno
import logging
import math
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware

from gptoss_local import __version__
from gptoss_local.base.errors import GptOssError, ServerUnavailableError, UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.harmony import AnswerNow
from gptoss_local.models.pulling.jobs import Pulls
from gptoss_local.runner.manager import ModelManager
from gptoss_local.server.access import Access
from gptoss_local.server.chats import Answers, ChatStore
from gptoss_local.server.connections import (
    N_PENDING,
    BoundedProtocol,
    connection_limits,
    quieten_logs,
    return_memory,
)
from gptoss_local.server.dialects.openai.responses_memory import ResponseStore, ToolMemory
from gptoss_local.server.error_handlers import HANDLERS
from gptoss_local.server.guard import Guard, check_access
from gptoss_local.server.lan import LanDoor
from gptoss_local.server.metrics import metrics_of
from gptoss_local.server.openapi import ENDPOINTS
from gptoss_local.server.request_id import RequestIds
from gptoss_local.talk.tools import ToolSources

if TYPE_CHECKING:
    from gptoss_local.server.tracing import Tracing

_log = logging.getLogger("gptoss")

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"

# Of a connection without a request. Python's clients (httpx) drop theirs after 5 s, which is also
# uvicorn's default: a request that was sent just then got no answer.
_KEEP_ALIVE_S = 75


def make_app(settings: Settings, *, shut_down: Callable[[], None]) -> Starlette:
    """Build the application; its lifespan owns the engine process."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.manager = ModelManager(settings)
        watchers = app.state.manager.counters.watchers
        watchers.append(lambda record: metrics_of(app).add(record))
        watchers.append(app.state.access.charge)
        if tracing:
            watchers.append(tracing.add_answer)
        app.state.pulls = Pulls(settings)
        app.state.responses = ResponseStore()
        app.state.tools = ToolSources(settings, Path.home())
        app.state.tool_memory = ToolMemory(app.state.tools.toolbox)
        store = ChatStore(settings.history_path)
        app.state.answers = Answers(app.state.manager, store, app.state.tools)
        app.state.ending = asyncio.Event()  # answers that still run end now
        watching = asyncio.create_task(app.state.access.watch())
        yield
        watching.cancel()
        await app.state.answers.close()
        await app.state.tool_memory.close()
        await app.state.tools.close()
        await app.state.pulls.close()
        await app.state.manager.close()
        await store.close()
        if tracing:
            await tracing.close()

    tracing = start_tracing()
    app = Starlette(
        routes=[endpoint.route for endpoint in ENDPOINTS],
        middleware=[
            Middleware(RequestIds),
            Middleware(Guard, settings=settings),
            *([tracing.middleware] if tracing else []),
        ],
        exception_handlers=HANDLERS,
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # `Guard` serves both
    app.state.start_s, app.state.shut_down = time.monotonic(), shut_down
    app.state.access = Access(settings)
    app.state.wishes = WeakValueDictionary[tuple[str, str], AnswerNow]()  # of answers under way
    return app


def start_tracing() -> "Tracing | None":
    """Return None unless the environment says where spans go and the SDK is installed."""
    if not (endpoint := os.environ.get(_ENDPOINT, "").strip()):
        return None
    try:
        from gptoss_local.server.tracing import Tracing
    except ImportError as error:
        _log.warning(
            "%s is set, but there are no traces: %s. pip install 'gptoss-local[otel]' adds them.",
            _ENDPOINT,
            error,
        )
        return None
    _log.info("traces go to %s", endpoint)
    return Tracing()


def serve(settings: Settings) -> None:
    server = make_server(settings)
    quieten_logs()
    return_memory()
    server.run()


def make_server(settings: Settings) -> "Server":
    check_access(settings)

    def shut_down() -> None:
        server.should_exit = True

    app = make_app(settings, shut_down=shut_down)
    n_connections, backlog = connection_limits(settings)

    class Protocol(BoundedProtocol, max_connections=n_connections):
        """Counts the connections of this server alone."""

    config = uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        loop="asyncio",  # not uvloop where it is installed: nothing here is tested with it
        backlog=backlog,
        log_config=None,  # its loggers write where ours do
        log_level="warning",
        access_log=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=math.ceil(settings.grace_s) + 2,
        server_header=False,
        headers=[("Server", f"gptoss/{__version__}")],
    )
    server = Server(config, app, settings, _listen(settings))
    app.state.lan = LanDoor(
        settings,
        lambda address: _listen(msgspec.structs.replace(settings, host=address)),
        lambda: Protocol(config, server.server_state, server.lifespan.state),
    )
    return server


class Server(uvicorn.Server):
    """Lets answers finish for a while when it is told to end, then ends them with an error."""

    def __init__(
        self, config: uvicorn.Config, app: Starlette, settings: Settings, listener: socket.socket
    ) -> None:
        super().__init__(config)
        self._app = app
        self._settings = settings
        self._listener = listener

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        _log.info("listening on %s", self._settings.url)
        with self._app.state.access.secret_in_file():
            super().run(sockets=sockets or [self._listener])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(N_PENDING)
        if self._settings.lan != "off":
            try:
                await self._app.state.lan.open(self._settings.lan)
            except GptOssError as error:  # a laptop may start without a network
                _log.warning("%s. %s", error.message, "`gptoss web --lan` tries it again.")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.state.lan.stop_listening()
        ending = self._app.state.ending

        def end() -> None:
            ending.set()
            for each in list(self.server_state.connections):
                if isinstance(each, BoundedProtocol) and each.is_waiting:
                    each.abort()

        asyncio.get_running_loop().call_later(self._settings.grace_s, end)
        answers = asyncio.create_task(self._app.state.answers.finish(ending))
        self.server_state.tasks.add(answers)  # waited for as requests are
        answers.add_done_callback(self.server_state.tasks.discard)
        await super().shutdown(sockets)


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio switches Nagle's algorithm off only where the protocol is spelled out; otherwise the
    # first token waits 40 ms for the client's delayed ACK.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if os.name == "posix":  # on Windows this option would allow two servers on one port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(N_PENDING)  # Linux lets two bind an address, and one listen
    except OSError as error:
        listener.close()
        what = f"cannot listen on {settings.host}:{settings.port}"
        if error.errno != errno.EADDRINUSE:  # no address of this machine, or not a user's port
            hint = "GPTOSS_HOST and GPTOSS_PORT say where."
            raise UsageError(f"{what}: {error.strerror}", hint=hint) from error
        what += ": it is in use"  # for which Windows has no words
        hint = "If Ollama or gptoss runs there, stop it, or choose another port: "
        raise ServerUnavailableError(what, hint=f"{hint}GPTOSS_PORT=11435 gptoss serve") from error
    return listener
