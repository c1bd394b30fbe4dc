"""Runs code in Monty, in a process with `driver.py`."""

import asyncio
import contextlib
import importlib.util
import json
import os
import struct
import sys
from pathlib import Path

from gptoss_local.base.errors import UsageError
from gptoss_local.talk.tools.processes import kill_tree, start
from gptoss_local.talk.tools.python.driver import Config, Result
from gptoss_local.talk.tools.results import MAX_OUTPUT_CHARACTERS

_DRIVER = Path(__file__).with_name("driver.py")
_N_CHARACTERS = MAX_OUTPUT_CHARACTERS - 500  # with notes it is not cut again
_NEEDED = ("SYSTEMROOT", "LD_LIBRARY_PATH")
"""Variables without which Python does not start: on Windows, and where it is built so."""
_GRACE_S = 3.0
"""Time after the limit in which the process may end by itself, before it is killed."""
_END_S = 10.0
_START_S = 60.0  # a slow or busy disk takes long to read Python and Monty
_N_LAST_WORDS = 2_000


class Sandbox:
    def __init__(self, timeout_s: float, memory_bytes: int) -> None:
        found = importlib.util.find_spec("pydantic_monty")
        if found is None or found.origin is None:
            hint = f"Run {sys.executable} -m pip install pydantic-monty"
            raise UsageError("the sandbox of python is not installed: pydantic-monty", hint=hint)
        path = str(Path(found.origin).parents[1])
        self._config = Config(timeout_s, _N_CHARACTERS, memory_bytes, path)
        self._timeout_s = timeout_s
        self._process: asyncio.subprocess.Process | None = None
        self._last_words = b""
        self._listening: asyncio.Task[None] | None = None

    async def run(self, code: str) -> Result:
        is_over = True
        try:
            is_new = self._process is None
            process = self._process = self._process or await self._start()
            async with asyncio.timeout(self._timeout_s + _GRACE_S + _START_S * is_new):
                result = await _call(process, code)
            is_over = bool(result.stopped)
            return result
        except TimeoutError:
            late = f"The code took longer than {self._timeout_s:g} s."
            return Result("", is_error=True, stopped=late)
        except (asyncio.IncompleteReadError, ConnectionError):
            return await self._died(is_new=is_new)
        finally:
            if is_over:
                self.kill()

    async def _start(self) -> asyncio.subprocess.Process:
        config = json.dumps(self._config._asdict())
        try:
            process = await start(
                *(sys.executable, "-I", "-B", str(_DRIVER), config),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={name: os.environ[name] for name in _NEEDED if name in os.environ},
                cwd=_DRIVER.parent,  # any that exists; nothing is read there
            )
        except OSError as error:
            raise UsageError(f"{sys.executable} does not start: {error}") from error
        self._listening = asyncio.create_task(self._listen(process))
        return process

    async def _died(self, *, is_new: bool) -> Result:
        await self.close()
        code = self._process.returncode if self._process else None
        words = self._last_words.decode("utf-8", "replace").strip()
        if is_new and words:
            raise UsageError(f"Python does not start (exit code {code}): {words}")
        return Result("", is_error=True, stopped="The process that runs Python died.")

    def kill(self) -> None:
        # Not `returncode`: its sandbox may outlive it, and has the same standard error.
        if self._process and self._listening and not self._listening.done():
            with contextlib.suppress(ProcessLookupError):
                kill_tree(self._process)

    async def close(self) -> None:
        self.kill()
        if self._listening:
            await asyncio.wait({self._listening}, timeout=_END_S)

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while words := await process.stderr.read(4096):
            self._last_words = (self._last_words + words)[-_N_LAST_WORDS:]
        await process.wait()


async def _call(process: asyncio.subprocess.Process, code: str) -> Result:
    assert process.stdin is not None
    assert process.stdout is not None
    data = json.dumps(code).encode()
    process.stdin.write(struct.pack(">I", len(data)) + data)
    await process.stdin.drain()
    (n_bytes,) = struct.unpack(">I", await process.stdout.readexactly(4))
    return Result(*json.loads(await process.stdout.readexactly(n_bytes)))
