"""What the model wrote as a call -> a call of a function that exists, or None.

Models misspell functions, call those of other products, and write JSON that does not parse. A call
is repaired only where one reading fits the declared functions; whatever else is for the reader.
"""

import contextlib
import json
import re
from collections.abc import Sequence
from typing import Any

import json_repair
import msgspec

from gptoss_local.chat.message import Tool

_NEXT = re.compile(r"[\s,;]*(?={)")
_DECODER = json.JSONDecoder()
_PREFIX = "functions."
_PYTHON = "python"
_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


def find_calls(
    recipient: str, text: str, tools: Sequence[Tool], *, is_cut: bool = False
) -> list[tuple[str, dict[str, Any]]]:
    """Name and arguments of the call; of several ones if their arguments stand behind each other.

    Arguments as those of `find_call`.
    """
    in_a_row = _objects_in_a_row(text)
    if in_a_row is None:
        call = find_call(recipient, text, tools, is_cut=is_cut)
        return [] if call is None else [call]
    tool = _by_name(recipient, tools)
    fitting = [a for a in in_a_row if a is not None and tool is not None and _fits(a, tool)]
    if tool is None or is_cut or len(fitting) < len(in_a_row):
        return []
    return [(tool.name, arguments) for arguments in fitting]


def find_call(
    recipient: str, text: str, tools: Sequence[Tool], *, is_cut: bool = False
) -> tuple[str, dict[str, Any]] | None:
    """Name and arguments of the call, or None if it is none.

    Args:
        recipient: What follows `to=` in the header, up to where a name can no longer go on.
        text: The body.
        tools: The functions that are declared.
        is_cut: The answer ended amid the body, so what is missing there must not be guessed.
    """
    tool = _by_name(recipient, tools)
    if tool is not None:
        arguments = _parse(text)
        if arguments is None and not is_cut:
            arguments = _repair(text, tool)
        return None if arguments is None else (tool.name, arguments)
    arguments = _parse(text)
    if not arguments:
        return None
    fitting = [tool for tool in tools if _fits(arguments, tool)]
    return (fitting[0].name, arguments) if len(fitting) == 1 else None


def _by_name(recipient: str, tools: Sequence[Tool]) -> Tool | None:
    """The tool that a recipient names, exactly if possible; `functions.` may be missing."""
    names = {recipient, recipient.removeprefix(_PREFIX)}
    for tool in tools:
        if tool.name in names:
            return tool
    wanted = {_key(name) for name in names} | {_key(recipient.rpartition(".")[2])}
    similar = [tool for tool in tools if _key(tool.name) in wanted]
    return similar[0] if len(similar) == 1 else None


def _key(name: str) -> str:
    """What two spellings of one name have in common: `Read-File`, `read_file`, `readFile`."""
    return re.sub(r"[\W_]+", "", name).lower()


def _parse(text: str) -> dict[str, Any] | None:
    try:  # msgspec, not json: what it reads it can also write
        arguments: dict[str, Any] = msgspec.json.decode(text.strip() or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return None
    return arguments


def _objects_in_a_row(text: str) -> list[dict[str, Any] | None] | None:
    """Objects with nothing but a comma between them, None for a broken one; None if it is only one.

    To repair such a text would leave the last one of them.
    """
    found: list[dict[str, Any] | None] = []
    at = 0
    while gap := _NEXT.match(text, at):
        try:
            _, at = _DECODER.raw_decode(text, gap.end())
        except (ValueError, RecursionError):
            found.append(None)
            break
        found.append(_parse(text[gap.end() : at]))
    return found if len(found) > 1 else None


def _repair(text: str, tool: Tool) -> dict[str, Any] | None:
    """Arguments out of JSON that is broken or wrapped, if they then fit the tool."""
    try:
        value = json_repair.loads(text)
        msgspec.json.encode(value)
    except (ValueError, RecursionError, TypeError):
        value = None
    for candidate in _unwrapped(value):
        if candidate and _fits(candidate, tool):
            return candidate
    return _as_only_argument(text, tool)


def _unwrapped(value: Any) -> list[dict[str, Any]]:
    """The object itself, or the one inside a list, a text or an envelope."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, str):
        value = _parse(value)
    if not isinstance(value, dict):
        return []
    inside = [value[key] for key in ("arguments", "parameters", "input") if key in value]
    return [value, *(_parse(i) or {} if isinstance(i, str) else i for i in inside)]


def _as_only_argument(text: str, tool: Tool) -> dict[str, Any] | None:
    """Bare text, such as a script, for a tool that takes nothing but one text.

    Harmony's own `python` takes bare code, so there the other arguments may be left out.
    """
    properties, required = _properties(tool)
    if tool.name == _PYTHON and len(properties.keys() & required) == 1:
        properties = {name: properties[name] for name in properties.keys() & required}
    if len(properties) != 1 or not text.strip() or text.lstrip()[0] in "{[":
        return None
    ((name, schema),) = properties.items()
    if not isinstance(schema, dict) or schema.get("type") != "string":
        return None
    with contextlib.suppress(msgspec.DecodeError):  # written as JSON, which the header promised
        text = msgspec.json.decode(text, type=str)
    return {name: text}


def _fits(arguments: Any, tool: Tool) -> bool:
    """Whether names and outer types are those of the tool's parameters."""
    if not isinstance(arguments, dict):
        return False
    properties, required = _properties(tool)
    if not properties or not required <= arguments.keys() <= properties.keys():
        return False
    return all(_has_type(value, properties[name]) for name, value in arguments.items())


def _has_type(value: Any, schema: Any) -> bool:
    names = schema.get("type") if isinstance(schema, dict) else None
    if names is None:
        return True
    names = names if isinstance(names, list) else [names]
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, _TYPES.get(str(name), object)) for name in names)


def _properties(tool: Tool) -> tuple[dict[str, Any], set[str]]:
    """Names and schemas of a tool's arguments, and which of them are required."""
    schema = tool.parameters or {}
    properties, required = schema.get("properties"), schema.get("required")
    return (
        properties if isinstance(properties, dict) else {},
        set(filter(lambda name: isinstance(name, str), required))
        if isinstance(required, list)
        else set(),
    )
