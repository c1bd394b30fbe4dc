"""The source of the tool `python`: one engine a chat, started with the first call."""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gptoss_local.base.errors import ToolError, UsageError
from gptoss_local.base.quantities import parse_memory
from gptoss_local.base.settings import Settings
from gptoss_local.talk.tools.consent import digest
from gptoss_local.talk.tools.python.driver import Result
from gptoss_local.talk.tools.results import Page, ToolResult
from gptoss_local.talk.tools.tool import Arguments, RunnableTool, ToolSource

if TYPE_CHECKING:
    from gptoss_local.talk.tools.python.jupyter import JupyterEngine
    from gptoss_local.talk.tools.python.sandbox import Sandbox
import importlib.util
import re
import sys
from typing import Literal, NamedTuple

_FORMS = "Write sandbox, or jupyter:KERNEL, such as jupyter:python3."
_KERNEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Choice(NamedTuple):
    kind: Literal["sandbox", "jupyter"]
    name: str = ""

    @property
    def about(self) -> str:
        """Describe it for the user, after "It"."""
        if self.kind == "jupyter":
            return f"runs Python code in your Jupyter kernel {self.name}, as you"
        return "runs Python code in a sandbox without files and network"

    def told(self, timeout_s: float) -> str:
        """Source: `ToolNamespaceConfig.python` of openai-harmony, for the first part."""
        limits = {
            "sandbox": "It has no files, no network, and a part of the standard library only.",
            "jupyter": "It may read and write the user's files.",
        }[self.kind]
        return (
            "Use this tool to execute Python code in your chain of thought. The code will not be "
            "shown to the user. This tool should be used for internal reasoning, but not for code "
            "that is intended to be visible to the user.\n\n"
            "When you send a message containing Python code to python, it will be executed in a "
            "stateful environment. python will respond with the output of the execution or time "
            f"out after {timeout_s:.1f} seconds. {limits}"
        )

    def check(self) -> None:
        """Raise UsageError if a package that it needs is not installed."""
        if self.kind == "jupyter" and importlib.util.find_spec("jupyter_client") is None:
            raise UsageError(
                f"python_tool {self.kind}:{self.name} needs jupyter_client, which is not installed",
                hint=f"Run {sys.executable} -m pip install jupyter_client",
            )


def parse_choice(text: str) -> Choice:
    """Read the setting. Raises UsageError if it names no place where code can run."""
    kind, colon, name = text.strip().partition(":")
    if kind == "sandbox" and not colon:
        return Choice("sandbox")
    if kind == "jupyter" and _KERNEL.fullmatch(name):
        return Choice("jupyter", name)
    if kind == "container":
        raise UsageError(f"python_tool {text!r}: Python does not run in containers", hint=_FORMS)
    raise UsageError(f"python_tool {text!r} is not a place where Python can run", hint=_FORMS)


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
        self._choice = parse_choice(settings.python_tool)
        self.about = self._choice.about
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
        self._ending: set[asyncio.Task[None]] = set()

    async def tools(self) -> Sequence[RunnableTool]:
        try:
            self._choice.check()
        except UsageError as error:
            raise ToolError(f"{error.message}. {error.hint}") from error
        code = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}
        where = str(self._folder.resolve()) if self._choice.kind == "jupyter" else ""
        tool = RunnableTool(
            self.name,
            self._choice.told(self._timeout_s),
            code,
            self.run,
            self.about,
            self.name,
            timeout_s=self._timeout_s + 120,  # it ends itself; a kernel may be slow to start
            identity=digest(self._choice, where),
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
        if self._choice.kind == "jupyter":
            self._choice.check()
            from gptoss_local.talk.tools.python.jupyter import JupyterEngine

            return JupyterEngine(self._choice.name, self._timeout_s, self._folder)
        from gptoss_local.talk.tools.python.sandbox import Sandbox

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
            self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._on_idle)
        return ToolResult(text.encode("utf-8", "replace").decode(), result.is_error)

    def _on_idle(self) -> None:
        self._end(f"There was no call for {self._idle_s / 60:g} minutes.")

    def _end(self, loss: str) -> None:
        self._stop_clock()
        self._loss = loss
        if self._engine is not None:
            engine, self._engine = self._engine, None
            engine.kill()
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
