"""A server with the scripted engine whose sources of tools answer on demand.

    with run_tool_server(home, script, notes=path, api_tools="web_search") as server:

It has `browser` with pages of its own, `python` that runs what it is given, and as if they were MCP
servers `notes` and `broken`, which does not answer. What `python` and `notes` have to say of calls
that were ended, and of toolboxes that were closed, is in the file `notes`; a file `address` next
to it is the address of `notes`. The server runs in a thread of this process.
"""

import asyncio
import contextlib
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from gptoss_local.base.errors import ToolError, UsageError
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
from tests.conftest import RunningServer
from tests.scripted_engine import Script, run_scripted_server

ADDRESS = "https://notes.example/mcp"
OSLO = "https://oslo.example/weather"
_OBJECT: dict[str, Any] = {"type": "object", "properties": {}}


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


class _Logging:
    def __init__(self, log: Path) -> None:
        self._log = log

    def log(self, line: str) -> None:
        with self._log.open("a") as file:
            file.write(f"{line}\n")


class Browser(_Logging):
    name, about, description, is_on = "browser", "", "", False
    is_mcp = False

    def __init__(self, log: Path) -> None:
        super().__init__(log)
        self._pages: list[Page] = []

    async def tools(self) -> Sequence[RunnableTool]:
        runs = (("search", self._search), ("open", self._open), ("find", self._find))
        return [
            RunnableTool(
                f"browser.{name}",
                "",
                _OBJECT,
                run,
                "",
                "browser",
                resolve=resolve,
                is_built_in=True,
            )
            for name, run in runs
        ]

    async def new_chat(self, pages: Iterable[Page] = ()) -> None:
        self._pages = list(pages)

    async def close(self) -> None:
        self.log("closed browser")

    async def _search(self, arguments: Arguments) -> ToolResult:
        return self._read("", f"results of {arguments['query']}")

    async def _open(self, arguments: Arguments) -> ToolResult:
        if arguments["id"] == "nowhere":
            raise UsageError("there is no such page")
        return self._read(OSLO, "Weather in Oslo")

    async def _find(self, arguments: Arguments) -> ToolResult:
        return self._read(OSLO, "Found")

    def _read(self, url: str, title: str) -> ToolResult:
        page = Page(len(self._pages), url, title)
        self._pages.append(page)
        return ToolResult(f"[{page.cursor}] {title}\nL0: 9 C", pages=(page,))


class Python(_Logging):
    name, about, description, is_on = "python", "", "", False
    is_mcp = False

    def __init__(self, log: Path) -> None:
        super().__init__(log)
        self._names: dict[str, Any] = {}

    async def tools(self) -> Sequence[RunnableTool]:
        return [RunnableTool("python", "", _OBJECT, self._run, "", "python", is_built_in=True)]

    async def new_chat(self, pages: Iterable[Page] = ()) -> None:
        self._names.clear()

    async def close(self) -> None:
        self.log("closed python")

    async def _run(self, arguments: Arguments) -> str | ToolResult:
        if arguments["code"] == "refuse":
            raise UsageError("there is no Python")
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


class Notes(_Logging):
    name, about, description, is_on = "notes", "", "", False
    is_mcp = True

    async def tools(self) -> Sequence[RunnableTool]:
        moved = self._log.with_name("address")
        address = moved.read_text() if moved.exists() else ADDRESS
        return [
            RunnableTool(name, f"The {name}.", _OBJECT, run, "", "notes", identity=address)
            for name, run in (("add", self._add), ("lose", self._lose))
        ]

    async def new_chat(self, pages: Iterable[Page] = ()) -> None:
        pass

    async def close(self) -> None:
        pass

    async def _add(self, arguments: Arguments) -> str:
        self.log(f"added {arguments['text']}")
        return f"added {arguments['text']}"

    async def _lose(self, arguments: Arguments) -> str:
        raise UsageError("the note is lost")


class Broken(Notes):
    name = "broken"

    async def tools(self) -> Sequence[RunnableTool]:
        raise ToolError("it does not answer")


class OfTheUser(Notes):
    """Is on in all new chats, and not for requests."""

    name, is_on, is_mcp = "read_file", True, False

    async def tools(self) -> Sequence[RunnableTool]:
        self.log("asked for read_file")
        return [RunnableTool("read_file", "", _OBJECT, self._add, "", "read_file")]


class _Sources(ToolSources):
    def __init__(self, log: Path, settings: Settings, folder: Path) -> None:
        super().__init__(settings, folder)
        self._log = log

    def toolbox(self) -> Toolbox:
        kinds: list[Callable[[Path], ToolSource]] = [Browser, Python, Notes, Broken, OfTheUser]
        settings = self._settings
        return Toolbox(
            [kind(self._log) for kind in kinds],
            self.consents,
            n_rounds=settings.tool_rounds,
            loop_s=settings.tool_loop_s,
        )
