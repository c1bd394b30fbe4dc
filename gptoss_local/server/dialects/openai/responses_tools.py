"""Tools of `/v1/responses`: the model's `NAMESPACE__NAME` for a client's namespace and name.

Source: OpenAI's API reference (tools of a response, tool search) and Codex's requests.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from gptoss_local.base.errors import ForbiddenError, ToolError, UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.harmony import Tool, ToolCall, ToolRequest
from gptoss_local.server.access import Caller
from gptoss_local.server.body import convert
from gptoss_local.server.dialects.openai.responses_memory import (
    HostedTool,
    RememberedCall,
    ToolMemory,
    ToolState,
)
from gptoss_local.server.dialects.sent_tools import (
    CODE_INTERPRETER,
    MCP,
    WEB_SEARCH,
    SentTool,
    hosted_kind,
    is_of_servers,
    name_in,
    offered,
    read_tool,
)
from gptoss_local.talk.tools import Page, RunnableTool, ToolResult

_SOURCES = {WEB_SEARCH: "browser", CODE_INTERPRETER: "python"}


class _Filter(msgspec.Struct):
    tool_names: list[str] | None = None
    read_only: bool | None = None


class _Server(msgspec.Struct):
    """An entry for an MCP server; fields that belong in the user's own file are refused."""

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

    def check(self, known: Collection[str], permission: "Permission") -> None:
        label = self.server_label
        hint = "Add it to those that the server knows: gptoss tools add."
        if label not in known:
            raise UsageError(f"there is no MCP server '{label}'", hint=hint)
        for name in ("connector_id", "tunnel_id", "authorization", "headers"):
            if getattr(self, name):
                raise UsageError(f"{name} of the MCP server '{label}' is not supported", hint=hint)
        if isinstance(self.allowed_tools, _Filter) and self.allowed_tools.read_only is not None:
            raise UsageError(
                "read_only of allowed_tools is not supported", hint="List tool_names instead."
            )
        if self.require_approval != "never":
            raise UsageError(
                f"calls of the MCP server '{label}' run without approval",
                hint='Send "require_approval": "never"; allowed_tools limits what may be called.',
            )
        for name in self.allowed_names or ():
            if not permission.has(MCP, label, name):
                raise permission.refusal(MCP, label, name)

    def listing(
        self, tools: Iterable[RunnableTool], problem: str, permission: "Permission"
    ) -> "ToolListing":
        """Return the tools that the request and the caller's rights both allow."""
        label, url, names = self.server_label, self.server_url.rstrip("/"), self.allowed_names
        own = [tool for tool in tools if tool.source == label]
        places = {word.rstrip("/") for tool in own for word in tool.identity.split()}
        if url and own and url not in places:
            raise UsageError(
                f"the MCP server '{label}' is not at {self.server_url}",
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
        hint = "GPTOSS_API_TOOLS says which tools the server runs for requests."
        return ForbiddenError(f"requests may not use {what}", hint=hint)


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
        request = ToolRequest(call.name, call.arguments, call.id)
        run = RememberedCall(request, result.text, result.pages, self.state.container_id)
        self.memory.runs.put(self.state.owner, item_id, run)

    def name_of(self, server: str, name: str) -> str:
        """Return the model's name for a tool of an MCP server; empty if it is not offered."""
        known = (n for n, each in self.tools.items() if (each.server, each.name) == (server, name))
        return next(known, "")

    def named(self, choice: Mapping[str, Any]) -> list[str]:
        kind, server = hosted_kind(choice.get("type")), choice.get("server_label", "")
        name = choice.get("name") if kind == MCP else None
        return [
            n
            for n, t in self.tools.items()
            if (t.kind, t.server) == (kind, server) and name in (None, t.name)
        ]


def wanted(entries: Iterable[dict[str, Any]], permission: Permission) -> list[dict[str, Any]]:
    """Return the tools that the server runs, without those that GPTOSS_API_TOOLS lacks.

    Agents offer a search unasked. Raises ForbiddenError for a server or a key without the right.
    """
    found = []
    for entry in entries:
        kind = hosted_kind(entry.get("type"))
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
        if hosted_kind(entry.get("type")) == CODE_INTERPRETER and isinstance(container, str):
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
    toolbox, servers, sources = state.toolbox, list[_Server](), dict[str, str]()
    labels = {group.name for group in toolbox.groups() if group.is_mcp}
    for entry in entries:
        if (kind := hosted_kind(entry.get("type"))) == MCP:
            servers.append(convert(entry, _Server))
            servers[-1].check(labels, permission)
        else:
            _check_built_in(entry)
            sources[kind] = _SOURCES[kind]
    async with state.preparing:
        toolbox.on |= {*sources.values(), *(server.server_label for server in servers)}
        await toolbox.prepare()
    problems = {group.name: group.problem for group in toolbox.groups()}
    tools: dict[str, HostedTool] = {}
    for kind, source in sources.items():
        found = [tool for tool in toolbox.tools.values() if tool.source == source]
        if not found:
            problem = problems.get(source) or f"{source}: there is no such tool on this server"
            raise ToolError(f"{kind} cannot be used: {problem}")
        tools |= {tool.name: HostedTool(kind, "", tool.name, tool) for tool in found}
    listings = [
        server.listing(toolbox.tools.values(), problems[server.server_label], permission)
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


SEARCH = "tool_search"


class Origin(NamedTuple):
    """The client's name for a tool; `kind` as in `SentTool`."""

    kind: str = "function"
    namespace: str = ""
    name: str = ""


class ClientTools:
    """The tools of one request, and `loaded` ones of its items; `hosted` ones keep their names."""

    def __init__(
        self,
        declared: Iterable[dict[str, Any]] = (),
        loaded: Iterable[dict[str, Any]] = (),
        hosted: HostedTools | None = None,
    ) -> None:
        self._names: dict[Origin, str] = {}  # as the model knows them
        self._by_client: dict[tuple[str, str], str] = {}  # by namespace and name
        self._hosted = hosted
        ours = hosted.tools if hosted else {}
        self._tools = {name: offered(each.tool) for name, each in ours.items()}
        entries = list(_flatten(declared))
        searches = any(origin.kind == SEARCH for origin, _ in entries)
        for origin, wire in entries:
            if not (searches and wire.defer_loading):  # the client offers it when it is found
                self._add(origin, wire)
        for origin, wire in _flatten(loaded):
            self._add(origin, wire)
        self._origins = {name: origin for origin, name in self._names.items()}

    @property
    def tools(self) -> list[Tool]:
        return list(self._tools.values())

    def origin(self, name: str) -> Origin:
        return self._origins.get(name, Origin(name=name))

    def name_of(self, namespace: str, name: str) -> str:
        """Return the model's name for a tool that an item of the conversation names."""
        return self._by_client.get((namespace, name), _join(namespace, name))

    def name_on(self, server: str, name: str) -> str:
        """Return the model's name for a tool of an MCP server; another's keeps its own."""
        known = self._hosted.name_of(server, name) if self._hosted else ""
        return known or name or "mcp"

    def resolve(self, entry: dict[str, Any]) -> list[str]:
        """Return the tools that an entry of `tool_choice` names, in the client's or our words."""
        name, namespace = name_in(entry), entry.get("namespace")
        if hosted_kind(entry.get("type")):
            return self._hosted.named(entry) if self._hosted else []
        match entry.get("type"):
            case "namespace":
                return [n for o, n in self._names.items() if o.namespace == name and name]
            case "tool_search":
                return [n for o, n in self._names.items() if o.kind == SEARCH]
        if name in self._tools and not namespace:
            return [name]
        found = [o for o in self._names if o.name == name and namespace in (None, o.namespace)]
        return [self._names[found[0]]] if len(found) == 1 else []

    def _add(self, origin: Origin, wire: SentTool) -> None:
        name = self._names.get(origin)
        if name is None:
            name = wanted = _join(origin.namespace, origin.name)
            n = 1
            while name in self._tools:
                n += 1
                name = f"{wanted}_{n}"
            self._names[origin] = name
            self._by_client.setdefault((origin.namespace, origin.name), name)
        if origin.kind == SEARCH:
            self._tools[name] = Tool(name, wire.description, wire.schema)
        else:
            self._tools[name] = msgspec.structs.replace(read_tool(wire, name), name=name)


def _join(namespace: str, name: str) -> str:
    """Join to `NAMESPACE__NAME`; some namespaces end in the separator."""
    return f"{namespace.removesuffix('__')}__{name}" if namespace else name


def _flatten(tools: Iterable[dict[str, Any]]) -> Iterator[tuple[Origin, SentTool]]:
    """Yield tools with their names. Raises UsageError for unusable ones, or one name twice."""
    known: dict[Origin, SentTool] = {}
    for n, tool in enumerate(tools):
        wire = convert(tool, SentTool, f"tools[{n}].")
        if is_of_servers(wire.kind):
            continue
        if wire.kind == "namespace":
            yield from _namespace(wire)
        elif wire.kind != SEARCH:
            origin = Origin(wire.kind, "", read_tool(wire, f"tools[{n}]").name)
            if known.setdefault(origin, wire) != wire:
                raise UsageError(f"two different tools have the name '{origin.name}'")
            yield origin, wire
        elif wire.execution == "client":
            yield Origin(SEARCH, "", SEARCH), wire


def _namespace(group: SentTool) -> Iterator[tuple[Origin, SentTool]]:
    about = f"{group.name}: {group.description}\n\n" if group.description else ""
    for origin, wire in _flatten(group.tools):
        if not origin.namespace and origin.kind != SEARCH:
            described = msgspec.structs.replace(wire, description=f"{about}{wire.description}")
            yield origin._replace(namespace=group.name), described
            about = ""


def echo(tools: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return tools as a response shows them: functions with all fields of typed clients."""
    shown = []
    for tool in tools:
        match tool.get("type", "function"):
            case "function":
                absent = dict.fromkeys(("description", "parameters", "strict"))
                tool = {"type": "function"} | absent | tool
            case "namespace" if isinstance(nested := tool.get("tools"), list):
                tool = {"description": ""} | tool | {"tools": echo(nested)}
        shown.append(tool)
    return shown
