"""Functions that the model may ask for: the user's programs, and what is built in. No Textual.

Nothing here asks the user; `Exchange` does, before each call.
"""

import asyncio
import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gptoss_local.errors import UsageError
from gptoss_local.settings import ToolCommand, environment_without_secrets

_MAX_OUTPUT_BYTES = 32 * 1024
_CUT = f"\n(cut after {_MAX_OUTPUT_BYTES // 1024} KiB)"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_PLACE = re.compile(r"\{(\w+)\}")

Arguments = Mapping[str, Any]


class ToolResult(NamedTuple):
    """The result of a call that the model gets; `is_error` if it came to nothing."""

    text: str
    is_error: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Tool:
    """One function.

    Attributes:
        parameters: JSON schema of the object that it takes.
        run: Does the work; raises UsageError for what the model may correct.
        about: What it does, for the user.
        argv: The program that a call runs, and its arguments; None for what is built in.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    run: Callable[[Arguments], Awaitable[str]]
    about: str
    argv: Callable[[Arguments], list[str]] | None = None


class Toolbox:
    """The tools of a chat: all there are, those that the model may use, and those that are trusted.

    Args:
        commands: The user's, by name; these are on, the built-in ones are off.
        folder: Where programs run, and what built-in tools may read.

    Raises:
        UsageError: a name or a schema that no model could use.
    """

    def __init__(self, commands: Mapping[str, ToolCommand], folder: Path) -> None:
        self.tools = {tool.name: tool for tool in (_read_file(folder),)}
        for name, command in commands.items():
            _check(name, command)
            self.tools[name] = _of_command(name, command, folder)
        self.on = set(commands)
        self.trusted: set[str] = set()
        """Tools that need no approval in the open chat."""

    def switch(self, name: str) -> bool:
        """Turn a tool on or off; returns whether it is on now. Raises UsageError: no such tool."""
        if name not in self.tools:
            raise UsageError(
                f"there is no tool '{name}'", hint=f"There are {', '.join(self.tools)}."
            )
        self.on ^= {name}
        return name in self.on

    def declared(self) -> list[dict[str, Any]]:
        """`tools` of a request."""
        return [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                },
            }
            for tool in self.tools.values()
            if tool.name in self.on
        ]

    async def run(self, name: str, arguments: Arguments) -> ToolResult:
        """Run a call that was approved; what fails becomes a result, too."""
        start_s = time.monotonic()
        tool = self.tools.get(name)
        try:
            if tool is None or name not in self.on:
                raise UsageError(f"there is no function {name}")
            text, is_error = await tool.run(arguments), False
        except UsageError as error:
            text, is_error = f"Error: {error.message}", True
        return ToolResult(text, is_error, time.monotonic() - start_s)


def _check(name: str, command: ToolCommand) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"[tools.{name}]: '{name}' is not a name for a function",
            hint="Letters, digits, _ and -, at most 64, a letter first.",
        )
    kind = command.parameters.get("type", "object")
    if kind != "object" or not isinstance(command.parameters.get("properties", {}), dict):
        raise UsageError(f"[tools.{name}]: parameters must be a JSON schema of an object")


def _of_command(name: str, command: ToolCommand, folder: Path) -> Tool:
    argv = partial(filled_in, command)

    async def run(arguments: Arguments) -> str:
        stdin = msgspec.json.encode(arguments)
        return await run_program(argv(arguments), stdin, command.timeout_s, folder)

    parameters = {"type": "object", "properties": {}} | command.parameters
    about = f"runs {command.command[0]}"
    return Tool(name, command.description, parameters, run, about, argv)


def filled_in(command: ToolCommand, arguments: Arguments) -> list[str]:
    """The command with `{name}` replaced by the argument of that name.

    A word of the command with an argument that was not given is left out. Only parameters of the
    schema are places, so other braces stay.
    """
    known = command.parameters.get("properties", {})
    words = []
    for word in command.command:
        places = [place for place in _PLACE.findall(word) if place in known]
        if all(place in arguments for place in places):
            words.append(
                _PLACE.sub(lambda found: _fill(found, known, arguments), word) if places else word
            )
    return words


def _fill(found: re.Match[str], known: Arguments, arguments: Arguments) -> str:
    if found[1] not in known:
        return found[0]
    value = arguments[found[1]]
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text.replace("\0", "")  # which ends a word for the system


async def run_program(argv: list[str], stdin: bytes, timeout_s: float, folder: Path) -> str:
    """Run a program without a shell, and kill it with its children when the time is over.

    Returns:
        What it wrote, stderr included, cut at 32 KiB.

    Raises:
        UsageError: it does not start, takes too long, or ends with another code than 0.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=folder,
            env=environment_without_secrets(),
            start_new_session=True,
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
        _kill(process)
        await process.communicate()  # `wait` hangs if the pipe is full and not read
    text = output.decode("utf-8", "replace")
    if is_cut:
        return text + _CUT
    if code:
        raise UsageError(f"exit code {code}\n{text}".rstrip())
    return text


async def _talk(process: asyncio.subprocess.Process, stdin: bytes) -> tuple[bytes, bool]:
    """Feed a program and read what it says, up to the limit; whether there was more."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(ConnectionError):  # it reads nothing
        process.stdin.write(stdin)
        await process.stdin.drain()
    process.stdin.close()
    output = b""
    while len(output) <= _MAX_OUTPUT_BYTES:
        piece = await process.stdout.read(_MAX_OUTPUT_BYTES)
        if not piece:
            return output, False
        output += piece
    return output[:_MAX_OUTPUT_BYTES], True


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)  # it leads a group, which outlives it perhaps


def _read_file(folder: Path) -> Tool:
    """The built-in tool: a text file below the folder in which the chat was started."""

    async def run(arguments: Arguments) -> str:
        path = (folder / str(arguments.get("path", ""))).resolve()
        if not path.is_relative_to(folder.resolve()):
            raise UsageError(f"{path} is not below {folder}")
        return await asyncio.to_thread(_beginning_of, path)

    path_schema = {"type": "string", "description": "Relative to the user's folder"}
    return Tool(
        "read_file",
        "Reads a text file of the user.",
        {"type": "object", "properties": {"path": path_schema}, "required": ["path"]},
        run,
        f"is built in, and reads a text file below {folder}",
    )


def _beginning_of(path: Path) -> str:
    """Read a text file up to the limit. Raise UsageError if it cannot be read or is not text."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_OUTPUT_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if b"\0" in data:
        raise UsageError(f"{path} is not a text file")
    text = data[:_MAX_OUTPUT_BYTES].decode("utf-8", "replace")
    return text if len(data) <= _MAX_OUTPUT_BYTES else text + _CUT
