"""Reads the user's files below one folder."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from gptoss_local.base.errors import ToolError, UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.talk.tools.processes import CUT, MAX_OUTPUT_BYTES
from gptoss_local.talk.tools.tool import Arguments, RunnableTool, ToolSource


def has_home(folder: Path) -> bool:
    return Path(os.path.expanduser("~")).resolve().is_relative_to(folder)


def inside(folder: Path, path: str) -> Path:
    """Return the place of a path after links. Raises UsageError if it is not below `folder`."""
    try:
        resolved = (folder / path).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # links in a circle, a null character
        raise UsageError(f"{path} cannot be read: {error}") from error
    if not resolved.is_relative_to(folder):
        raise UsageError(f"{resolved} is not below {folder}")
    return resolved


class Files(ToolSource):
    """Reads below the folder of the settings, or the chat's, unless that contains the home."""

    name = "read_file"
    description = "Reads a text file of the user."

    def __init__(self, settings: Settings, folder: Path, *, is_on: bool = False) -> None:
        chosen = settings.read_folder or folder
        self._folder = chosen.resolve()
        self._is_home = settings.read_folder is None and has_home(self._folder)
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
        path = str(arguments.get("path", ""))
        return {"path": str(inside(self._folder, path))}

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
