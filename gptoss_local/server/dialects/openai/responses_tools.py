"""Tools of `/v1/responses`: the model's `NAMESPACE__NAME` for a client's namespace and name.

Source: OpenAI's API reference (tools of a response, tool search) and Codex's requests.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from gptoss_local.base.errors import UsageError
from gptoss_local.harmony import Tool
from gptoss_local.server.body import convert
from gptoss_local.server.dialects.openai.responses_hosted import HostedTools, kind_of
from gptoss_local.server.dialects.sent_tools import SentTool, read_tool
from gptoss_local.server.dialects.tool_choice import name_in, offered

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
        """Return the client's name for the tool that the model called."""
        return self._origins.get(name, Origin(name=name))

    def name_of(self, namespace: str, name: str) -> str:
        """Return the model's name for a tool that an item of the conversation names."""
        return self._by_client.get((namespace, name), _join(namespace, name))

    def resolve(self, entry: dict[str, Any]) -> list[str]:
        """Return the tools that an entry of `tool_choice` names, in the client's or our words."""
        name, namespace = name_in(entry), entry.get("namespace")
        if kind_of(entry):
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
        if kind_of(tool):  # the server's own
            continue
        wire = convert(tool, SentTool)
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
