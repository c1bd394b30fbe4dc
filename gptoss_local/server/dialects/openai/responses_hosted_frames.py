"""Output items and events of calls that the server runs. Source: OpenAI's API reference."""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from gptoss_local.harmony import ToolCall
from gptoss_local.server.dialects.openai.parts import new_id
from gptoss_local.server.dialects.openai.responses_hosted import (
    CODE_INTERPRETER,
    MCP,
    WEB_SEARCH,
    HostedTools,
    ToolListing,
)
from gptoss_local.talk.tools import Page, ToolResult

Fields = dict[str, Any]

_TYPES = {
    WEB_SEARCH: ("web_search_call", "ws_"),
    CODE_INTERPRETER: ("code_interpreter_call", "ci_"),
    MCP: ("mcp_call", "mcp_"),
}
"""The type of an item, and the prefix of its id."""


class Told(NamedTuple):
    """An event about an item: its name without `response.`, and its own fields."""

    name: str
    fields: Mapping[str, Any] = MappingProxyType({})


class HostedItem:
    def __init__(self, call: ToolCall, hosted: HostedTools, include: Collection[str]) -> None:
        self._call, self._tool, self._state = call, hosted.tools[call.name], hosted.state
        self._include = include
        self._type, prefix = _TYPES[self._tool.kind]
        self.id = new_id(prefix)
        # With the address of a link that the model names by its number.
        self._arguments = self._state.toolbox.call(call.name, call.arguments).arguments

    def item(self, status: str, result: ToolResult | None = None) -> Fields:
        """Return the item: before its call is run, or with the result."""
        fields: Fields
        match self._tool.kind:
            case "web_search":
                fields = {"action": self._action(result.pages if result else ())}
            case "code_interpreter":
                shown = "code_interpreter_call.outputs" in self._include
                logs = [{"type": "logs", "logs": result.text}] if result else []
                fields = {
                    "code": self._text() if result else "",
                    "container_id": self._state.container_id,
                    "outputs": logs if shown else None,
                }
            case _:
                is_failed = result is not None and result.is_error
                fields = {
                    "approval_request_id": None,
                    "server_label": self._tool.server,
                    "name": self._tool.name,
                    "arguments": self._text() if result else "",
                    "output": None if result is None or is_failed else result.text,
                    "error": _execution_error(result) if result and is_failed else None,
                }
        return {"id": self.id, "type": self._type, "status": status} | fields

    def begun(self) -> Iterable[Told]:
        yield Told(f"{self._type}.in_progress")
        match self._tool.kind:
            case "web_search":
                yield Told("web_search_call.searching")
            case "code_interpreter":
                yield Told("code_interpreter_call_code.delta", {"delta": self._text()})
                yield Told("code_interpreter_call_code.done", {"code": self._text()})
                yield Told("code_interpreter_call.interpreting")
            case _:
                yield Told("mcp_call_arguments.delta", {"delta": self._text()})
                yield Told("mcp_call_arguments.done", {"arguments": self._text()})

    def ended(self, result: ToolResult) -> Iterable[Told]:
        """Return the events of the result; only calls of MCP servers have one of a failure."""
        if not self._is_failed(result):
            yield Told(f"{self._type}.completed")
        elif self._tool.kind == MCP:
            yield Told("mcp_call.failed")

    def done(self, result: ToolResult) -> Fields:
        return self.item("failed" if self._is_failed(result) else "completed", result)

    def _is_failed(self, result: ToolResult) -> bool:
        """Return whether it did not run; code that raises has, and its traceback is its output."""
        is_output = self._tool.kind == CODE_INTERPRETER and not result.text.startswith("Error: ")
        return result.is_error and not is_output

    def _text(self) -> str:
        if self._tool.kind == CODE_INTERPRETER:
            return str(self._call.arguments.get("code", ""))
        return self._call.arguments_json()

    def _action(self, found: Collection[Page]) -> Fields:
        urls = list(dict.fromkeys(page.url for page in found if page.url))
        arguments = self._arguments
        match self._call.name.rpartition(".")[2]:
            case "open":
                return {"type": "open_page", "url": urls[-1] if urls else self._named_url()}
            case "find":
                url = urls[-1] if urls else self._named_url() or ""
                pattern = str(arguments.get("pattern", ""))
                return {"type": "find_in_page", "pattern": pattern, "url": url}
        query = str(arguments.get("query", ""))
        action: Fields = {"type": "search", "query": query, "queries": [query]}
        if urls and "web_search_call.action.sources" in self._include:
            action["sources"] = [{"type": "url", "url": url} for url in urls]
        return action

    def _named_url(self) -> str | None:
        named, cursor = self._arguments.get("id"), self._arguments.get("cursor")
        if isinstance(named, str):
            return named
        page = self._state.pages.get(cursor) if isinstance(cursor, int) else None
        return page.url if page and page.url else None


def _execution_error(result: ToolResult) -> Fields:
    text = result.text.removeprefix("Error: ")
    return {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}


def tool_list(listing: ToolListing) -> Fields:
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
