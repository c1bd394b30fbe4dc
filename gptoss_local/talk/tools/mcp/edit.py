"""Takes a server out of the text of mcp.json: all else stays, comments too."""

import re
from pathlib import Path
from typing import Any

from gptoss_local.errors import UsageError
from gptoss_local.talk.tools.mcp.config import parse_servers

_GAP = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)


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
