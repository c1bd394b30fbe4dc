"""Tools that read and patch one folder and run commands there: `gptoss chat --work`, the page.

Reading what git would not ignore takes no question; the rest does, each time. What the user saw
is what is done: a patch becomes a diff, which must still be the same when it is applied.
"""

import asyncio
import contextlib
import difflib
import os
import re
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gptoss_local.base.errors import PathNotFoundError, ToolError, UsageError
from gptoss_local.base.printable import visible
from gptoss_local.base.quantities import counted
from gptoss_local.base.settings import Settings
from gptoss_local.base.whole_file import write_whole
from gptoss_local.talk.documents import MAX_TEXT_BYTES
from gptoss_local.talk.ignored import Walk, is_left_out
from gptoss_local.talk.tools.patches import FORMAT, lines_of, parse_patch, patched
from gptoss_local.talk.tools.processes import CUT, MAX_OUTPUT_BYTES, run_program, run_shell
from gptoss_local.talk.tools.tool import Arguments, RunnableTool, ToolResult, ToolSource

WORK, WORK_IN = "--work", "Work in "  # which no program or server can have
PATCH = "apply_patch"
_AGENTS, _MAX_AGENTS_BYTES = "AGENTS.md", 16 * 1024
_N_LISTED = 500
_SEARCH_S, _COMMAND_S = 20.0, 300.0
_N_READ, _MAX_PATCH = 16 * 1024, 256 * 1024  # characters
_GIT = re.compile(r"\.git[. ]*|git~1", re.IGNORECASE)
_STRING, _NUMBER = {"type": "string"}, {"type": "integer"}


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


class State(NamedTuple):
    """The content and mode of a file; a new file has the mode that the user's others have."""

    data: bytes
    mode: int | None = None


Changes = dict[Path, tuple[State | None, State | None]]
"""Files before and after a patch; None where there is none."""


class Work(ToolSource):
    """The tools for a folder: those of `--work` are on; in the page, the user switches them.

    Raises UsageError for a folder that is not there, or is the home folder; in the page `tools` do.

    Attributes:
        instructions: For the model, with the folder's AGENTS.md.
        line: Says to the user what is on.
    """

    def __init__(self, folder: Path, settings: Settings, *, is_on: bool = True) -> None:
        self.folder, self.is_on = folder.resolve(), is_on
        self._read_folder = settings.read_folder and settings.read_folder.resolve()
        if is_on:
            self._check()
        home = f"{os.path.expanduser('~')}{os.sep}"
        short = re.sub(f"^{re.escape(home)}", f"~{os.sep}", visible(str(self.folder)))
        self.name = WORK if is_on else WORK_IN + short.replace(",", " ")  # commas part names
        self.about = f"works in {short}"
        self._applied: list[Changes] = []
        agents, reads = self._agents()
        self.line = f"Works in {short}{reads}"
        looks = "Looks without asking; asks before it changes files or runs commands"
        self.description = f"{looks}{reads}."
        self.instructions = (
            f"You work in the folder {self.folder} ({sys.platform}); paths are relative to it. "
            "Look before you change: list_files, search, read_file. Change files with apply_patch "
            f"alone, and check the result with run_command.{agents}"
        )

    def _check(self) -> None:
        if not self.folder.is_dir():
            raise PathNotFoundError(f"there is no folder {self.folder}", hint="chat --work FOLDER")
        if has_home(self.folder) and self.folder != self._read_folder:
            raise UsageError("the home folder is too much to work in", hint="chat --work FOLDER")

    def _agents(self) -> tuple[str, str]:
        try:
            data = _state(inside(self.folder, _AGENTS)).data
        except UsageError:
            return "", ""
        cut = f"the first {_MAX_AGENTS_BYTES >> 10} KiB of " * (len(data) > _MAX_AGENTS_BYTES)
        text = data[:_MAX_AGENTS_BYTES].decode("utf-8-sig", "replace")
        return f"\n\n# {_AGENTS} of the folder\n\n{text}", f"; reads {cut}{_AGENTS}"

    async def tools(self) -> Sequence[RunnableTool]:
        self._check()
        place = {"type": "string", "description": "A folder or file; all without it"}
        return [
            self._tool("list_files", "Lists files, without those that git ignores.", self._list,
                       {"path": place}, resolve=self._look_at),
            self._tool("search", "Searches files for a regular expression of Python.", self._search,
                       {"pattern": _STRING, "path": place}, "pattern", resolve=self._look_at),
            self._tool("read_file", "Reads a text file, from a line on.", self._read,
                       {"path": _STRING, "line": _NUMBER}, "path", resolve=self._look_at),
            self._tool(PATCH, f"Changes, adds, moves and deletes files:\n{FORMAT}\n"
                       "`*** Move to: path` may follow `*** Update File`. Context must be exact.",
                       self._patch, {"patch": _STRING}, "patch", resolve=self._diffed,
                       asks=True, lasting=("chat",), shows=("diff", "diff"), has_effects=True),
            self._tool("run_command", "Runs a command line of the shell; returns the end of its "
                       f"output. It has no input, and {_COMMAND_S:g} s.",
                       self._run, {"command": _STRING}, "command", resolve=_command,
                       asks=True, shows=("command", "command"), has_effects=True,
                       timeout_s=_COMMAND_S + 10),
        ]  # fmt: skip

    def _tool(
        self,
        name: str,
        description: str,
        run: Callable[[Arguments], Awaitable[str | ToolResult]],
        properties: dict[str, Any],
        *required: str,
        resolve: Callable[[Arguments], Arguments],
        **options: Any,
    ) -> RunnableTool:
        def known(arguments: Arguments) -> Arguments:
            if arguments.keys() == {"input"} and len(required) == 1:  # as other programs name it
                arguments = {required[0]: arguments["input"]}
            if unknown := arguments.keys() - properties.keys():
                names = ", ".join(properties)
                raise UsageError(f"{name} has no argument {min(unknown)}; there are {names}")
            if missing := set(required) - arguments.keys():
                raise UsageError(f"{name} needs the argument {min(missing)}")
            return resolve(arguments)

        schema = {"type": "object", "properties": properties, "required": list(required)}
        about = self.about if "asks" in options else f"looks at what git ignores; it {self.about}"
        options = {"asks": False, "lasting": (), **options}
        return RunnableTool(
            name, description, schema, run, about, self.name, resolve=known, **options
        )

    def _look_at(self, arguments: Arguments) -> Arguments:
        """Return the arguments as they are, or with the whole path of a file that git ignores.

        The user is asked about the latter, as about all that is filled in: it may hold secrets.
        """
        path = inside(self.folder, str(arguments.get("path", "")))
        return {**arguments, "path": str(path)} if is_left_out(path, self.folder) else arguments

    def _path(self, arguments: Arguments) -> Path:
        if self._look_at(arguments) != arguments:  # a link took its place meanwhile
            raise UsageError(f"{arguments['path']} is another file now")
        path = inside(self.folder, str(arguments.get("path", "")))
        if not path.exists():
            raise UsageError(f"there is no {self._shown(path)}; list_files shows what there is")
        return path

    def _shown(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    async def _list(self, arguments: Arguments) -> str:
        place = self._path(arguments)
        if not place.is_dir():
            return self._shown(place)
        walked = await asyncio.to_thread(list, Walk(place))
        names = [self._shown(path) for path, is_ignored in walked if not is_ignored]
        more = f"({counted(len(names) - _N_LISTED, 'more file')}: list a folder in it)"
        shown = names if len(names) <= _N_LISTED else [*names[:_N_LISTED], more]
        return "\n".join(shown) or "(no files)"

    async def _search(self, arguments: Arguments) -> str:
        place, pattern = self._path(arguments), str(arguments["pattern"])
        wanted = {"pattern": pattern, "folder": str(self.folder), "place": str(place)}
        module = "gptoss_local.talk.searching"
        command = [sys.executable, "-P", "-m", module]  # -P: not from the current directory
        return await run_program(command, msgspec.json.encode(wanted), _SEARCH_S, self.folder)

    async def _read(self, arguments: Arguments) -> str:
        path, first = self._path(arguments), arguments.get("line", 1)
        if not isinstance(first, int) or first < 1:
            raise UsageError("lines are counted from 1")
        lines = [text for text, _ in lines_of(self._shown(path), _state(path).data)][first - 1 :]
        text, n = "", 0
        while n < len(lines) and len(text) < _N_READ:
            text, n = f"{text}{lines[n]}\n", n + 1
        more = f"(cut; continue with line {first + n})" if n < len(lines) else ""
        return (text + more).encode("utf-8", "replace").decode() or "(no lines)"

    def _planned(self, patch: str) -> tuple[Changes, str]:
        if len(patch) > _MAX_PATCH or re.search("[\ud800-\udfff]", patch):
            raise UsageError("the patch is too long, or is not text")
        now: dict[Path, State | None] = {}
        before: dict[Path, State | None] = {}
        moved: dict[Path, Path] = {}

        def state(path: Path) -> State | None:
            if path not in now:
                if path.is_dir():
                    raise UsageError(f"{self._shown(path)} is a folder")
                now[path] = before[path] = _state(path) if path.exists() else None
            return now[path]

        for file in parse_patch(patch):
            path = self._written(file.path)
            name, old = self._shown(path), state(path)
            if file.kind == "Add":
                if old is not None:
                    raise UsageError(f"{name} exists already: use *** Update File")
                added = (f"{text}\n" for hunk in file.hunks for _, text in hunk.lines)
                now[path] = State("".join(added).encode())
                continue
            if old is None:
                raise UsageError(f"there is no file {name}; list_files shows what there is")
            is_shown = not is_left_out(path, self.folder)
            data = patched(name, old.data, file.hunks, is_shown=is_shown)
            now[path] = None if file.kind == "Delete" else State(data, old.mode)
            if file.move_to:
                target = self._written(file.move_to)
                if state(target) is not None:
                    raise UsageError(
                        f"{self._shown(target)} exists already: nothing can move there"
                    )
                now[target], now[path], moved[target] = now[path], None, path
        changes = {path: (before[path], new) for path, new in now.items() if before[path] != new}
        if not changes:
            raise UsageError("the patch changes nothing")
        return changes, self._diff(changes, moved)

    def _written(self, name: str) -> Path:
        path = inside(self.folder, name)
        parts = (re.sub(r"[^ -~]", "", part) for part in (*Path(name).parts, *path.parts))
        if any(map(_GIT.fullmatch, parts)) or path == self.folder:
            raise UsageError(f"{name} is not written")
        return path

    def _diff(self, changes: Changes, moved: Mapping[Path, Path]) -> str:
        lines: list[str] = []
        for path, (old, new) in changes.items():
            name, source = visible(self._shown(path)), moved.get(path)
            if new is None and path in moved.values():
                continue
            origin = visible(self._shown(source or path))
            if source in changes:
                old = changes[source][0]
                lines += [f"rename from {origin}", f"rename to {name}"]
            before, after = (
                [text for text, _ in lines_of(name, state.data)] if state else []
                for state in (old, new)
            )
            lines.append(f"--- {f'a/{origin}' if old else '/dev/null'}")
            lines.append(f"+++ {f'b/{name}' if new else '/dev/null'}")
            lines += list(difflib.unified_diff(before, after, lineterm=""))[2:]
        return "\n".join(lines)

    def _diffed(self, arguments: Arguments) -> Arguments:
        patch = str(arguments["patch"])
        return {"patch": patch, "diff": self._planned(patch)[1]}

    async def _patch(self, arguments: Arguments) -> str:
        changes, diff = await asyncio.to_thread(self._planned, arguments["patch"])
        if diff != arguments["diff"]:
            raise UsageError("files have changed while the user read the diff; patch them again")
        self._write({path: new for path, (_, new) in changes.items()})
        self._applied.append(changes)
        return f"Done: {self._names(changes)}"

    def undo(self) -> str:
        if not self._applied:
            raise UsageError("there is no patch of this session to undo")
        changes = self._applied[-1]
        for path, (_, after) in changes.items():
            now = _state(path) if path.exists() else None
            if (now and now.data) != (after and after.data):
                raise UsageError(f"{self._shown(path)} has changed since; nothing was undone")
        self._write({path: before for path, (before, _) in changes.items()})
        self._applied.pop()
        return self._names(changes)

    def _names(self, changes: Changes) -> str:
        return ", ".join(map(self._shown, changes))

    def _write(self, states: Mapping[Path, State | None]) -> None:
        """Write all, or none if one cannot be."""
        before: dict[Path, State | None] = {}
        try:
            for path, state in sorted(states.items(), key=lambda each: each[1] is None):
                if inside(self.folder, str(path)) != path:
                    raise UsageError(f"{self._shown(path)} is another file now")
                before[path] = _state(path) if path.exists() else None
                _put(path, state)
        except (UsageError, OSError) as error:
            for path, state in before.items():
                with contextlib.suppress(UsageError, OSError):
                    _put(path, state)
            why = error.message if isinstance(error, UsageError) else str(error)
            raise UsageError(f"{why}; nothing was changed") from error

    async def _run(self, arguments: Arguments) -> ToolResult:
        code, output = await run_shell(arguments["command"], _COMMAND_S, self.folder)
        end = f"stopped after {_COMMAND_S:g} s" if code is None else f"exit code {code}"
        text = output.decode("utf-8", "replace").replace("\r\n", "\n")
        return ToolResult(f"{end}\n{text}".rstrip(), is_error=code != 0)


def _state(path: Path) -> State:
    try:
        if not path.is_file() or path.stat().st_size > MAX_TEXT_BYTES:
            raise UsageError(
                f"{path.name} is not a file, or larger than {MAX_TEXT_BYTES >> 20} MiB"
            )
        return State(path.read_bytes(), path.stat().st_mode & 0o777)
    except OSError as error:
        raise UsageError(f"{path.name} cannot be read: {error.strerror}") from error


def _put(path: Path, state: State | None) -> None:
    if state is None:
        path.unlink(missing_ok=True)
    else:
        write_whole(path, state.data, mode=0o666)
        path.chmod(state.mode or path.stat().st_mode)


def _command(arguments: Arguments) -> Arguments:
    given = arguments["command"]
    command = shlex.join(map(str, given)) if isinstance(given, list) else str(given)
    if "\0" in command or not command.strip():
        raise UsageError("there is no command")
    return {"command": command}
