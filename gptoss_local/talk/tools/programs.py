"""The user's programs as tools: `[tools.NAME]` of config.toml."""

import asyncio
import contextlib
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from gptoss_local.base.errors import UsageError
from gptoss_local.base.quantities import as_written
from gptoss_local.base.settings import ToolCommand, environment_without_secrets
from gptoss_local.talk.tools.consent import program_digest
from gptoss_local.talk.tools.processes import kill_tree, start
from gptoss_local.talk.tools.tool import Arguments, RunnableTool, ToolSource

MAX_OUTPUT_BYTES = 32 * 1024
CUT = f"\n(cut after {MAX_OUTPUT_BYTES // 1024} KiB)"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_PLACE = re.compile(r"\{(\w+)\}")


class Program(ToolSource):
    """The user's program as a tool. Raises UsageError for a name or schema no model could use."""

    is_on = True

    def __init__(self, name: str, command: ToolCommand, folder: Path) -> None:
        _check(name, command)
        self.name = name
        self.about = f"runs {command.command[0]}"
        self.description = command.description
        self._command, self._folder = command, folder

    async def tools(self) -> Sequence[RunnableTool]:
        return [self.tool]

    @property
    def tool(self) -> RunnableTool:
        command = self._command
        schema = {"type": "object", "properties": {}} | command.parameters
        argv = partial(filled_in, command)
        tool = RunnableTool(
            self.name, command.description, schema, self._run, self.about, self.name, argv
        )
        identity = program_digest(command.command, self._folder, {})
        return replace(tool, timeout_s=command.timeout_s + 5, identity=identity)

    async def _run(self, arguments: Arguments) -> str:
        stdin, timeout_s = msgspec.json.encode(arguments), self._command.timeout_s
        argv = filled_in(self._command, arguments)
        return await run_program(argv, stdin, timeout_s, self._folder)


def _check(name: str, command: ToolCommand) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"[tools.{name}]: '{name}' is not a name for a function",
            hint="Letters, digits, _ and -, at most 64, a letter first.",
        )
    kind = command.parameters.get("type", "object")
    if kind != "object" or not isinstance(command.parameters.get("properties", {}), dict):
        raise UsageError(f"[tools.{name}]: parameters must be a JSON schema of an object")


def filled_in(command: ToolCommand, arguments: Arguments) -> list[str]:
    """Return the command with each `{name}` replaced; words without their argument go."""
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
    return as_written(arguments[found[1]]).replace("\0", "")  # which ends a word for the system


async def run_program(argv: list[str], stdin: bytes, timeout_s: float, folder: Path) -> str:
    """Run a program without a shell, and kill it with its children when the time is over."""
    try:
        process = await start(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
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
