"""Tools of `/v1/responses` that the server runs, if its setting and the request both say so.

Source: OpenAI's API reference (web search, code interpreter, and MCP servers as tools).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from gptoss_local.base.errors import ForbiddenError, ToolError, UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.harmony import ToolCall, ToolRequest
from gptoss_local.server.access import Caller
from gptoss_local.server.body import convert
from gptoss_local.server.dialects.openai.tool_memory import (
    HostedTool,
    RememberedCall,
    ToolMemory,
    ToolState,
)
from gptoss_local.talk.tools import Page, RunnableTool, ToolResult

WEB_SEARCH, CODE_INTERPRETER, MCP = "web_search", "code_interpreter", "mcp"
_SOURCES = {WEB_SEARCH: "browser", CODE_INTERPRETER: "python"}
_SETTING = "GPTOSS_API_TOOLS says which tools the server runs for requests."


class _Filter(msgspec.Struct):
    tool_names: list[str] | None = None
    read_only: bool | None = None


class _Server(msgspec.Struct):
    server_label: str = ""
    server_url: str = ""
    allowed_tools: list[str] | _Filter | None = None
    require_approval: Any = "always"
    connector_id: Any = None
    tunnel_id: Any = None
    authorization: Any = None
    headers: Any = None

    @property
    def allowed_names(self) -> list[str] | None:
        """Return the tools that the request names; None: it allows all of them."""
        allowed = self.allowed_tools
        return allowed.tool_names if isinstance(allowed, _Filter) else allowed


class Permission:
    """The tools that a caller may have run: the `tools` of its key, or else GPTOSS_API_TOOLS.

    Entries are such as `web_search`, `mcp:SERVER:TOOL`, `mcp:SERVER:*`, and in the setting `mcp`.
    """

    def __init__(self, caller: Caller, settings: Settings) -> None:
        self._caller = caller
        self.is_of_key = caller.has_users_key
        entries = caller.tools if self.is_of_key else settings.api_tools.split(",")
        self._entries = [entry.strip().split(":", 2) for entry in entries]

    def has(self, *path: str) -> bool:
        """Return whether an entry allows a type of tools, a server, or one of its tools."""
        return any(_covers(entry, path) for entry in self._entries)

    def names(self, *path: str) -> bool:
        """Return whether the caller is the owner, or an entry names the server of a tool."""
        is_owners = self._caller.kind in ("owner", "page")
        return is_owners or any(len(e) > 1 and _covers(e, path) for e in self._entries)

    def refusal(self, *path: str) -> ForbiddenError:
        what = ":".join(path)
        if self.is_of_key:
            return ForbiddenError(
                f"the API key '{self._caller.name}' may not use {what}",
                hint="The server's owner states the tools of a key: gptoss keys add NAME --tools.",
            )
        return ForbiddenError(f"requests may not use {what}", hint=_SETTING)


def _covers(entry: Sequence[str], path: Sequence[str]) -> bool:
    return all(stated in (wanted, "*") for stated, wanted in zip(entry, path, strict=False))


class ToolListing(NamedTuple):
    """The tools of an MCP server that a request is offered; `error` says why there are none."""

    server: str
    tools: tuple[HostedTool, ...]
    error: str = ""


@dataclass
class HostedTools:
    """The tools of one request that the server runs, by the model's names.

    Attributes:
        state: The tools of the conversation.
        tools: The offered ones, by the model's names.
        listings: Of the MCP servers.
    """

    memory: ToolMemory
    state: ToolState
    tools: dict[str, HostedTool]
    listings: list[ToolListing]

    def are_allowed(self, permission: Permission) -> bool:
        return all(permission.has(t.kind, t.server, t.name) for t in self.tools.values())

    def remember(self, item_id: str, call: ToolCall, result: ToolResult) -> None:
        """Keep the call of an item, and its result."""
        request = ToolRequest(call.name, call.arguments, call.id)
        run = RememberedCall(request, result.text, result.pages, self.state.container_id)
        self.memory.runs.put(self.state.owner, item_id, run)

    def name_of(self, server: str, name: str) -> str:
        """Return the model's name for a tool of an MCP server; empty if it is not offered."""
        known = (n for n, each in self.tools.items() if (each.server, each.name) == (server, name))
        return next(known, "")

    def named(self, choice: Mapping[str, Any]) -> list[str]:
        """Return the tools that an entry of `tool_choice` names by their type."""
        kind, server = kind_of(choice), choice.get("server_label", "")
        name = choice.get("name") if kind == MCP else None
        return [
            n
            for n, t in self.tools.items()
            if (t.kind, t.server) == (kind, server) and name in (None, t.name)
        ]


def kind_of(entry: Mapping[str, Any]) -> str:
    """Return the kind of an entry that the server may run; empty for the client's tools."""
    kind = entry.get("type")
    if not isinstance(kind, str):
        return ""
    if kind.startswith(WEB_SEARCH):  # _preview, or with a date
        return WEB_SEARCH
    return kind if kind in (CODE_INTERPRETER, MCP) else ""


def not_offered(choice: dict[str, Any]) -> UsageError:
    kind = choice["type"]
    return UsageError(f"tool_choice demands a call of {kind}, which is not offered", hint=_SETTING)


def wanted(entries: Iterable[dict[str, Any]], permission: Permission) -> list[dict[str, Any]]:
    """Return the tools that the server runs, without those that GPTOSS_API_TOOLS lacks.

    Agents offer a search unasked. Raises ForbiddenError for a server or a key without the right.
    """
    found = []
    for entry in entries:
        kind = kind_of(entry)
        if not kind or entry.get("external_web_access") is False:
            continue
        path = (kind, str(entry.get("server_label", ""))) if kind == MCP else (kind,)
        if permission.has(*path):
            found.append(entry)
        elif permission.is_of_key or permission.has(kind):
            raise permission.refusal(*path)
    return found


async def find_state(
    memory: ToolMemory,
    owner: str,
    entries: Iterable[dict[str, Any]],
    items: Sequence[Mapping[str, Any]],
) -> ToolState:
    """Return the last calls' tools, or new ones with its pages. UsageError: unknown container."""
    for entry in entries:
        container = entry.get("container")
        if kind_of(entry) == CODE_INTERPRETER and isinstance(container, str):
            if state := memory.state(owner, container):
                return state
            hint = 'Use {"type": "auto"}. Containers that are not used are ended.'
            raise UsageError(f"container '{container}' not found", hint=hint)
    pages: list[Page] = []
    for item in reversed(items):
        run = memory.runs.get(owner, str(item.get("id")))
        container = run.container_id if run else str(item.get("container_id"))
        if state := memory.state(owner, container):
            return state
        pages = [*run.pages, *pages] if run else pages
    state = memory.new_state(owner)
    if pages:
        state.pages |= {page.cursor: page for page in pages}
        await state.toolbox.new_chat(pages)
    return state


async def prepare(
    entries: Sequence[dict[str, Any]], memory: ToolMemory, state: ToolState, permission: Permission
) -> HostedTools:
    """Start the wanted tools of a request in a conversation's state.

    Raises:
        ForbiddenError: the caller may not use a tool.
        UsageError: an entry names an unknown server, or has a field that is not supported.
        ToolError: `python` or `browser` does not answer.
    """
    servers = [convert(entry, _Server) for entry in entries if kind_of(entry) == MCP]
    built_in = [kind_of(entry) for entry in entries if kind_of(entry) != MCP]
    toolbox = state.toolbox
    known = {group.name for group in toolbox.groups()}
    labels = {group.name for group in toolbox.groups() if group.is_mcp}
    for entry in entries:
        _check_built_in(entry)
    for server in servers:
        _check_server(server, labels, permission)
    async with state.preparing:
        toolbox.on |= known & {_SOURCES[kind] for kind in built_in}
        toolbox.on |= {server.server_label for server in servers}
        await toolbox.prepare()
    problems = {group.name: group.problem for group in toolbox.groups()}
    tools: dict[str, HostedTool] = {}
    for kind in dict.fromkeys(built_in):
        source = _SOURCES[kind]
        found = [tool for tool in toolbox.tools.values() if tool.source == source]
        if not found:
            problem = problems.get(source) or f"{source}: there is no such tool on this server"
            raise ToolError(f"{kind} cannot be used: {problem}")
        tools |= {tool.name: HostedTool(kind, "", tool.name, tool) for tool in found}
    listings = [
        _listing(server, toolbox.tools.values(), problems[server.server_label], permission)
        for server in servers
    ]
    for each in (tool for listing in listings for tool in listing.tools):
        tools.setdefault(each.tool.name, each)  # of two entries for a server the first counts
    return HostedTools(memory, state, tools, listings)


def _check_built_in(entry: dict[str, Any]) -> None:
    filters, container = entry.get("filters"), entry.get("container")
    if isinstance(filters, dict) and any(filters.values()):
        raise UsageError("filters of web_search are not supported")
    if isinstance(container, dict) and container.get("file_ids"):
        raise UsageError("file_ids of code_interpreter are not supported")


def _check_server(server: _Server, known: set[str], permission: Permission) -> None:
    """Refuse an unknown server, and fields that belong in the user's own file."""
    label = server.server_label
    hint = "Add it to those that the server knows: gptoss tools add."
    if label not in known:
        raise UsageError(f"there is no MCP server '{label}'", hint=hint)
    for name in ("connector_id", "tunnel_id", "authorization", "headers"):
        if getattr(server, name):
            raise UsageError(f"{name} of the MCP server '{label}' is not supported", hint=hint)
    if isinstance(server.allowed_tools, _Filter) and server.allowed_tools.read_only is not None:
        raise UsageError(
            "read_only of allowed_tools is not supported", hint="List tool_names instead."
        )
    if server.require_approval != "never":
        raise UsageError(
            f"calls of the MCP server '{label}' run without approval",
            hint='Send "require_approval": "never"; allowed_tools limits what may be called.',
        )
    for name in server.allowed_names or ():
        if not permission.has(MCP, label, name):
            raise permission.refusal(MCP, label, name)


def _listing(
    server: _Server, tools: Iterable[RunnableTool], problem: str, permission: Permission
) -> ToolListing:
    label, names = server.server_label, server.allowed_names
    own = [tool for tool in tools if tool.source == label]
    if server.server_url and own and not any(_is_at(tool, server.server_url) for tool in own):
        raise UsageError(
            f"the MCP server '{label}' is not at {server.server_url}",
            hint="The server connects to what its user has added only: gptoss tools add. "
            "Leave out server_url.",
        )
    offered = []
    for tool in own:
        name = tool.own_name or tool.name
        if not permission.has(MCP, label, name) or not (names is None or name in names):
            continue
        if not permission.names(MCP, label, name):
            raise ForbiddenError(
                f"calls of mcp:{label}:{name} run without approval, which needs its name",
                hint=f"The server's owner may: by its key, or with mcp:{label}:{name} in "
                "GPTOSS_API_TOOLS.",
            )
        offered.append(HostedTool(MCP, label, name, tool))
    return ToolListing(label, tuple(offered), problem)


def _is_at(tool: RunnableTool, url: str) -> bool:
    return url.rstrip("/") in (word.rstrip("/") for word in tool.identity.split())
