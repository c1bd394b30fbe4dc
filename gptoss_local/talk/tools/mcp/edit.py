"""Adds and removes servers of mcp.json: all else in the text stays, comments too."""

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from gptoss_local.errors import UsageError
from gptoss_local.settings import Settings
from gptoss_local.talk.tools.mcp.config import (
    Entry,
    entry_of,
    mcp_path,
    parse_servers,
    read_entries,
    read_text,
)
from gptoss_local.whole_file import write_whole

_GAP = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)


def new_entry(
    command: Sequence[str], url: str, env: Sequence[str], headers: Sequence[str]
) -> dict[str, Any]:
    """Return an entry as it is written.

    Args:
        command: With its arguments.
        url: Instead of a command.
        env: `NAME=VALUE`, for a command.
        headers: `NAME:VALUE`, for an address.
    """
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
    """Write a server to mcp.json; `taken` are the names of other tools.

    Raises:
        UsageError: there is one of the name, or the entry cannot be used.
    """
    from gptoss_local.settings_file import merge

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
    """Take a server out of mcp.json, and return the file. Raises UsageError: it has no such one."""
    file = mcp_path()
    write_whole(file, without_entry(read_text(file), name, file))
    return file


def without_entry(text: str, name: str, file: Path) -> str:
    """Return the text without a server. Raises UsageError: it has no such one."""
    from json5.loader import ModelLoader, loads

    key, servers = parse_servers(text, file)
    if name not in servers:
        there = f"There are {', '.join(servers)}." if servers else "It has none."
        raise UsageError(f"{file} has no server '{name}'", hint=there)
    root: Any = loads(text, loader=ModelLoader()).value
    node = root.values[_index(text, root, key)]
    n = _index(text, node, name)
    start, end = _span(node.keys[n])[0], _span(node.values[n])[1]
    cuts = [(start, end)]
    comma = _comma_after(text, end)
    if comma is None and n > 0:  # it was the last one
        comma = _comma_after(text, _span(node.values[n - 1])[1])
    if comma is not None:
        cuts.append((comma, comma + 1))
    for first, last in sorted(cuts, reverse=True):
        text = text[:first] + text[last:]
    at = start - sum(last - first for first, last in cuts if first < start)
    return _without_empty_line(text, at)


def _index(text: str, node: Any, name: str) -> int:
    """Return the index of the member of a name; of several, the last, which counts."""
    from json5.loader import loads

    names = []
    for each in node.keys:
        start, end = _span(each)
        written = text[start:end]
        names.append(loads(written) if written[0] in "\"'" else written)
    return len(names) - 1 - names[::-1].index(name)


def _span(node: Any) -> tuple[int, int]:
    return node._tok.index, node._end_tok.end


def _comma_after(text: str, at: int) -> int | None:
    found = _GAP.match(text, at)
    end = found.end() if found else at
    return end if text[end : end + 1] == "," else None


def _without_empty_line(text: str, at: int) -> str:
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    if start == 0 or end < 0 or text[start:end].strip():
        return text
    return text[:start] + text[end + 1 :]
