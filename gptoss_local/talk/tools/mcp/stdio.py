"""A server that is a program: messages are lines of its standard streams."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import psutil
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest

from gptoss_local.talk.tools.mcp import messages
from gptoss_local.talk.tools.mcp.config import Launch
from gptoss_local.talk.tools.mcp.messages import Inbox, ServerLog
from gptoss_local.talk.tools.processes import kill_tree, start

END_S = 2.0  # for a program to end by itself, and again after SIGTERM
_PAUSE_S = 0.2  # for the last words
_PIECE_BYTES = 2**16


@asynccontextmanager
async def run(
    launch: Launch, folder: Path, log: ServerLog, inbox: Inbox
) -> AsyncGenerator[Any, None]:
    # PATH, HOME and a few others of ours, among which there are no keys
    env, limit = get_default_environment() | launch.env, messages.MAX_MESSAGE_BYTES
    program, *arguments = launch.command
    if sys.platform == "win32":
        from mcp.os.win32.utilities import get_windows_executable_command

        program = get_windows_executable_command(program)  # npx is npx.cmd
    process: Any = await start(program, *arguments, cwd=folder, env=env, limit=limit)
    put, incoming = anyio.create_memory_object_stream[Any](0)
    outgoing, take = anyio.create_memory_object_stream[Any](0)

    async def read() -> None:
        try:
            async for line in _lines(process.stdout, inbox):
                for message in inbox.read(line):
                    await put.send(SessionMessage(message))
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass  # it is being ended
        finally:
            inbox.end("")
            put.close()
        while await process.stdout.read(_PIECE_BYTES):  # otherwise it could not end
            pass

    async def write() -> None:
        try:
            async for item in take:
                if isinstance(item.message, JSONRPCRequest):
                    inbox.asked.add(item.message.id)
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(text.encode() + b"\n")
                await process.stdin.drain()
        except ConnectionError:
            inbox.end("")  # it does not read any more

    tasks = [asyncio.create_task(each) for each in (read(), write(), _log(process.stderr, log))]
    try:
        yield incoming, outgoing
    finally:
        inbox.is_over = True
        with anyio.CancelScope(shield=True):
            for stream in (incoming, outgoing):
                stream.close()
            await _end(process)
            tasks.append(asyncio.create_task(process.wait()))
            await asyncio.wait(tasks, timeout=_PAUSE_S)
            for task in tasks:
                task.cancel()
            take.close()


async def _lines(stdout: asyncio.StreamReader, inbox: Inbox) -> AsyncIterator[bytes]:
    while not inbox.is_over:
        try:
            yield await stdout.readuntil()
        except asyncio.IncompleteReadError as end:
            yield end.partial
            return
        except asyncio.LimitOverrunError:
            inbox.end(f"sent a message of more than {messages.MAX_MESSAGE_BYTES // 2**20} MiB")


async def _log(stderr: asyncio.StreamReader, log: ServerLog) -> None:
    while log.is_open:
        with contextlib.suppress(ValueError):  # a line over the limit
            if not (line := await stderr.readline()):
                return
            log.write(line.decode(errors="replace"))
    while await stderr.read(_PIECE_BYTES):  # otherwise the program would block
        pass


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a program and its children: `npx` has its `node`, a server its browser."""
    started = []
    with contextlib.suppress(psutil.Error):  # also those in sessions of their own
        started = psutil.Process(process.pid).children(recursive=True)
    assert process.stdin is not None
    for end in (process.stdin.close, process.terminate):
        with contextlib.suppress(TimeoutError, ProcessLookupError):
            end()
            async with asyncio.timeout(END_S):
                await process.wait()
                break
    with contextlib.suppress(ProcessLookupError):
        kill_tree(process)
    for each in started:
        with contextlib.suppress(psutil.Error):
            each.kill()
