"""`python` and `browser` as gpt-oss was trained with them. Source: docs/format.md of harmony.

They are declared in the system message and called in the analysis channel. The code in a call of
`python` is its argument `code` here.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from gptoss_local.base.formats.trained_tools import ABOUT_BROWSER, ABOUT_PYTHON, BROWSER_FUNCTIONS
from gptoss_local.harmony.message import Tool, ToolRequest
from gptoss_local.harmony.typescript import render_tools

PYTHON = "python"
BROWSER = "browser"
CODE = "code"
_CODE_SCHEMA = {"type": "object", "properties": {CODE: {"type": "string"}}, "required": [CODE]}
_BROWSER_TOOLS = {
    f"{BROWSER}.{name}": Tool(f"{BROWSER}.{name}", about, parameters, is_built_in=True)
    for name, (about, parameters) in BROWSER_FUNCTIONS.items()
}


def built_in(name: str, description: str = "") -> Tool | None:
    """Return `python` or a `browser.…` tool; without a `description` python has its trained one."""
    if name == PYTHON:
        return Tool(PYTHON, description, _CODE_SCHEMA, is_built_in=True)
    return _BROWSER_TOOLS.get(name)


def declarations(tools: Sequence[Tool]) -> str:
    """Return the system message's section that declares these tools; empty if none is built in."""
    names = {tool.name for tool in tools if tool.is_built_in}
    found: list[tuple[str, str, Sequence[Tool]]] = []
    if functions := [tool for name, tool in _BROWSER_TOOLS.items() if name in names]:
        found.append((BROWSER, ABOUT_BROWSER, functions))
    for tool in tools:
        if tool.is_built_in and tool.name == PYTHON:
            found.append((PYTHON, tool.description or ABOUT_PYTHON, ()))
    return render_tools(found) if found else ""


def is_built_in(name: str, declared: Sequence[Tool]) -> bool:
    if name in _BROWSER_TOOLS:
        return True
    return name == PYTHON and not any(t.name == PYTHON and not t.is_built_in for t in declared)


def body_of(call: ToolRequest) -> str:
    if isinstance(call.arguments, str):
        return call.arguments
    code = call.arguments.get(CODE)
    if call.name == PYTHON and isinstance(code, str) and len(call.arguments) == 1:
        return code
    return msgspec.json.encode(call.arguments).decode()


def code_arguments(text: str) -> dict[str, Any]:
    """Return the arguments of a call of `python` from its body: code, or JSON of them."""
    try:
        arguments = msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.DecodeError, RecursionError):
        return {CODE: text}
    return arguments if arguments.keys() == {CODE} else {CODE: text}
