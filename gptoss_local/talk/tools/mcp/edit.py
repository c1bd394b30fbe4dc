"""Adds and removes servers of mcp.json; the rest of the text stays, comments too."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from gptoss_local.base.errors import UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.base.whole_file import write_whole
from gptoss_local.talk.tools.mcp.config import (
    Entry,
    entry_of,
    mcp_path,
    parse_servers,
    read_entries,
    read_text,
)


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
    """Write a server to mcp.json. Raises UsageError if its name is taken or it is unusable."""
    from gptoss_local.base.settings_file import merge

    file = mcp_path()
    text = read_text(file)
    key, servers = parse_servers(text, file)
    if name in servers:
        hint = f"`gptoss tools rm {name}` removes it."
        raise UsageError(f"{file} already has a server '{name}'", hint=hint)
    added = entry_of(name, entry, file, {*taken, *read_entries(settings)})
    write_whole(file, merge(text, {key: {name: entry}}, "json"))
    return added


def remove_server(name: str) -> Path:
    """Remove a server from mcp.json, and return the file. Raises UsageError if it lacks it."""
    file = mcp_path()
    write_whole(file, without_entry(read_text(file), name, file))
    return file


def without_entry(text: str, name: str, file: Path) -> str:
    from gptoss_local.base.settings_file import GONE, merge

    key, servers = parse_servers(text, file)
    if name not in servers:
        there = f"There are {', '.join(servers)}." if servers else "It has none."
        raise UsageError(f"{file} has no server '{name}'", hint=there)
    return merge(text, {key: {name: GONE}}, "json")
