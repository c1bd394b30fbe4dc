"""Turns the model's text of a call into a call of a function that exists, or None.

A call is repaired only where one reading fits the declared functions.
"""

import contextlib
import functools
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import json_repair
import msgspec

from gptoss_local.harmony import guidance
from gptoss_local.harmony.built_in import PYTHON, code_arguments
from gptoss_local.harmony.message import FreeText, Tool

_TYPES: dict[str, Any] = {
    "null": type(None),
    "boolean": bool,
    "number": (int, float),
    "integer": int,
    "string": str,
    "array": list,
    "object": dict,
}
_NEXT = re.compile(r"[\s,;]*(?={)")
_EMPTY = re.compile(
    r"(?:```\w*)?\s*(?:null|None|\[\]|\"\"|''|\{\s*,?\s*\}|\(\s*\))?\s*(?:```)?[\s.;]*"
)
_GLUED = re.compile(r"\s*[:=]?\s*(?:\((?P<inside>.*)\)|(?P<bare>.*))\s*", re.DOTALL)
_ENVELOPES = (
    *("arguments", "parameters", "params", "input", "args", "kwargs", "payload"),
    *("tool_input", "tool_args", "tool_arguments", "tool_parameters", "action_input"),
    *("function_args", "function_arguments", "function_call", "tool_call", "tool_calls"),
    *("function", "action"),
)
_DECODER = json.JSONDecoder()
_PREFIX = "functions."
_WRAPPED = re.compile(r'\s*\{\s*"input"\s*:')
_N_CANDIDATES = 32  # each costs about a millisecond
_FENCED = re.compile(r"^```[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


def find_calls(
    recipient: str,
    text: str,
    tools: Sequence[Tool],
    *,
    is_cut: bool = False,
    objects_only: bool = False,
    is_json: bool = False,
) -> list[tuple[str, dict[str, Any]]]:
    """Return names and arguments of one call, or of several in a row or a list; else none.

    Args:
        recipient: The text after `to=` in the header.
        text: The body.
        tools: The functions that are declared.
        is_cut: The answer ended inside the body, so its missing end must not be guessed.
        objects_only: No header was closed before the body, so it may be prose: only an object is
            a call, or nothing at all where a function needs no arguments.
        is_json: The header says that the body is JSON, so a sentence cannot be an argument.
    """
    tool = called(recipient, tools)
    if objects_only:
        glued = _GLUED.fullmatch(text)
        text = (glued["inside"] or glued["bare"] or "") if glued else text
        if text.strip() and (tool is None or not text.lstrip().startswith(("{", "["))):
            return []
    if tool is None:
        arguments = _parse(text)
        functions = [t for t in tools if not t.is_built_in]
        fitting = [t for t in functions if arguments and _fits(arguments, t, strictly=True)]
        return [(fitting[0].name, arguments)] if arguments and len(fitting) == 1 else []
    if tool.is_built_in and tool.name == PYTHON:
        return [] if is_cut else [(PYTHON, code_arguments(text))]
    if tool.free_text is not None:
        given = _free_text(text, tool.free_text, is_cut)
        return [] if given is None else [(tool.name, {"input": given})]
    found = _in_a_row(text, tool, is_cut=is_cut)
    if found is None:
        found = _arguments(text, tool, is_cut, objects_only, is_json)
    return [(tool.name, arguments) for arguments in found]


def called(recipient: str, tools: Sequence[Tool]) -> Tool | None:
    """Return the tool that a recipient names, exactly if possible; `functions.` may be missing."""
    names = {recipient, recipient.removeprefix(_PREFIX)}
    for tool in tools:
        if tool.name in names:
            return tool
    wanted = {_key(name) for name in names} | {_key(recipient.rpartition(".")[2])}
    similar = [tool for tool in tools if _key(tool.name) in wanted]
    return similar[0] if len(similar) == 1 else None


def fits_so_far(arguments: Any, tool: Tool) -> bool:
    """Return whether these are arguments of the tool, maybe incomplete, and not an envelope."""
    if not isinstance(arguments, dict) or tool.free_text is not None:
        return False
    properties, _ = _properties(tool)
    return arguments.keys() <= properties.keys() and all(
        _has_type(value, properties[name]) for name, value in arguments.items()
    )


def _arguments(
    text: str, tool: Tool, is_cut: bool, objects_only: bool, is_json: bool
) -> list[dict[str, Any]]:
    arguments = _parse(text) if text.strip() else None
    if arguments is not None:
        return [next((c for c in _unwrapped(arguments) if _fits(c, tool)), arguments)]
    if is_cut:
        return []
    if not text.strip() and not objects_only:
        return [{}]  # required properties are left to the client
    if _EMPTY.fullmatch(text) and not _properties(tool)[1]:
        return [{}]
    value = _load(text)
    if isinstance(value, list) and len(value) > 1:
        each = [next((c for c in _unwrapped(v) if _fits(c, tool)), None) for v in value]
        return [a for a in each if a is not None] if None not in each else []
    for candidate in _unwrapped(value):
        if candidate and _fits(candidate, tool):
            return [candidate]
    only = None if objects_only else _as_only_argument(text, tool, is_json)
    return [] if only is None else [only]


def _key(name: str) -> str:
    """Return the common form of a name's spellings: `Read-File`, `read_file`, `readFile`."""
    return re.sub(r"[\W_]+", "", name).lower()


def _parse(text: str) -> dict[str, Any] | None:
    try:  # msgspec, not json: it can also write all that it reads
        arguments: dict[str, Any] = msgspec.json.decode(text.strip() or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return None
    return arguments


def _in_a_row(text: str, tool: Tool, *, is_cut: bool) -> list[dict[str, Any]] | None:
    """Return arguments of calls with only a comma between them; None unless all fit."""
    found: list[dict[str, Any] | None] = []
    at = 0
    while gap := _NEXT.match(text, at):
        try:
            _, at = _DECODER.raw_decode(text, gap.end())
        except (ValueError, RecursionError):
            found.append(None)
            break
        arguments = _parse(text[gap.end() : at])
        found.append(next((c for c in _unwrapped(arguments) if _fits(c, tool)), None))
    if len(found) < 2:
        return None
    fitting = [arguments for arguments in found if arguments is not None]
    return fitting if len(fitting) == len(found) and not is_cut else []


def _load(text: str) -> Any:
    try:
        value = json_repair.loads(text)
        msgspec.json.encode(value)
    except (ValueError, RecursionError, TypeError):
        return None
    return value


def _unwrapped(value: Any) -> list[dict[str, Any]]:
    """Return the object and those inside a list, a text or an envelope, outermost first."""
    found: list[dict[str, Any]] = []
    while True:
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, str):
            value = _parse(value)
        if not isinstance(value, dict):
            return found
        found.append(value)
        value = next((value[key] for key in _ENVELOPES if key in value), None)


def _as_only_argument(text: str, tool: Tool, is_json: bool) -> dict[str, Any] | None:
    """Take bare text as a tool's only argument; harmony's `python` may omit its others."""
    properties, required = _properties(tool)
    if tool.name == PYTHON and len(properties.keys() & required) == 1:
        properties = {name: properties[name] for name in properties.keys() & required}
    if len(properties) != 1 or not text.strip() or text.lstrip()[0] in "{[":
        return None
    ((name, schema),) = properties.items()
    if not isinstance(schema, dict) or schema.get("type") != "string":
        return None
    try:  # written as JSON, which the header promised
        return {name: msgspec.json.decode(text, type=str)}
    except msgspec.DecodeError:
        return None if is_json and tool.name != PYTHON else {name: text}


def _free_text(text: str, form: FreeText, is_cut: bool) -> str | None:
    """Return the input of a tool that takes text as it is; None if it is cut.

    The input is inside the declared object, or in another wrapper or a code block if the tool's
    grammar finds it there; otherwise it is the whole text.
    """
    value: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(text, strict=False)  # its strings may have line ends
    if value is None and not is_cut and _WRAPPED.match(text):
        value = _load(text)
    match value:
        case {"input": str(given)} if len(value) == 1:
            pass
        case _ if is_cut:
            return None
        case _:
            given = text
    if not form.definition:
        return given
    inside = (each for found in _texts(value or text) for each in (found, *_blocks(found)))
    candidates = itertools.islice(itertools.chain((given,), inside), _N_CANDIDATES)
    fits = functools.partial(guidance.matches, form.syntax, form.definition)
    return next(filter(fits, candidates), given)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _blocks(text: str) -> Iterator[str]:
    for block in _FENCED.findall(text):
        yield block
        yield block.removesuffix("\n")


def _fits(arguments: Any, tool: Tool, *, strictly: bool = False) -> bool:
    if not isinstance(arguments, dict):
        return False
    properties, required = _properties(tool)
    if not required <= arguments.keys() or (strictly and not properties):
        return False
    unknown, known = arguments.keys() - properties.keys(), arguments.keys() & properties.keys()
    if unknown and (strictly or not known):
        return False
    return all(
        _has_type(value, properties[name]) or (value is None and name not in required)
        for name, value in arguments.items()
        if name in properties
    )


def _has_type(value: Any, schema: Any) -> bool:
    names = schema.get("type") if isinstance(schema, dict) else None
    if names is None:
        return True
    names = names if isinstance(names, list) else [names]
    return any(_is(value, name) for name in names)


def _is(value: Any, name: Any) -> bool:
    """Return whether a value is of a type of JSON Schema, for which 1.0 is an integer."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(name, str) or name not in _TYPES:
        return True
    return name == "boolean" if isinstance(value, bool) else isinstance(value, _TYPES[name])


def _properties(tool: Tool) -> tuple[dict[str, Any], set[str]]:
    schema = tool.parameters or {}
    properties, required = schema.get("properties"), schema.get("required")
    return (
        properties if isinstance(properties, dict) else {},
        set(filter(lambda name: isinstance(name, str), required))
        if isinstance(required, list)
        else set(),
    )
