"""The tools of `/v1/responses` that the server runs, if its setting and the request both say so.

Source: OpenAI's API reference (web search, code interpreter, and MCP servers as tools).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from gptoss_local.errors import ToolError, UsageError
from gptoss_local.harmony import Tool, ToolCall, ToolRequest
from gptoss_local.server.body import convert
from gptoss_local.server.dialects.openai.tool_memory import Run, ToolMemory, ToolState
from gptoss_local.settings import Settings
from gptoss_local.talk.tools import Page, ToolResult
from gptoss_local.talk.tools import Tool as ServerTool

WEB_SEARCH, CODE_INTERPRETER, MCP = "web_search", "code_interpreter", "mcp"
_SOURCES = {WEB_SEARCH: "browser", CODE_INTERPRETER: "python"}
_SETTING = "GPTOSS_API_TOOLS says which tools the server runs for requests."


class _Filter(msgspec.Struct):
    tool_names: list[str] | None = None
    read_only: bool | None = None


class _Approval(msgspec.Struct):
    always: _Filter | None = None
    never: _Filter | None = None


class _Server(msgspec.Struct):
    """A tool of type `mcp`."""

    server_label: str = ""
    server_url: str = ""
    allowed_tools: list[str] | _Filter | None = None
    require_approval: str | _Approval = "always"
    connector_id: Any = None
    tunnel_id: Any = None
    authorization: Any = None
    headers: Any = None

    def offers(self, name: str) -> bool:
        """Return whether the request allows a tool of the server."""
        allowed = self.allowed_tools
        names = allowed.tool_names if isinstance(allowed, _Filter) else allowed
        return names is None or name in names

    def asks(self, name: str) -> bool:
        """Return whether the client approves each call of a tool, as it does in doubt."""
        if isinstance(self.require_approval, str):
            return self.require_approval != "never"
        always = self.require_approval.always or _Filter()
        never = self.require_approval.never or _Filter()
        is_never = never.read_only is None and name in (never.tool_names or ())
        return not is_never or name in (always.tool_names or ())


class HostedTool(NamedTuple):
    """A tool that the server runs.

    Attributes:
        kind: The type of tool of the request.
        server: The `server_label`; empty if it is built in.
        name: As the client knows it.
        tool: What is run.
        asks: The client approves each call.
    """

    kind: str
    server: str
    name: str
    tool: ServerTool
    asks: bool = False

    @property
    def declared(self) -> Tool:
        """Return the tool as the model gets it."""
        tool = self.tool
        return Tool(tool.name, tool.description, tool.parameters, is_built_in=tool.is_built_in)


class Listing(NamedTuple):
    """The tools of an MCP server that a request is offered; `error` says why there are none."""

    server: str
    tools: tuple[HostedTool, ...]
    error: str = ""


class HostedTools:
    """The tools of one request that the server runs.

    Args:
        memory: Where calls are remembered.
        state: The tools of the conversation.
        tools: Those that are offered.
        listings: Of the MCP servers.
    """

    def __init__(
        self,
        memory: ToolMemory,
        state: ToolState,
        tools: Iterable[HostedTool],
        listings: Sequence[Listing] = (),
    ) -> None:
        self._memory = memory
        self.state = state
        self.tools: dict[str, HostedTool] = {}  # as the model knows them
        for each in tools:
            self.tools.setdefault(each.tool.name, each)
        self.listings = tuple(listings)

    def is_ours(self, name: str) -> bool:
        return name in self.tools

    def needs_approval(self, call: ToolCall) -> bool:
        return self.tools[call.name].asks

    async def run(self, call: ToolCall) -> ToolResult:
        result = await self.state.toolbox.run(call.name, call.arguments)
        self.state.pages |= {page.cursor: page for page in result.pages}
        return result

    def remember(self, item_id: str, call: ToolCall, result: ToolResult | None = None) -> None:
        """Keep what an item of the answer stands for; a call without a result waits for it."""
        request = ToolRequest(call.name, call.arguments, call.id)
        text, pages = (result.text, result.pages) if result else (None, ())
        run = Run(request, text, pages, self.state.container_id)
        self._memory.add(self.state.owner, item_id, run)

    def name_of(self, server: str, name: str) -> str:
        """Return the model's name for a tool of an MCP server; empty if it is not offered."""
        found = (n for n, t in self.tools.items() if (t.server, t.name) == (server, name))
        return next(found, "")

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
    """Return what kind of a tool an entry is that the server may run; empty if it is none."""
    kind = entry.get("type")
    if not isinstance(kind, str):
        return ""
    if kind.startswith(WEB_SEARCH):  # _preview, or with a date
        return WEB_SEARCH
    return kind if kind in (CODE_INTERPRETER, MCP) else ""


def not_offered(choice: dict[str, Any]) -> UsageError:
    """Return the error for a `tool_choice` of a tool that the server could run, and does not."""
    kind = choice["type"]
    return UsageError(f"tool_choice demands a call of {kind}, which is not offered", hint=_SETTING)


def wanted(entries: Iterable[dict[str, Any]], settings: Settings) -> list[dict[str, Any]]:
    """Return the tools of a request that the setting lets the server run; others are skipped.

    A search that may not access the web has nothing to search.
    """
    allowed = {name.strip() for name in settings.api_tools.split(",")}
    return [
        entry
        for entry in entries
        if kind_of(entry) in allowed - {""} and entry.get("external_web_access") is not False
    ]


def find_state(
    memory: ToolMemory,
    owner: str,
    entries: Iterable[dict[str, Any]],
    items: Sequence[Mapping[str, Any]],
) -> tuple[ToolState, list[Page]]:
    """Return the tools of a conversation: those that its last calls were run in, or new ones.

    Args:
        memory: Where tools and calls are remembered.
        owner: Whose conversation it is.
        entries: Tools of the request, one of which may name a container.
        items: The conversation.

    Returns:
        The tools, and if they are new, the pages that the conversation may cite.

    Raises:
        UsageError: the container is not there, or not any more.
    """
    for entry in entries:
        container = entry.get("container")
        if kind_of(entry) == CODE_INTERPRETER and isinstance(container, str):
            if state := memory.state(owner, container):
                return state, []
            hint = 'Use {"type": "auto"}. Containers that are not used are ended.'
            raise UsageError(f"container '{container}' not found", hint=hint)
    pages: list[Page] = []
    for item in reversed(items):
        run = memory.run(owner, str(item.get("id")))
        container = run.container_id if run else str(item.get("container_id"))
        if state := memory.state(owner, container):
            return state, []
        pages = [*run.pages, *pages] if run else pages
    state = memory.new_state(owner)
    state.pages |= {page.cursor: page for page in pages}
    return state, pages


async def prepare(
    entries: Sequence[dict[str, Any]], memory: ToolMemory, state: ToolState, settings: Settings
) -> HostedTools:
    """Make the tools of a request ready, starting what is not.

    Args:
        entries: See `wanted`.
        memory: Where calls are remembered.
        state: The tools of the conversation.
        settings: The server's.

    Raises:
        UsageError: an entry asks for what there is not, or what must hold and cannot.
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
        _check_server(server, labels)
    async with state.preparing:
        toolbox.on |= known & {_SOURCES[kind] for kind in built_in}
        toolbox.on |= {server.server_label for server in servers}
        await toolbox.prepare()
    problems = {group.name: group.problem for group in toolbox.groups()}
    tools: list[HostedTool] = []
    for kind in dict.fromkeys(built_in):
        source = _SOURCES[kind]
        found = [tool for tool in toolbox.tools.values() if tool.source == source]
        if not found:
            problem = problems.get(source) or f"{source}: there is no such tool on this server"
            raise ToolError(f"{kind} cannot be used: {problem}")
        tools += [HostedTool(kind, "", tool.name, tool) for tool in found]
    listings = [
        _listing(server, toolbox.tools.values(), problems[server.server_label])
        for server in servers
    ]
    tools += [tool for listing in listings for tool in listing.tools]
    return HostedTools(memory, state, tools, listings)


def _check_built_in(entry: dict[str, Any]) -> None:
    """Refuse what must hold of a search or of a container, and cannot."""
    filters, container = entry.get("filters"), entry.get("container")
    if isinstance(filters, dict) and any(filters.values()):
        raise UsageError("filters of web_search are not supported")
    if isinstance(container, dict) and container.get("file_ids"):
        raise UsageError("file_ids of code_interpreter are not supported")


def _check_server(server: _Server, known: set[str]) -> None:
    """Refuse a server that is not the user's, and what only the user's own file may say."""
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
    if isinstance(server.require_approval, str) and server.require_approval not in (
        "always",
        "never",
    ):
        raise UsageError("require_approval must be always, never, or an object with never")


def _listing(server: _Server, tools: Iterable[ServerTool], problem: str) -> Listing:
    label = server.server_label
    own = [tool for tool in tools if tool.source == label]
    if server.server_url and own and not any(_is_at(tool, server.server_url) for tool in own):
        raise UsageError(
            f"the MCP server '{label}' is not at {server.server_url}",
            hint="The server connects to what its user has added only: gptoss tools add. "
            "Leave out server_url.",
        )
    offered = (
        HostedTool(MCP, label, name, tool, asks=server.asks(name))
        for tool in own
        if server.offers(name := tool.own_name or tool.name)
    )
    return Listing(label, tuple(offered), problem)


def _is_at(tool: ServerTool, url: str) -> bool:
    """Return whether a tool is that of a server with this address."""
    return url.rstrip("/") in (word.rstrip("/") for word in tool.identity.split())
