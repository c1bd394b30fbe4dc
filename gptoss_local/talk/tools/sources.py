"""Makes the toolboxes of this process, and ends the servers that they share."""

import asyncio
import contextlib
import os
import re
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from gptoss_local.base.errors import ToolError, UsageError
from gptoss_local.base.quantities import as_written
from gptoss_local.base.settings import (
    Settings,
    ToolCommand,
    config_path,
    environment_without_secrets,
)
from gptoss_local.talk.tools.browser import Browser
from gptoss_local.talk.tools.consent import Consents, program_digest
from gptoss_local.talk.tools.mcp import McpServers
from gptoss_local.talk.tools.processes import kill_tree, start
from gptoss_local.talk.tools.python import Python
from gptoss_local.talk.tools.tool import Arguments, RunnableTool, ToolSource
from gptoss_local.talk.tools.toolbox import Toolbox

MAX_OUTPUT_BYTES = 32 * 1024
CUT = f"\n(cut after {MAX_OUTPUT_BYTES // 1024} KiB)"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_PLACE = re.compile(r"\{(\w+)\}")


class Program(ToolSource):
    """The user's program as a tool. Raises UsageError for a name or schema no model could use."""

    is_on = True

    def __init__(self, name: str, command: ToolCommand, folder: Path) -> None:
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"[tools.{name}]: '{name}' is not a name for a function",
                hint="Letters, digits, _ and -, at most 64, a letter first.",
            )
        kind = command.parameters.get("type", "object")
        if kind != "object" or not isinstance(command.parameters.get("properties", {}), dict):
            raise UsageError(f"[tools.{name}]: parameters must be a JSON schema of an object")
        self.name = name
        self.about = f"runs {command.command[0]}"
        self.description = command.description
        self._command, self._folder = command, folder

    async def tools(self) -> Sequence[RunnableTool]:
        return [self.tool]

    @property
    def tool(self) -> RunnableTool:
        return RunnableTool(
            self.name,
            self.description,
            {"type": "object", "properties": {}} | self._command.parameters,
            self._run,
            self.about,
            self.name,
            argv=partial(filled_in, self._command),
            timeout_s=self._command.timeout_s + 5,
            identity=program_digest(self._command.command, self._folder, {}),
        )

    async def _run(self, arguments: Arguments) -> str:
        stdin, timeout_s = msgspec.json.encode(arguments), self._command.timeout_s
        argv = filled_in(self._command, arguments)
        return await run_program(argv, stdin, timeout_s, self._folder)


def filled_in(command: ToolCommand, arguments: Arguments) -> list[str]:
    """Return the command with each `{name}` replaced; words without their argument go."""
    known = command.parameters.get("properties", {})

    def fill(found: re.Match[str]) -> str:
        if found[1] not in known:
            return found[0]
        return as_written(arguments[found[1]]).replace("\0", "")  # which ends a word for the system

    return [
        _PLACE.sub(fill, word)
        for word in command.command
        if all(place in arguments for place in _PLACE.findall(word) if place in known)
    ]


async def run_program(argv: list[str], stdin: bytes, timeout_s: float, folder: Path) -> str:
    """Run a program without a shell, and kill it with its children when the time is over."""
    try:
        process = await start(
            *argv,
            stderr=asyncio.subprocess.STDOUT,
            cwd=folder,
            env=environment_without_secrets(),
        )
    except (OSError, ValueError) as error:
        raise UsageError(f"{argv[0]} does not start: {error}") from error
    try:
        async with asyncio.timeout(timeout_s):
            output, is_cut = await _talk(process, stdin)
            code = None if is_cut else await process.wait()
    except TimeoutError as error:
        raise UsageError(f"{argv[0]} took longer than {timeout_s:g} s and was stopped") from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            kill_tree(process)
        await process.communicate()  # `wait` hangs if the pipe is full and not read
    text = output.decode("utf-8", "replace")
    if is_cut:
        return text + CUT
    if code:
        raise UsageError(f"exit code {code}\n{text}".rstrip())
    return text


async def _talk(process: asyncio.subprocess.Process, stdin: bytes) -> tuple[bytes, bool]:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(ConnectionError):  # it reads nothing
        process.stdin.write(stdin)
        await process.stdin.drain()
    process.stdin.close()
    output = b""
    while len(output) <= MAX_OUTPUT_BYTES:
        piece = await process.stdout.read(MAX_OUTPUT_BYTES)
        if not piece:
            return output, False
        output += piece
    return output[:MAX_OUTPUT_BYTES], True


class Files(ToolSource):
    """Reads below the folder of the settings, or the chat's, unless that contains the home."""

    name = "read_file"
    description = "Reads a text file of the user."

    def __init__(self, settings: Settings, folder: Path, *, is_on: bool = False) -> None:
        chosen = settings.read_folder or folder
        self._folder = chosen.resolve()
        home = Path(os.path.expanduser("~")).resolve()
        self._is_home = settings.read_folder is None and home.is_relative_to(self._folder)
        below = "the folder that read_folder names" if self._is_home else chosen
        self.about = f"is built in, and reads a text file below {below}"
        self.is_on = is_on

    async def tools(self) -> Sequence[RunnableTool]:
        if self._is_home:
            raise ToolError(
                f"{self._folder} is not read as a whole; name a folder in the setting read_folder"
            )
        path_schema = {"type": "string", "description": "Relative to the user's folder"}
        schema = {"type": "object", "properties": {"path": path_schema}, "required": ["path"]}
        tool = RunnableTool(
            self.name,
            self.description,
            schema,
            self._run,
            self.about,
            self.name,
            identity=str(self._folder),
            resolve=self._resolve,
        )
        return [tool]

    def _resolve(self, arguments: Arguments) -> Arguments:
        """Fill in the path after links, and refuse one outside the folder."""
        path = str(arguments.get("path", ""))
        try:
            resolved = (self._folder / path).resolve()
        except (OSError, RuntimeError, ValueError) as error:  # links in a circle, a null character
            raise UsageError(f"{path} cannot be read: {error}") from error
        if not resolved.is_relative_to(self._folder):
            raise UsageError(f"{resolved} is not below {self._folder}")
        return {"path": str(resolved)}

    async def _run(self, arguments: Arguments) -> str:
        if self._resolve(arguments) != arguments:  # a link took its place meanwhile
            raise UsageError(f"{arguments['path']} is another file now")
        return await asyncio.to_thread(_beginning_of, Path(arguments["path"]))


def _beginning_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_OUTPUT_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if b"\0" in data:
        raise UsageError(f"{path} is not a text file")
    text = data[:MAX_OUTPUT_BYTES].decode("utf-8", "replace")
    return text if len(data) <= MAX_OUTPUT_BYTES else text + CUT


def taken_names(settings: Settings) -> set[str]:
    """Return the names that no MCP server may have: built-in tools and programs."""
    return {Files.name, Python.name, Browser.name, *settings.tools}


class ToolSources:
    """Makes the toolboxes of chats; programs run in `folder`, and `read_file` reads there."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self.consents = Consents(config_path().parent / "allowed-tools.json")
        self._mcp = McpServers(settings, folder)

    def toolbox(self) -> Toolbox:
        """Return a new chat's tools. Raises UsageError if the configuration cannot be used."""
        settings, folder = self._settings, self._folder
        on = {name.strip() for name in settings.enabled_tools.split(",")}
        built_in: list[ToolSource] = [
            Files(settings, folder, is_on="read_file" in on),
            Python(settings, folder, is_on="python" in on),
            Browser(settings, is_on="browser" in on),
        ]
        sources = [source for source in built_in if source.name not in settings.tools]
        sources += [Program(name, each, folder) for name, each in settings.tools.items()]
        sources += self._mcp.sources(taken=taken_names(settings))
        n_rounds, loop_s = self._settings.tool_rounds, self._settings.tool_loop_s
        return Toolbox(sources, self.consents, n_rounds=n_rounds, loop_s=loop_s)

    async def renew(self, toolboxes: Iterable[Toolbox]) -> None:
        """Let toolboxes have the MCP servers of a configuration that was changed."""
        for toolbox in toolboxes:
            toolbox.set_servers(self._mcp.sources(taken=taken_names(self._settings)))
        await self._mcp.end_removed()

    async def close(self) -> None:
        await self._mcp.close()
