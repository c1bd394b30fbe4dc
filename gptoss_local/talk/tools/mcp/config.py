"""Reads and changes `mcp.json`: the servers, in the common format of other programs."""

import os
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from gptoss_local.base.errors import PathNotFoundError, ToolError, UsageError
from gptoss_local.base.printable import is_segment, visible
from gptoss_local.base.quantities import as_written
from gptoss_local.base.settings import Settings, config_path, secrets
from gptoss_local.base.validation import in_words
from gptoss_local.base.whole_file import read_text, write_whole

KEYS = ("mcpServers", "servers")  # the second is VS Code's
HIDDEN = "***"
_VARIABLE = re.compile(r"\$\{(?:env:)?(\w+)(?::-([^}]*))?\}")  # the default is Claude Code's
_OTHER_PLACE = re.compile(r"\$\{(?!workspaceFolder)[^}]*\}")
_SECRET_FLAG = re.compile(r"--?[\w-]*(?:key|token|secret|password|auth)[\w-]*", re.IGNORECASE)
_MAX_NAME = 64  # characters
_MIN_SECRET = 4  # characters; a shorter value is also part of ordinary words

_Value = str | int | float | bool


class _Fields(msgspec.Struct, frozen=True):
    command: str = ""
    args: tuple[_Value, ...] = ()
    env: dict[str, _Value] = {}
    cwd: str = ""
    url: str = ""
    headers: dict[str, _Value] = {}
    disabled: bool = False
    type: str = ""
    transport: str = ""


class Launch(NamedTuple):
    """An entry with variables filled in; `secrets` must not appear in a log or a message."""

    command: list[str]
    env: dict[str, str]
    url: str
    headers: dict[str, str]
    secrets: tuple[str, ...]


@dataclass(frozen=True)
class Entry:
    name: str
    file: Path
    fields: _Fields = field(repr=False)
    problem: str = ""

    @property
    def is_sse(self) -> bool:
        """Return whether it says that it speaks SSE, the transport before streamable HTTP."""
        return "sse" in (self.fields.type.lower(), self.fields.transport.lower())

    @property
    def written(self) -> str:
        return self.fields.url or shlex.join(self._command)

    @property
    def reached(self) -> str:
        """Return the command line or the address, with likely secrets hidden."""
        if self.problem:
            return "not used"
        if not self.fields.url:
            return shlex.join(_without_secrets(self._command))
        parts = urlsplit(self.fields.url)
        host = parts.netloc.rpartition("@")[2]
        query = f"?{HIDDEN}" if parts.query else ""
        return f"{parts.scheme}://{host}{parts.path}{query}"

    @property
    def _command(self) -> list[str]:
        return [self.fields.command, *map(as_written, self.fields.args)]

    def launch(self, environment: Mapping[str, str]) -> Launch:
        """Fill in the variables that the entry names. Raises ToolError if one is missing."""
        if self.problem:
            raise ToolError(self.problem)
        known: dict[str, str] = {}

        def filled(value: _Value, where: str) -> str:
            def fill(found: re.Match[str]) -> str:
                value = environment.get(found[1]) or found[2]
                if value is None:
                    is_ours = found[1] in secrets()
                    why = "is for gptoss alone" if is_ours else "is not set"
                    hint = "If the server may have it, write its value there." if is_ours else ""
                    raise self._error(f"{where} needs the variable {found[1]}, which {why}", hint)
                known[found[1]] = value
                return value

            text = _VARIABLE.sub(fill, as_written(value))
            if other := _OTHER_PLACE.search(_VARIABLE.sub("", as_written(value))):
                raise self._error(f"{where} has {other[0]}, which only other programs fill in")
            return text

        fields = self.fields
        command = os.path.expanduser(filled(fields.command, "command"))
        args = [filled(arg, "args") for arg in fields.args]
        env = {name: filled(value, f"env.{name}") for name, value in fields.env.items()}
        url = filled(fields.url, "url")
        headers = {k: filled(value, f"headers.{k}") for k, value in fields.headers.items()}
        hide = {*env.values(), *headers.values(), *known.values()}
        hide |= {value.rpartition(" ")[2] for value in headers.values()}  # without `Bearer`
        hidden = sorted((s for s in hide if len(s) >= _MIN_SECRET), key=len, reverse=True)
        return Launch([command, *args] if command else [], env, url, headers, tuple(hidden))

    def _error(self, message: str, hint: str = "") -> ToolError:
        return ToolError(f"{self.file}: {self.name}: {message}", hint=hint)


def mcp_path() -> Path:
    return config_path().parent / "mcp.json"


def read_entries(settings: Settings, taken: Collection[str] = ()) -> dict[str, Entry]:
    """Return all servers by name; unusable ones have a `problem`. The settings' file wins."""
    files = [mcp_path()]
    if settings.mcp_config is not None:
        if not settings.mcp_config.is_file():
            raise UsageError(f"mcp_config: there is no file {settings.mcp_config}")
        files.append(settings.mcp_config)
    entries: dict[str, Entry] = {}
    left_out: list[tuple[str, Path, str]] = []
    for file in files:
        for name, value in parse_servers(_text_of(file), file)[1].items():
            try:
                entries[name] = entry_of(name, value, file, taken)
            except UsageError as error:
                left_out.append((name, file, error.message))
    for name, file, problem in left_out:
        free = visible(name).replace(",", ";")
        while free in entries or free in taken:
            free += " (not used)"
        entries[free] = Entry(free, file, _Fields(), problem)
    return entries


def parse_servers(text: str, file: Path) -> tuple[str, Mapping[str, Any]]:
    """Return the key of the servers, and the servers by name. Raises UsageError for broken JSON."""
    data = _parse(text, file) if text.strip() else {}
    if not isinstance(data, dict):
        raise UsageError(f"{file} must be an object with {KEYS[0]}")
    key = next((key for key in KEYS if key in data), KEYS[0])
    servers = data.get(key) or {}
    if not isinstance(servers, dict):
        raise UsageError(f"{file}: {key} must be an object, with a server under each name")
    return key, servers


def _text_of(file: Path) -> str:
    try:
        return read_text(file)
    except PathNotFoundError:
        return ""


def entry_of(name: str, value: Any, file: Path, taken: Collection[str] = ()) -> Entry:
    if name in taken:
        hint = "Give the server another name."
        raise UsageError(f"{file}: there is another tool '{name}'", hint=hint)
    # Names are listed with commas between them, a name that hides something misleads, and the
    # page's endpoints have it in their path.
    is_plain = all(map(is_segment, name.split("/")))
    if not is_plain or visible(name) != name.strip() or "," in name or len(name) > _MAX_NAME:
        raise UsageError(
            f"{file}: '{visible(name)}' cannot be the name of a server",
            hint=f"Use at most {_MAX_NAME} letters, digits, spaces and signs other than , and \\.",
        )
    try:
        fields = msgspec.convert(value, _Fields)
    except msgspec.ValidationError as error:
        raise UsageError(f"{file}: {name}: {in_words(error, value)}") from error
    if bool(fields.command) == bool(fields.url):
        raise UsageError(
            f"{file}: {name} must have either a command or a url",
            hint='For example {"command": "uvx", "args": ["mcp-server-fetch"]}.',
        )
    if fields.url and "${" not in fields.url and not fields.url.startswith(("http://", "https://")):
        raise UsageError(f"{file}: {name}: '{fields.url}' is not an http:// or https:// address")
    return Entry(name, file, fields)


def check_file(file: Path) -> None:
    for name, value in parse_servers(_text_of(file), file)[1].items():
        entry_of(name, value, file)


def _parse(text: str, file: Path) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        from json5.loader import loads  # slow, and only needed for comments
        from json5.utils import JSON5DecodeError

        try:
            return loads(text)
        except JSON5DecodeError as error:
            said = " ".join(str(error).split())
            raise UsageError(f"{file} is not valid JSON: {said}") from error


def _without_secrets(words: Iterable[str]) -> list[str]:
    shown: list[str] = []
    for word in words:
        flag, equals, _ = word.partition("=")
        if equals and _SECRET_FLAG.fullmatch(flag):
            word = f"{flag}={HIDDEN}"
        elif shown and _SECRET_FLAG.fullmatch(shown[-1]) and not word.startswith("-"):
            word = HIDDEN
        shown.append(word)
    return shown


def new_entry(
    command: Sequence[str], url: str, env: Sequence[str], headers: Sequence[str]
) -> dict[str, Any]:
    """Return an entry for a command with `NAME=VALUE`, or a URL with `NAME:VALUE`."""
    if bool(command) == bool(url):
        raise UsageError(
            "a server needs either a command or --url",
            hint="gptoss tools add NAME -- COMMAND ARGUMENTS, or gptoss tools add NAME --url URL",
        )
    if (url and env) or (command and headers):
        raise UsageError("--env goes with a command, --header with --url")
    entry: dict[str, Any] = {"url": url}
    if command:
        entry = {"command": command[0], "args": list(command[1:])}
    if env:
        entry["env"] = dict(_pair(each, "=", "variable") for each in env)
    if headers:
        entry["headers"] = dict(_pair(each, ":", "header") for each in headers)
    return entry


def _pair(text: str, sign: str, what: str) -> tuple[str, str]:
    name, found, value = text.partition(sign)
    if not found or not name.strip():  # not quoted, as the value may be a secret
        raise UsageError(f"a {what} is written as NAME{sign}VALUE")
    return name.strip(), value.strip()


def add_server(
    name: str, entry: dict[str, Any], settings: Settings, taken: Collection[str]
) -> Entry:
    from gptoss_local.base.settings_file import merge  # PERF: slow, and seldom needed

    file = mcp_path()
    text = _text_of(file)
    key, servers = parse_servers(text, file)
    if name in servers:
        hint = f"`gptoss tools rm {name}` removes it."
        raise UsageError(f"{file} already has a server '{name}'", hint=hint)
    added = entry_of(name, entry, file, {*taken, *read_entries(settings)})
    write_whole(file, merge(text, {key: {name: entry}}, "json"))
    return added


def remove_server(name: str) -> Path:
    file = mcp_path()
    write_whole(file, without_entry(_text_of(file), name, file))
    return file


def without_entry(text: str, name: str, file: Path) -> str:
    from gptoss_local.base.settings_file import GONE, merge

    key, servers = parse_servers(text, file)
    if name not in servers:
        there = f"There are {', '.join(servers)}." if servers else "It has none."
        raise UsageError(f"{file} has no server '{name}'", hint=there)
    return merge(text, {key: {name: GONE}}, "json")
