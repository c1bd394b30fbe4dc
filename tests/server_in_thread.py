"""The server's real application on a real socket, in a thread of the tests' process."""

import asyncio
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn.server

from gptoss_local.base.settings import Settings
from gptoss_local.server.app import Server, make_server


class _Asyncio:
    """asyncio for uvicorn, whose pauses as it ends would cost a test more than all else."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, delay_s: float) -> None:
        thread = threading.current_thread()
        is_ending = isinstance(thread, ThreadedServer) and thread.server.should_exit
        await asyncio.sleep(delay_s / 50 if is_ending else delay_s)


uvicorn.server.asyncio = _Asyncio()  # type: ignore[assignment]


class ThreadedServer(threading.Thread):
    """Stands where tests expect the server's process; it can end, but nothing can kill it."""

    def __init__(self, server: Server, prepare: Callable[[], None]) -> None:
        super().__init__(name="server")
        self.server = server
        self._prepare = prepare
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._prepare()
            self.server.run()
        except BaseException as error:  # SystemExit, too: uvicorn's word for a failed start
            self.error = error

    def terminate(self) -> None:
        """Do what SIGTERM does."""
        self.server.should_exit = True

    def wait(self, timeout: float | None = None) -> int:
        self.join(timeout)
        if self.is_alive():
            raise subprocess.TimeoutExpired("server", timeout or 0)
        return 0

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no {name}: this server runs in the tests' process; see is_process")


@contextmanager
def serving(
    settings: Settings, prepare: Callable[[], None] = lambda: None
) -> Iterator[ThreadedServer]:
    """Run a server, whose thread calls `prepare` first, and stop it afterwards."""
    thread = ThreadedServer(make_server(settings), prepare)
    thread.start()
    try:
        while thread.is_alive() and not thread.server.started:
            time.sleep(0.001)
        if thread.error:
            raise thread.error
        yield thread
    finally:
        thread.terminate()
        thread.wait(timeout=20)
    if thread.error:
        raise thread.error
