"""Chooses the tools to offer, and to call. Source: OpenAI's and Anthropic's API references."""

from collections.abc import Callable, Iterable
from typing import Any

from gptoss_local.base.errors import UsageError
from gptoss_local.harmony import Tool
from gptoss_local.talk.tools import RunnableTool

_NAMING = ("function", "tool", "custom", "namespace", "tool_search")

Resolve = Callable[[dict[str, Any]], list[str]]
"""Finds the tools that an entry of a choice names; none if there is no such tool."""


def select_tools(
    tools: list[Tool],
    choice: str | dict[str, Any],
    *,
    resolve: Resolve | None = None,
    one_call: bool = False,
) -> dict[str, Any]:
    """Return the fields of a ChatRequest for `tools` and `tool_choice`.

    `resolve` finds tools by a client's names. UsageError: the choice cannot be met, or names clash.
    """
    resolve = resolve or _by_name(tools)
    check_names(tools)
    tools = list({tool.name: tool for tool in tools}.values())
    fields: dict[str, Any] = {"tools": tuple(tools), "one_call": one_call}
    match choice:
        case "none" | {"type": "none"}:
            return {}
        case "auto" | {"type": "auto"}:
            return fields
        case "required" | "any" | {"type": "any" | "required"}:
            if not tools:
                raise UsageError("tool_choice demands a call, and there is no tool to call")
            return fields | {"must_call": tuple(tool.name for tool in tools)}
        case {"type": "allowed_tools", **listed}:
            return fields | _allowed(tools, listed.get("allowed_tools", listed), resolve)
        case dict() if "function" in choice or choice.get("type") in _NAMING:
            if not (names := resolve(choice)):
                raise UsageError(
                    f"tool_choice names the tool '{name_in(choice)}', which is not in tools"
                )
            return fields | {"must_call": tuple(names)}
        case {"type": str(kind)}:
            raise UsageError(
                f"tool_choice demands a call of {kind}, which this server does not have",
                hint="Only functions and custom tools, which the client runs, can be called.",
            )
        case _:
            raise UsageError("tool_choice must be none, auto, required or name a function")


def check_names(tools: Iterable[Tool]) -> None:
    """Raise UsageError for different tools of one name: their calls would look the same."""
    known: dict[str, Tool] = {}
    for tool in tools:
        if known.setdefault(tool.name, tool) != tool:
            raise UsageError(f"two different tools have the name '{tool.name}'")


def _allowed(tools: list[Tool], choice: Any, resolve: Resolve) -> dict[str, Any]:
    """Return fields for a `tool_choice` that lists tools, of which one may or must be called."""
    match choice:
        case {"mode": "auto" | "required" as mode, "tools": list(listed)}:
            names = {name for entry in listed if isinstance(entry, dict) for name in resolve(entry)}
        case _:
            raise UsageError("tool_choice of type allowed_tools needs mode and tools")
    allowed = tuple(tool for tool in tools if tool.name in names)
    if not allowed:
        raise UsageError("tool_choice allows no tool that is in tools")
    if mode == "auto":
        return {"tools": allowed}
    return {"must_call": tuple(tool.name for tool in allowed)}


def _by_name(tools: list[Tool]) -> Resolve:
    names = [tool.name for tool in tools]

    def resolve(entry: dict[str, Any]) -> list[str]:
        return [name for name in names if name == name_in(entry)]

    return resolve


def name_in(entry: dict[str, Any]) -> str:
    """Return the name of a tool in a choice, where it may be nested as in Chat Completions."""
    match entry:
        case {"function": {"name": str(name)}} | {"custom": {"name": str(name)}}:
            return name
        case {"name": str(name)}:
            return name
    return ""


def offered(tool: RunnableTool) -> Tool:
    """Return a tool that the server runs as the model gets it."""
    return Tool(tool.name, tool.description, tool.parameters, is_built_in=tool.is_built_in)
