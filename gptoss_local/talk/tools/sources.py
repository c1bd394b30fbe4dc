"""Makes the toolboxes of this process, and ends the servers that they share."""

import asyncio
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from gptoss_local.base.errors import ToolError, UsageError
from gptoss_local.base.settings import Settings, config_path
from gptoss_local.talk.tools.browser import Browser
from gptoss_local.talk.tools.consent import Consents
from gptoss_local.talk.tools.mcp import McpServers
from gptoss_local.talk.tools.programs import CUT, MAX_OUTPUT_BYTES, Program
from gptoss_local.talk.tools.python import Python
from gptoss_local.talk.tools.tool import Arguments, RunnableTool, ToolSource
from gptoss_local.talk.tools.toolbox import Toolbox


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
