"""Runs code in a process with `driver.py`: of this machine, or of a container."""

import asyncio
import contextlib
import json
import struct
import subprocess
from collections.abc import Coroutine, Sequence
from pathlib import Path

from gptoss_local.errors import UsageError
from gptoss_local.tools.processes import kill_tree
from gptoss_local.tools.python.driver import Result
from gptoss_local.tools.python.engine import Answer

_GRACE_S = 3.0
"""After its time the process says itself that it ends; it is killed if it does not."""
_END_S = 10.0
_START_S = 60.0  # an image is pulled elsewhere, but a slow disk reads it
_MOST_BYTES = 4 << 20  # of a result; the driver cuts it far below
_N_LAST_WORDS = 2_000


class _NoResultError(Exception):
    """A frame is not a result."""


class FramedEngine:
    """A process that is started with the first call.

    Args:
        argv: How it is started.
        env: Its whole environment.
        timeout_s: Of a call; the process knows it, too.
        ends_by: A command that also ends it, for what runs outside of our processes.
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: dict[str, str],
        timeout_s: float,
        *,
        ends_by: Sequence[str] = (),
    ) -> None:
        self._argv, self._env, self._ends_by = argv, env, ends_by
        self._timeout_s = timeout_s
        self._process: asyncio.subprocess.Process | None = None
        self._last_words = b""
        self._listening: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def pid(self) -> int | None:
        """Return the process, if it was started."""
        return self._process.pid if self._process else None

    async def run(self, code: str) -> Answer:
        is_over = True
        try:
            is_new = self._process is None
            process = self._process = self._process or await self._start()
            async with asyncio.timeout(self._timeout_s + _GRACE_S + _START_S * is_new):
                result = await _call(process, code)
            is_over = bool(result.stopped)
            text = (
                result.text.rstrip("\n") + f"\nError: {result.stopped}" if is_over else result.text
            )
            return Answer(text.lstrip("\n"), result.is_error, is_lost=is_over)
        except TimeoutError:
            late = f"Error: The code took longer than {self._timeout_s:g} s."
            return Answer(late, is_error=True, is_lost=True)
        except (asyncio.IncompleteReadError, ConnectionError, _NoResultError):
            return await self._died(is_new=is_new)
        finally:
            if is_over:
                self.kill()

    async def _start(self) -> asyncio.subprocess.Process:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._env,
                cwd=Path(__file__).parent,  # any that exists; nothing is read there
                start_new_session=True,
            )
        except OSError as error:
            raise UsageError(f"{self._argv[0]} does not start: {error}") from error
        self._listening = self._keep(self._listen(process))
        return process

    async def _died(self, *, is_new: bool) -> Answer:
        """Say why the process is gone."""
        self.kill()
        await self._wait()
        code = self._process.returncode if self._process else None
        words = self._last_words.decode("utf-8", "replace").strip()
        if is_new and words:
            raise UsageError(f"Python does not start (exit code {code}): {words}")
        return Answer("Error: The process that runs Python died.", is_error=True, is_lost=True)

    def kill(self) -> None:
        process = self._process
        # Not `returncode`: its sandbox may outlive it, and has the same standard error.
        if process is None or self._listening is None or self._listening.done():
            return
        with contextlib.suppress(ProcessLookupError):
            kill_tree(process)
        if self._ends_by:
            self._keep(_run_quietly(self._ends_by))
            self._ends_by = ()

    async def close(self) -> None:
        self.kill()
        await self._wait()

    async def _wait(self) -> None:
        """Wait until everything has ended; not for a container's program that hangs."""
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=_END_S)
            for task in late:
                task.cancel()

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        """Keep the last of what it says on its standard error, until it has ended."""
        assert process.stderr is not None
        while words := await process.stderr.read(4096):
            self._last_words = (self._last_words + words)[-_N_LAST_WORDS:]
        await process.wait()

    def _keep(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _call(process: asyncio.subprocess.Process, code: str) -> Result:
    assert process.stdin is not None
    assert process.stdout is not None
    data = json.dumps(code).encode()
    process.stdin.write(struct.pack(">I", len(data)) + data)
    await process.stdin.drain()
    (n_bytes,) = struct.unpack(">I", await process.stdout.readexactly(4))
    if n_bytes > _MOST_BYTES:
        raise _NoResultError
    data = await process.stdout.readexactly(n_bytes)
    try:  # code in a container may have written this
        text, is_error, stopped = json.loads(data)
    except (ValueError, TypeError, RecursionError) as error:
        raise _NoResultError from error
    return Result(str(text), bool(is_error), str(stopped))


async def _run_quietly(argv: Sequence[str]) -> None:
    nothing = subprocess.DEVNULL
    with contextlib.suppress(OSError):
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=nothing, stdout=nothing, stderr=nothing
        )
        try:
            await process.wait()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            raise
