"""The built-in tool `read_file`: text files below the folder in which the chat was started."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from gptoss_local.errors import UsageError
from gptoss_local.tools.programs import CUT, MAX_OUTPUT_BYTES
from gptoss_local.tools.results import Page
from gptoss_local.tools.tool import Arguments, Tool


class Files:
    """A source with one tool.

    Args:
        folder: What may be read.
    """

    name = "read_file"
    is_mcp = False
    description = "Reads a text file of the user."

    def __init__(self, folder: Path, *, is_on: bool = False) -> None:
        self._folder = folder
        self.about = f"is built in, and reads a text file below {folder}"
        self.is_on = is_on

    async def tools(self) -> Sequence[Tool]:
        path_schema = {"type": "string", "description": "Relative to the user's folder"}
        schema = {"type": "object", "properties": {"path": path_schema}, "required": ["path"]}
        identity = str(self._folder.resolve())
        tool = Tool(self.name, self.description, schema, self._run, self.about, self.name)
        return [replace(tool, identity=identity)]

    async def new_chat(self, pages: Iterable[Page] = ()) -> None:
        """It has no state."""

    async def close(self) -> None:
        """It has nothing to end."""

    async def _run(self, arguments: Arguments) -> str:
        path = (self._folder / str(arguments.get("path", ""))).resolve()
        if not path.is_relative_to(self._folder.resolve()):
            raise UsageError(f"{path} is not below {self._folder}")
        return await asyncio.to_thread(_beginning_of, path)


def _beginning_of(path: Path) -> str:
    """Read a text file up to the limit. Raise UsageError if it cannot be read or is not text."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_OUTPUT_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if b"\0" in data:
        raise UsageError(f"{path} is not a text file")
    text = data[:MAX_OUTPUT_BYTES].decode("utf-8", "replace")
    return text if len(data) <= MAX_OUTPUT_BYTES else text + CUT
