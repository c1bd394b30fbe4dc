"""A server with the scripted engine whose sources of tools answer on demand.

    with run_tool_server(home, script, log=path, api_tools="web_search") as server:

It has `browser` with pages of its own, `python` that runs any code, and `notes` as if it
were an MCP server. The file `log` has every text that was added, begun and ended; a file `address`
next to it is the address of `notes`. The server runs in a thread of this process.
"""

import asyncio
import contextlib
import io
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from gptoss_local.base.errors import UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.server import app
from gptoss_local.talk.tools import (
    Arguments,
    Page,
    RunnableTool,
    Toolbox,
    ToolResult,
    ToolSource,
    ToolSources,
)
from gptoss_local.talk.tools.work import Work
from tests.conftest import RunningServer
from tests.scripted_engine import Script, run_scripted_server

ADDRESS = "https://notes.example/mcp"
OSLO = "https://oslo.example/weather"
_OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
_Run = Callable[[Arguments], Awaitable[str | ToolResult]]


@contextmanager
def run_tool_server(
    home: Path, script: Script, *, log: Path, **settings: str
) -> Iterator[RunningServer]:
    """Run a server; `log` gets a line for each thing that was ended."""
    with (
        patch.object(app, "ToolSources", partial(_Sources, log)),
        run_scripted_server(home, script, **settings) as server,
    ):
        yield server


def resolve(arguments: Arguments) -> Arguments:
    """Fill in the address of the only link."""
    return {**arguments, **({"id": OSLO} if arguments.get("id") == 0 else {})}


class _Source:
    about, description, instructions, is_on, is_mcp = "", "", "", False, False

    def __init__(self, log: Path) -> None:
        self._log = log

    def log(self, line: str) -> None:
        with self._log.open("a") as file:
            file.write(f"{line}\n")

    async def new_chat(self, pages: Iterable[Page] = ()) -> None:
        pass

    async def close(self) -> None:
        pass


class Browser(_Source):
    name = "browser"

    def __init__(self, log: Path) -> None:
        super().__init__(log)
        self._pages: list[Page] = []

    async def tools(self) -> Sequence[RunnableTool]:
        runs: dict[str, _Run] = {"search": self._search, "open": self._open}
        return [
            RunnableTool(f"browser.{name}", "", _OBJECT, run, "", "browser", resolve=resolve,
                         is_built_in=True)
            for name, run in runs.items()
        ]  # fmt: skip

    async def new_chat(self, pages: Iterable[Page] = ()) -> None:
        self._pages = list(pages)

    async def _search(self, arguments: Arguments) -> ToolResult:
        return self._read("", f"results of {arguments['query']}")

    async def _open(self, _arguments: Arguments) -> ToolResult:
        return self._read(OSLO, "Weather in Oslo")

    def _read(self, url: str, title: str) -> ToolResult:
        page = Page(len(self._pages), url, title)
        self._pages.append(page)
        return ToolResult(f"[{page.cursor}] {title}\nL0: 9 C", pages=(page,))


class Python(_Source):
    name = "python"

    def __init__(self, log: Path) -> None:
        super().__init__(log)
        self._names: dict[str, Any] = {}

    async def tools(self) -> Sequence[RunnableTool]:
        return [RunnableTool("python", "", _OBJECT, self._run, "", "python", is_built_in=True)]

    async def _run(self, arguments: Arguments) -> str | ToolResult:
        if arguments["code"] == "raise":
            return ToolResult("Traceback: no", is_error=True)
        if arguments["code"] == "wait":
            self.log("waits")
            try:
                await asyncio.sleep(300)
            except asyncio.CancelledError:
                self.log("ended")
                raise
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                exec(arguments["code"], self._names)
            except NameError as error:
                print(error)
        return printed.getvalue()


class Notes(_Source):
    """Is on in all new chats, and not for requests."""

    name, is_on, is_mcp = "notes", True, True

    async def tools(self) -> Sequence[RunnableTool]:
        moved = self._log.with_name("address")
        address = moved.read_text() if moved.exists() else ADDRESS
        runs: dict[str, _Run] = {"add": self._add, "lose": self._lose}
        return [
            RunnableTool(name, f"The {name}.", _OBJECT, run, "", "notes", identity=address)
            for name, run in runs.items()
        ]

    async def _add(self, arguments: Arguments) -> str:
        self.log(f"added {arguments['text']}")
        return f"added {arguments['text']}"

    async def _lose(self, arguments: Arguments) -> str:
        raise UsageError("the note is lost")


class _Sources(ToolSources):
    def __init__(self, log: Path, settings: Settings, folder: Path) -> None:
        super().__init__(settings, folder)
        self._log = log

    def toolbox(self, work: Work | None = None) -> Toolbox:
        assert work is None
        kinds: list[Callable[[Path], ToolSource]] = [Browser, Python, Notes]
        return Toolbox(
            [kind(self._log) for kind in kinds],
            self.consents,
            n_rounds=self._settings.tool_rounds,
            loop_s=self._settings.tool_loop_s,
        )
