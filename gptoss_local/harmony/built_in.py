"""The tools that gpt-oss was trained with: `python` and `browser`, in harmony's own words.

They are declared in the system message, called in the analysis channel, and answered there. The
body of a call of `python` is code; here it has the arguments `{"code": ...}` like any other.

Source: `ToolNamespaceConfig` of openai-harmony, and docs/format.md of openai/harmony.
"""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from openai_harmony import ToolNamespaceConfig

from gptoss_local.harmony.message import Tool, ToolRequest

PYTHON = "python"
BROWSER = "browser"
CODE = "code"
_CODE_SCHEMA = {"type": "object", "properties": {CODE: {"type": "string"}}, "required": [CODE]}


@functools.cache
def _browser_functions() -> dict[str, Tool]:
    config = ToolNamespaceConfig.browser()
    named = {f"{BROWSER}.{each.name}": each for each in config.tools}
    return {
        name: Tool(name, each.description, each.parameters, is_built_in=True)
        for name, each in named.items()
    }


def built_in(name: str, description: str = "") -> Tool | None:
    """Return the built-in tool of a name; None if there is none.

    Args:
        name: `python`, `browser.search`, `browser.open` or `browser.find`.
        description: Of `python`, for the model; empty: as it was trained with.
    """
    if name == PYTHON:
        return Tool(PYTHON, description, _CODE_SCHEMA, is_built_in=True)
    return _browser_functions().get(name)


def namespaces(tools: Iterable[Tool]) -> list[ToolNamespaceConfig]:
    """Return the system message's declarations of these tools."""
    found = []
    names = {tool.name for tool in tools if tool.is_built_in}
    config = ToolNamespaceConfig.browser()
    functions = [each for each in config.tools if f"{BROWSER}.{each.name}" in names]
    if functions:
        found.append(
            ToolNamespaceConfig(name=config.name, description=config.description, tools=functions)
        )
    for tool in tools:
        if tool.is_built_in and tool.name == PYTHON:
            trained = ToolNamespaceConfig.python()
            about = tool.description or trained.description
            found.append(ToolNamespaceConfig(name=PYTHON, description=about, tools=[]))
    return found


def is_built_in(name: str, declared: Sequence[Tool]) -> bool:
    """Return whether a call in a history was one of a built-in tool.

    Args:
        name: Of the called tool.
        declared: The tools now; a function of the same name is not built in.
    """
    if name in _browser_functions():
        return True
    return name == PYTHON and not any(t.name == PYTHON and not t.is_built_in for t in declared)


def body_of(call: ToolRequest) -> str:
    """Return the body of a call, as the model wrote it."""
    if isinstance(call.arguments, str):
        return call.arguments
    code = call.arguments.get(CODE)
    if call.name == PYTHON and isinstance(code, str) and len(call.arguments) == 1:
        return code
    return msgspec.json.encode(call.arguments).decode()


def code_arguments(text: str) -> dict[str, Any]:
    """Return the arguments of a call of `python` from its body, which may be JSON of them."""
    try:
        arguments = msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.DecodeError, RecursionError):
        return {CODE: text}
    return arguments if arguments.keys() == {CODE} else {CODE: text}
