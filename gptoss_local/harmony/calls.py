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
from gptoss_local.harmony.built_in import CODE, PYTHON, code_arguments
from gptoss_local.harmony.message import FreeText, Tool

Call = tuple[str, dict[str, Any]]
"""A function and its arguments."""

_TYPES: dict[str, Any] = {
    "null": type(None),
    "boolean": bool,
    "number": (int, float),
    "integer": int,
    "string": str,
    "array": list,
    "object": dict,
}
_BETWEEN = " \t\r\n,;"
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
_NAMES = ("name", "recipient_name", "tool_name", "function_name", "tool", "function", "action")
_BATCHES = ("tool_uses", "tool_calls", "calls")
_OBJECTS = re.compile(r"\[(?=\s*\{)|\{")
_DECODER = json.JSONDecoder()
_PREFIX = "functions."
_WRAPPED = re.compile(r'\s*\{\s*"input"\s*:')
_PATCH = "*** Begin Patch"  # which gpt-oss may write as it is, whatever the header says
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
) -> list[Call]:
    """Return names and arguments of one call, or of several in a row or a list; else none.

    `is_cut`: the answer ended inside the body, so its missing end must not be guessed.
    `objects_only`: no header was closed before it, so it may be prose: only an object is a call, or
    nothing at all where a function needs no arguments. `is_json`: the header says that the body is,
    so a sentence cannot be an argument.
    """
    tool = called(recipient, tools)
    if objects_only:
        glued = _GLUED.fullmatch(text)
        text = (glued["inside"] or glued["bare"] or "") if glued else text
        if recipient and text.strip() and not (tool and text.lstrip().startswith(("{", "["))):
            return []
    if tool is None:
        return _self_named(text, tools, is_exact=is_cut)
    if tool.is_built_in and tool.name == PYTHON:
        return [] if is_cut else [(PYTHON, code_arguments(text))]
    if tool.free_text is not None:
        given = _free_text(text, tool.free_text, is_cut)
        return [] if given is None else [(tool.name, {"input": given})]
    if other := _of_another(text, tool, tools):
        return other
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


def first_keys(tools: Sequence[Tool]) -> set[str]:
    """Return the keys that the JSON of a call of these functions may begin with."""
    functions = [tool for tool in tools if not tool.is_built_in]
    keys = {key for tool in functions for key in _properties(tool)[0]}
    names = {tool.name for tool in functions}
    return {*names, *keys, *_ENVELOPES, *_NAMES, *_BATCHES} if functions else set()


def text_argument(tool: Tool) -> str:
    """Return the only argument of a tool whose calls have it as their body, as it is."""
    if tool.free_text is not None:
        return "input"
    return CODE if tool.is_built_in and tool.name == PYTHON else ""


def fits_so_far(arguments: Any, tool: Tool) -> bool:
    """Return whether these are arguments of the tool, maybe incomplete, and not an envelope."""
    if not isinstance(arguments, dict):
        return False
    name = text_argument(tool)
    properties = {name: {"type": "string"}} if name else _properties(tool)[0]
    return arguments.keys() <= properties.keys() and all(
        _has_type(value, properties[name]) for name, value in arguments.items()
    )


def _self_named(text: str, tools: Sequence[Tool], *, is_exact: bool) -> list[Call]:
    """Find the calls in a text that is sent to no function; none unless there is one reading."""
    exact = _decoded(text)
    values = [exact] if exact is not None or is_exact else _objects(text)
    if len(values) == 1 and isinstance(values[0], dict) and len(values[0]) == 1:
        values = [next((values[0][key] for key in _BATCHES if key in values[0]), values[0])]
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    readings = [_readings(value, tools) for value in values]
    return [calls[0] for calls in readings] if all(len(c) == 1 for c in readings) else []


def _readings(value: Any, tools: Sequence[Tool]) -> list[Call]:
    """Return the calls that an object may mean, by the names in it and by what it fits."""
    if not isinstance(value, dict) or not value:
        return []
    functions = [tool for tool in tools if not tool.is_built_in]
    fitting = [(tool.name, value) for tool in functions if _fits(value, tool, strictly=True)]
    return [*fitting, *_named(value, functions)]


def _named(value: dict[str, Any], tools: Sequence[Tool]) -> list[Call]:
    """Return the call of `{"name": …, "arguments": {…}}`, in any spelling, or `{NAME: {…}}`."""
    inner = value.get("function", value.get("function_call"))
    value = inner if isinstance(inner, dict) else value
    name = next((value[key] for key in _NAMES if isinstance(value.get(key), str)), "")
    given = (value[key] for key in _ENVELOPES if key in value and value[key] != name)
    arguments = next(given, None)
    if not name and len(value) == 1:
        ((name, arguments),) = value.items()
    tool = called(name, tools) if name else None
    if isinstance(arguments, str):
        arguments = _parse(arguments)
    if tool is None or not isinstance(arguments, dict):
        return []
    is_empty = not arguments and not _properties(tool)[1]
    return [(tool.name, arguments)] if is_empty or _fits(arguments, tool) else []


def _of_another(text: str, tool: Tool, tools: Sequence[Tool]) -> list[Call]:
    """Return the call of another function that the whole body names, unless it fits this one."""
    arguments = _parse(text) if text.strip() else None
    if arguments is None or _fitting(arguments, tool) is not None:
        return []
    return _named(arguments, [each for each in tools if not each.is_built_in])


def _objects(text: str) -> list[Any]:
    """Return the JSON objects, or lists of them, in a text; None stands for one that is broken.

    None is found if there is text between them.
    """
    found: list[Any] = []
    at = 0
    while start := _OBJECTS.search(text, at):
        if found and text[at : start.start()].strip(_BETWEEN):
            return []
        try:
            _, at = _DECODER.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            return [*found, None]
        found.append(_decoded(text[start.start() : at]))
    return found


def _decoded(text: str) -> Any:
    try:  # msgspec, not json: it can also write all that it reads
        return msgspec.json.decode(text.strip())
    except (msgspec.DecodeError, RecursionError):
        return None


def _arguments(
    text: str, tool: Tool, is_cut: bool, objects_only: bool, is_json: bool
) -> list[dict[str, Any]]:
    arguments = _parse(text) if text.strip() else None
    if arguments is not None:
        fitting = _fitting(arguments, tool)
        return [arguments if fitting is None else fitting]
    if is_cut:
        return []
    if not text.strip() and not objects_only:
        return [{}]  # required properties are left to the client
    if _EMPTY.fullmatch(text) and not _properties(tool)[1]:
        return [{}]
    in_a_row = _objects(text) if text.lstrip(_BETWEEN).startswith("{") else []
    value = in_a_row if len(in_a_row) > 1 else _load(text)
    if isinstance(value, list) and len(value) > 1:
        each = [_fitting(item, tool) for item in value]
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
    value = _decoded(text.strip() or "{}")
    return value if isinstance(value, dict) else None


def _fitting(value: Any, tool: Tool) -> dict[str, Any] | None:
    return next((each for each in _unwrapped(value) if _fits(each, tool)), None)


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
        is_raw = tool.name == PYTHON or text.lstrip().startswith(_PATCH)
        return None if is_json and not is_raw else {name: text}


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
