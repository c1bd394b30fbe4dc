"""Makes the toolboxes of this process, and ends the servers that they share."""

import re
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from gptoss_local.base.errors import UsageError
from gptoss_local.base.quantities import as_written
from gptoss_local.base.settings import Settings, ToolCommand, config_path
from gptoss_local.talk.tools.browser import Browser
from gptoss_local.talk.tools.consent import Consents, program_digest
from gptoss_local.talk.tools.mcp.server import McpServers
from gptoss_local.talk.tools.processes import run_program
from gptoss_local.talk.tools.python import Python
from gptoss_local.talk.tools.tool import Arguments, RunnableTool, ToolSource
from gptoss_local.talk.tools.toolbox import Toolbox
from gptoss_local.talk.tools.work import Files, Work

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
        tool = RunnableTool(
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
        return [tool]

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


def taken_names(settings: Settings) -> set[str]:
    return {Files.name, Python.name, Browser.name, *settings.tools}


class ToolSources:
    """Makes the toolboxes of chats; programs run in `folder`, and `read_file` reads there."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self.consents = Consents(config_path().parent / "allowed-tools.json")
        self._mcp = McpServers(settings, folder)

    def toolbox(self, work: Work | None = None) -> Toolbox:
        """Return a new chat's tools, those of `work` first."""
        settings, folder = self._settings, self._folder
        on = {name.strip() for name in settings.enabled_tools.split(",")}
        built_in: list[ToolSource] = [
            *([work] if work else []),
            *([] if work and work.is_on else [Files(settings, folder, is_on="read_file" in on)]),
            Python(settings, folder, is_on="python" in on),
            Browser(settings, is_on="browser" in on),
        ]
        sources = [source for source in built_in if source.name not in settings.tools]
        sources += [Program(name, each, folder) for name, each in settings.tools.items()]
        sources += self._mcp.sources(taken=taken_names(settings))
        n_rounds, loop_s = self._settings.tool_rounds, self._settings.tool_loop_s
        return Toolbox(sources, self.consents, n_rounds=n_rounds, loop_s=loop_s)

    async def renew(self, toolboxes: Iterable[Toolbox]) -> None:
        for toolbox in toolboxes:
            toolbox.set_servers(self._mcp.sources(taken=taken_names(self._settings)))
        await self._mcp.end_removed()

    async def close(self) -> None:
        await self._mcp.close()
