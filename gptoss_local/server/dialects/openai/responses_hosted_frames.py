"""Output items of calls that the server runs, and the events about them.

Source: OpenAI's API reference (Responses, streaming events), and the types of its Python SDK.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from gptoss_local.harmony import ToolCall
from gptoss_local.server.dialects.openai.parts import new_id
from gptoss_local.server.dialects.openai.responses_exchange import ApprovedCallBegun
from gptoss_local.server.dialects.openai.responses_hosted import (
    CODE_INTERPRETER,
    WEB_SEARCH,
    HostedTools,
    Listing,
)
from gptoss_local.talk.loop import CallBegun
from gptoss_local.talk.tools import Page, ToolResult

OUTPUTS = "code_interpreter_call.outputs"
SOURCES = "web_search_call.action.sources"

Fields = dict[str, Any]


class Told(NamedTuple):
    """An event about an item: its name without `response.`, and what it says besides which item."""

    name: str
    fields: Mapping[str, Any] = MappingProxyType({})


class HostedItem(ABC):
    """A call while it runs.

    Attributes:
        id: Of the item.
        kind: Its type.
    """

    id_prefix: str
    kind: str

    def __init__(self, call: ToolCall) -> None:
        self.id = new_id(self.id_prefix)
        self.call = call

    @abstractmethod
    def item(self, status: str, result: ToolResult | None = None) -> Fields:
        """Return the item: before its call is run, or with the result."""

    @abstractmethod
    def begun(self) -> Iterable[Told]:
        """Return the events until the call is run."""

    def is_failed(self, result: ToolResult) -> bool:
        """Return whether a result says that the call could not be run."""
        return result.is_error

    def ended(self, result: ToolResult) -> Iterable[Told]:
        """Return the events of the result; most kinds of calls have none of a failure."""
        is_failed = self.is_failed(result)
        return [] if is_failed else [Told(f"{self.kind}.completed")]

    def done(self, result: ToolResult) -> Fields:
        """Return the item as a whole."""
        return self.item("failed" if self.is_failed(result) else "completed", result)


class SearchItem(HostedItem):
    """A search, or a page that is opened or searched.

    Args:
        call: Of a function of `browser`.
        pages: Those that are known, by cursor; new ones are added before the result comes.
        has_sources: Whether the item is to list what was found.
    """

    id_prefix, kind = "ws_", "web_search_call"

    def __init__(self, call: ToolCall, pages: Mapping[int, Page], *, has_sources: bool) -> None:
        super().__init__(call)
        self._pages = pages
        self._has_sources = has_sources

    def item(self, status: str, result: ToolResult | None = None) -> Fields:
        action = self._action(result.pages if result else ())
        return {"id": self.id, "type": self.kind, "status": status, "action": action}

    def begun(self) -> Iterable[Told]:
        return [Told("web_search_call.in_progress"), Told("web_search_call.searching")]

    def _action(self, found: Collection[Page]) -> Fields:
        arguments = self.call.arguments
        match self.call.name.rpartition(".")[2]:
            case "open":
                return {"type": "open_page", "url": self._url(found)}
            case "find":
                pattern = str(arguments.get("pattern", ""))
                url = self._url(found) or ""
                return {"type": "find_in_page", "pattern": pattern, "url": url}
        query = str(arguments.get("query", ""))
        action: Fields = {"type": "search", "query": query, "queries": [query]}
        urls = dict.fromkeys(page.url for page in found if page.url)
        if self._has_sources and urls:
            action["sources"] = [{"type": "url", "url": url} for url in urls]
        return action

    def _url(self, found: Collection[Page]) -> str | None:
        """Return the address of the page that was opened, or else the one that is named."""
        if urls := [page.url for page in found if page.url]:
            return urls[-1]
        named, cursor = self.call.arguments.get("id"), self.call.arguments.get("cursor")
        if isinstance(named, str):
            return named
        page = self._pages.get(cursor) if isinstance(cursor, int) else None
        return page.url if page and page.url else None


class CodeItem(HostedItem):
    """Code that is run.

    Args:
        call: Of `python`.
        container_id: Where it runs.
        has_outputs: Whether the item is to show what the code printed.
    """

    id_prefix, kind = "ci_", "code_interpreter_call"

    def __init__(self, call: ToolCall, container_id: str, *, has_outputs: bool) -> None:
        super().__init__(call)
        self._container_id = container_id
        self._has_outputs = has_outputs
        self._code = str(call.arguments.get("code", ""))

    def item(self, status: str, result: ToolResult | None = None) -> Fields:
        outputs: list[Fields] | None = None
        if self._has_outputs:
            outputs = [{"type": "logs", "logs": result.text}] if result else []
        return {
            "id": self.id,
            "type": self.kind,
            "status": status,
            "code": self._code if result else "",
            "container_id": self._container_id,
            "outputs": outputs,
        }

    def begun(self) -> Iterable[Told]:
        return [
            Told("code_interpreter_call.in_progress"),
            Told("code_interpreter_call_code.delta", {"delta": self._code}),
            Told("code_interpreter_call_code.done", {"code": self._code}),
            Told("code_interpreter_call.interpreting"),
        ]

    def is_failed(self, result: ToolResult) -> bool:
        """Return whether it did not run; code that raises has, and its traceback is its output."""
        return result.is_error and result.text.startswith("Error: ")


class McpItem(HostedItem):
    """A call of a tool of an MCP server.

    Args:
        call: Of that tool.
        server: The `server_label`.
        name: As the server knows the tool.
        approval_id: Of the item that asked for approval; empty if none did.
    """

    id_prefix, kind = "mcp_", "mcp_call"

    def __init__(self, call: ToolCall, server: str, name: str, approval_id: str = "") -> None:
        super().__init__(call)
        self._server = server
        self._name = name
        self._approval_id = approval_id

    def item(self, status: str, result: ToolResult | None = None) -> Fields:
        is_failed = result is not None and result.is_error
        return {
            "id": self.id,
            "type": self.kind,
            "status": status,
            "approval_request_id": self._approval_id or None,
            "server_label": self._server,
            "name": self._name,
            "arguments": self.call.arguments_json() if result else "",
            "output": None if result is None or is_failed else result.text,
            "error": _execution_error(result) if result and is_failed else None,
        }

    def begun(self) -> Iterable[Told]:
        arguments = self.call.arguments_json()
        return [
            Told("mcp_call.in_progress"),
            Told("mcp_call_arguments.delta", {"delta": arguments}),
            Told("mcp_call_arguments.done", {"arguments": arguments}),
        ]

    def ended(self, result: ToolResult) -> Iterable[Told]:
        return [Told("mcp_call.failed" if result.is_error else "mcp_call.completed")]


def _execution_error(result: ToolResult) -> Fields:
    text = result.text.removeprefix("Error: ")
    return {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}


def begin_item(begun: CallBegun, hosted: HostedTools, include: Collection[str]) -> HostedItem:
    """Return the item of a call that begins; `include` is the request's."""
    call, state = begun.call, hosted.state
    approval_id = begun.approval_id if isinstance(begun, ApprovedCallBegun) else ""
    tool = hosted.tools[call.name]
    if tool.kind == WEB_SEARCH:
        arguments = dict(state.toolbox.call(call.name, call.arguments).arguments)
        call = msgspec.structs.replace(call, arguments=arguments)  # with the address of a link
        return SearchItem(call, state.pages, has_sources=SOURCES in include)
    if tool.kind == CODE_INTERPRETER:
        return CodeItem(call, state.container_id, has_outputs=OUTPUTS in include)
    return McpItem(call, tool.server, tool.name, approval_id)


def approval_request(call: ToolCall, hosted: HostedTools) -> Fields:
    """Return the item that asks for approval of a call."""
    tool = hosted.tools[call.name]
    return {
        "id": new_id("mcpr_"),
        "type": "mcp_approval_request",
        "server_label": tool.server,
        "name": tool.name,
        "arguments": call.arguments_json(),
    }


def tool_list(listing: Listing) -> Fields:
    """Return the item that lists the tools of a server."""
    return {
        "id": new_id("mcpl_"),
        "type": "mcp_list_tools",
        "server_label": listing.server,
        "tools": [
            {
                "name": each.name,
                "description": each.tool.description,
                "input_schema": each.tool.parameters,
                "annotations": None,
            }
            for each in listing.tools
        ],
        "error": listing.error or None,
    }
