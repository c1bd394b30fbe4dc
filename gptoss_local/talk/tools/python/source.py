"""The source of the tool `python`: one engine a chat, started with the first call."""

import asyncio
import contextlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptoss_local.base.errors import ToolError, UsageError
from gptoss_local.base.quantities import parse_memory
from gptoss_local.base.settings import Settings
from gptoss_local.talk.tools.consent import digest
from gptoss_local.talk.tools.processes import kill_tree, start
from gptoss_local.talk.tools.python.driver import Config, Result
from gptoss_local.talk.tools.tool import (
    MAX_OUTPUT_CHARACTERS,
    Arguments,
    Page,
    RunnableTool,
    ToolResult,
    ToolSource,
)

if TYPE_CHECKING:
    from gptoss_local.talk.tools.python.jupyter import JupyterEngine

_KERNEL = re.compile(r"jupyter:([A-Za-z0-9][A-Za-z0-9._-]*)")
_TOLD = (
    "Use this tool to execute Python code in your chain of thought. The code will not be "
    "shown to the user. This tool should be used for internal reasoning, but not for code "
    "that is intended to be visible to the user.\n\n"
    "When you send a message containing Python code to python, it will be executed in a "
    "stateful environment. python will respond with the output of the execution or time "
    "out after {:.1f} seconds. "
)
"""Source: `ToolNamespaceConfig.python` of openai-harmony."""


def kernel_of(text: str) -> str:
    found = _KERNEL.fullmatch(text.strip())
    if found is None and text.strip() != "sandbox":
        raise UsageError(
            f"python_tool {text!r} is not a place where Python can run",
            hint="Write sandbox, or jupyter:KERNEL, such as jupyter:python3.",
        )
    return found[1] if found else ""


_DRIVER = Path(__file__).with_name("driver.py")
_N_CHARACTERS = MAX_OUTPUT_CHARACTERS - 500  # with notes it is not cut again
_MAX_LINE_BYTES = 2**20  # of as many characters, as JSON
_NEEDED = ("SYSTEMROOT", "LD_LIBRARY_PATH")
"""Variables without which Python does not start: on Windows, and where it is built so."""
_GRACE_S = 3.0  # time after the limit in which the process may end by itself, before it is killed
_END_S = 10.0
_START_S = 60.0  # a slow or busy disk takes long to read Python and Monty


class Sandbox:
    """Monty, in a process with `driver.py`; a result that is `stopped` is its last."""

    def __init__(self, timeout_s: float, memory_bytes: int) -> None:
        found = importlib.util.find_spec("pydantic_monty")
        if found is None or found.origin is None:
            hint = f"Run {sys.executable} -m pip install pydantic-monty"
            raise UsageError("the sandbox of python is not installed: pydantic-monty", hint=hint)
        path = str(Path(found.origin).parents[1])
        self._config = Config(timeout_s, _N_CHARACTERS, memory_bytes, path)
        self._timeout_s = timeout_s
        self._process: Any = None  # asyncio's, with pipes

    async def run(self, code: str) -> Result:
        is_new = self._process is None
        if is_new:
            self._process = await self._start()
        try:
            async with asyncio.timeout(self._timeout_s + _GRACE_S + _START_S * is_new):
                self._process.stdin.write(json.dumps(code).encode() + b"\n")
                await self._process.stdin.drain()
                line = await self._process.stdout.readline()
        except TimeoutError:
            late = f"The code took longer than {self._timeout_s:g} s."
            return Result("", is_error=True, stopped=late)
        except ConnectionError:
            line = b""
        if line.endswith(b"\n"):
            return Result(*json.loads(line))
        process = self._process
        words = await self.close()
        if is_new and words:
            raise UsageError(f"Python does not start (exit code {process.returncode}): {words}")
        return Result("", is_error=True, stopped="The process that runs Python died.")

    async def _start(self) -> asyncio.subprocess.Process:
        options = ("-I", "-B", "-W", "ignore")  # parsed code would warn on stderr
        try:
            return await start(
                *(sys.executable, *options, str(_DRIVER), json.dumps(self._config._asdict())),
                limit=_MAX_LINE_BYTES,
                env={name: os.environ[name] for name in _NEEDED if name in os.environ},
                cwd=_DRIVER.parent,  # any that exists; nothing is read there
            )
        except OSError as error:
            raise UsageError(f"{sys.executable} does not start: {error}") from error

    async def close(self) -> str:
        """End the process and its sandbox; return its last words."""
        process, self._process = self._process, None
        if process is None:
            return ""
        words = b""
        with contextlib.suppress(ProcessLookupError):
            kill_tree(process)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_S):  # both have the pipes, so both are gone then
                _, words = await process.communicate()
        return words.decode("utf-8", "replace").strip()[-2_000:]


IDLE_S = 600.0
MOST_CODE_CHARACTERS = 1_000_000
_LEAST_MEMORY_BYTES = 16_000_000  # the sandbox itself takes some
_LOST = "Python was restarted: variables, functions and imports of earlier calls are lost."


class Python(ToolSource):
    """Keeps variables between a chat's calls, until `idle_s` without one. One event loop only."""

    name = "python"
    description = "Runs Python code. Variables stay until the chat ends."

    def __init__(
        self, settings: Settings, folder: Path, *, is_on: bool = False, idle_s: float = IDLE_S
    ) -> None:
        self._kernel = kernel_of(settings.python_tool)
        self.about = "runs Python code in a sandbox without files and network"
        told = "It has no files, no network, and a part of the standard library only."
        if self._kernel:
            self.about = f"runs Python code in your Jupyter kernel {self._kernel}, as you"
            told = "It may read and write the user's files."
        self._told_model = _TOLD.format(settings.python_timeout_s) + told
        self.is_on = is_on
        self._timeout_s = settings.python_timeout_s
        self._memory_bytes = parse_memory(settings.python_memory, "python_memory")
        if self._memory_bytes < _LEAST_MEMORY_BYTES:
            hint = "Write 16MB or more; 256MiB is the default."
            raise UsageError(f"python_memory {settings.python_memory!r} is too little", hint=hint)
        self._folder = folder
        self._idle_s = idle_s
        self._engine: Sandbox | JupyterEngine | None = None
        self._lock = asyncio.Lock()  # calls of one answer may come together
        self._idle: asyncio.TimerHandle | None = None
        self._loss = ""  # why variables are gone, until the model was told
        self._ending: set[asyncio.Task[Any]] = set()

    async def tools(self) -> Sequence[RunnableTool]:
        if self._kernel and importlib.util.find_spec("jupyter_client") is None:
            raise ToolError(
                f"python_tool jupyter:{self._kernel} needs jupyter_client, which is not installed. "
                f"Run {sys.executable} -m pip install jupyter_client"
            )
        code = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}
        where = str(self._folder.resolve()) if self._kernel else ""
        tool = RunnableTool(
            self.name,
            self._told_model,
            code,
            self.run,
            self.about,
            self.name,
            timeout_s=self._timeout_s + 120,  # it ends itself; a kernel may be slow to start
            identity=digest(self._kernel, where),
            is_built_in=True,
        )
        return [tool]

    async def new_chat(self, pages: Iterable[Page] = ()) -> None:
        await self.close()

    async def close(self) -> None:
        self._end("")
        while self._ending:
            await asyncio.wait(self._ending)

    async def run(self, arguments: Arguments) -> ToolResult:
        """Run `code`. Cancelling it stops the code, and variables are lost."""
        code = _code_of(arguments)
        async with self._lock:
            self._stop_clock()
            engine = self._engine = self._engine or self._new_engine()
            try:
                result = await engine.run(code)
            except UsageError:
                self._end(self._loss)  # that it does not start loses nothing more
                raise
            except BaseException:
                self._end("The call before was stopped.")
                raise
            return self._told(result)

    def _new_engine(self) -> "Sandbox | JupyterEngine":
        if self._kernel:
            from gptoss_local.talk.tools.python.jupyter import JupyterEngine

            return JupyterEngine(self._kernel, self._timeout_s, self._folder)
        return Sandbox(self._timeout_s, self._memory_bytes)

    def _told(self, result: Result) -> ToolResult:
        text = result.text
        if result.stopped:
            text = (text.rstrip("\n") + f"\nError: {result.stopped} {_LOST}").lstrip("\n")
        if self._loss:
            text = f"({self._loss} {_LOST})\n{text}"
        self._loss = ""
        if result.stopped:
            self._end("")
        elif self._engine is not None:  # no new chat has begun since
            why = f"There was no call for {self._idle_s / 60:g} minutes."
            self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._end, why)
        return ToolResult(text.encode("utf-8", "replace").decode(), result.is_error)

    def _end(self, loss: str) -> None:
        self._stop_clock()
        self._loss = loss
        if self._engine is not None:
            engine, self._engine = self._engine, None
            task = asyncio.ensure_future(engine.close())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def _stop_clock(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None


def _code_of(arguments: Arguments) -> str:
    code = arguments.get("code")
    if not isinstance(code, str):
        raise UsageError("code must be a string of Python code")
    if len(code) > MOST_CODE_CHARACTERS:
        raise UsageError(f"the code is longer than {MOST_CODE_CHARACTERS:,} characters")
    try:
        code.encode()
    except UnicodeEncodeError as error:
        raise UsageError("the code has characters that are half of a surrogate pair") from error
    return code.removeprefix("\ufeff")
