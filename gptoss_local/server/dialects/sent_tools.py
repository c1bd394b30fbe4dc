"""Tools as requests send them, in any API's spelling, and as the model gets them.

Source: OpenAI's and Anthropic's API references (tools), Ollama's api/types.go, MCP's `inputSchema`.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from gptoss_local.base.errors import UsageError
from gptoss_local.harmony import FreeText, Tool
from gptoss_local.talk.tools import RunnableTool

WEB_SEARCH, CODE_INTERPRETER, MCP = "web_search", "code_interpreter", "mcp"
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
        case dict() if isinstance(kind := choice.get("type"), str):
            if hosted_kind(kind) and (names := resolve(choice)):
                return fields | {"must_call": tuple(names)}
            raise UsageError(
                f"tool_choice demands a call of {kind}, which is not offered",
                hint="Functions and custom tools can be called, and in /v1/responses what "
                "GPTOSS_API_TOOLS has.",
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
    return Tool(tool.name, tool.description, tool.parameters, is_built_in=tool.is_built_in)


_TEXT: dict[str, Any] = {"type": "string"}
_NUMBER: dict[str, Any] = {"type": "integer"}
_RANGE = {"type": "array", "items": _NUMBER}


def _schema(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required.split()}


def _edits(*commands: str, **properties: Any) -> dict[str, Any]:
    shared = dict.fromkeys(("path", "file_text", "old_str", "new_str", "insert_text"), _TEXT)
    command = {"enum": ["view", "create", "str_replace", "insert", *commands]}
    more = {"insert_line": _NUMBER, "view_range": _RANGE, **properties}
    return _schema("command", command=command, **shared, **more)


_CUSTOM = _schema("input", input=_TEXT) | {"additionalProperties": False}
_PATCH = _schema(
    "type path",
    type={"enum": ["create_file", "update_file", "delete_file"]},
    path=_TEXT,
    diff={"type": "string", "description": "A V4A diff; not for delete_file."},
)
_LIST = {"type": "array", "items": _TEXT, "minItems": 1}
_OPENAI = {  # their calls are items of their own kind, so the arguments must be whole
    "apply_patch": Tool(
        "apply_patch",
        "Creates, changes or deletes a file.",
        _schema("operation", operation=_PATCH),
        strict=True,
    ),
    "shell": Tool(
        "shell",
        "Runs shell commands, all of them at the same time.",
        _schema("commands", commands=_LIST, timeout_ms=_NUMBER, max_output_length=_NUMBER),
        strict=True,
    ),
    "local_shell": Tool(
        "local_shell",
        "Runs a program with arguments.",
        _schema("command", command=_LIST, working_directory=_TEXT, timeout_ms=_NUMBER),
        strict=True,
    ),
}
_ANTHROPIC = {  # by the beginning of their types; a request may name them otherwise
    "bash_": Tool(
        "bash",
        "Runs a command in a shell that keeps its state; `restart` begins it again.",
        {"type": "object", "properties": {"command": _TEXT, "restart": {"type": "boolean"}}},
    ),
    "text_editor_": Tool(
        "str_replace_based_edit_tool", "Views, creates and edits files.", _edits("undo_edit")
    ),
    "memory_": Tool(
        "memory",
        "Keeps notes for later in files below /memories.",
        _edits("delete", "rename", old_path=_TEXT, new_path=_TEXT),
    ),
}
OWN_ITEMS = frozenset(_OPENAI)
"""Kinds with items of their own in `/v1/responses`, for calls and results."""


def hosted_kind(kind: object) -> str:
    """Return a type of tools that servers run; empty for others. Agents send a search unasked."""
    if isinstance(kind, str) and kind.startswith(WEB_SEARCH):  # _preview, or with a date
        return WEB_SEARCH
    return str(kind) if kind in (CODE_INTERPRETER, MCP) else ""


_NOT_HERE = (
    *("image_generation", "file_search", "computer", "web_fetch", "code_execution", "advisor"),
)


def is_of_servers(kind: str) -> bool:
    """Return whether servers run this type of tool, also where ours cannot."""
    return bool(hosted_kind(kind)) or kind.startswith(_NOT_HERE)


class Declared(msgspec.Struct, kw_only=True):
    """The fields of a function or a custom tool, wherever they stand."""

    name: str = ""
    description: str = ""
    parameters: dict[str, Any] | None = None
    input_schema: dict[str, Any] | None = None
    schema_of_mcp: dict[str, Any] | None = msgspec.field(default=None, name="inputSchema")
    strict: bool = False
    format: dict[str, Any] = {}

    @property
    def schema(self) -> dict[str, Any] | None:
        schemas = (self.parameters, self.input_schema, self.schema_of_mcp)
        return next((schema for schema in schemas if schema is not None), None)


class SentTool(Declared, kw_only=True):
    """A tool of a request. Its fields may be nested under `function` or `custom`."""

    type: str = "function"
    function: Declared | None = None
    custom: Declared | None = None
    defer_loading: bool = False
    execution: str = "server"
    environment: dict[str, Any] = {}
    tools: list[dict[str, Any]] = []

    @property
    def kind(self) -> str:
        """Return `function`, `custom`, or a type of the client's API."""
        if self.custom is not None:
            return "custom"
        if self.function is not None or (self.type == "custom" and self.schema is not None):
            return "function"  # the second is Anthropic's way
        return self.type or "function"

    @property
    def label(self) -> str:
        """Return the name, or the type of a tool without one."""
        return (self.function or self.custom or self).name or self.type


def read_tool(sent: SentTool, place: str) -> Tool:
    """Return a client's tool as the model gets it. Raises UsageError, which names `place`."""
    if (kind := sent.kind) in ("function", "custom"):
        inner = sent.function or sent.custom or sent
        if not inner.name:
            raise UsageError(f"{place} has no name")
        if kind == "custom":
            return _custom(inner, place)
        is_strict = inner.strict or sent.strict
        return Tool(inner.name, inner.description, inner.schema, is_strict)
    if kind in _OPENAI and sent.environment.get("type", "local") == "local":
        return _OPENAI[kind]
    for prefix, tool in _ANTHROPIC.items():
        if kind.startswith(prefix):
            return msgspec.structs.replace(tool, name=sent.name or tool.name)
    raise UsageError(
        f"{place} is of type {kind}, which this server cannot offer",
        hint="Functions, custom tools, apply_patch, shell, bash, text_editor and memory can be.",
    )


def read_tools(sent: Iterable[SentTool]) -> list[Tool]:
    """Return the tools of a request that a client runs. Raises UsageError as `read_tool`."""
    return [
        read_tool(tool, f"tools[{n}]")
        for n, tool in enumerate(sent)
        if not (is_of_servers(tool.kind) or tool.kind.startswith("tool_search_tool_"))
    ]


def _custom(sent: Declared, place: str) -> Tool:
    """Make a tool for free text a function with one argument; its format may hold a grammar."""
    grammar = sent.format.get("grammar", sent.format)  # nested in Chat Completions
    form, description = FreeText(), sent.description
    match grammar:
        case {"syntax": "lark" | "regex" as syntax, "definition": str(definition)}:
            form = FreeText(syntax, definition)
            description += f"\n\nThe input keeps to this {syntax} grammar:\n{definition}"
        case dict() if grammar and sent.format.get("type") != "text":
            raise UsageError(f"{place}: a format has a syntax, lark or regex, and a definition")
    return Tool(sent.name, description, _CUSTOM, free_text=form)
