"""Reads items about calls that the server has run. Source: OpenAI's API reference (input items).

Clients send items back. Results that have no place in an item are remembered for a while.

Source: OpenAI's API reference (Responses, input items).
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gptoss_local.harmony import ToolRequest
from gptoss_local.server.dialects.history import left_out, read_arguments, read_output
from gptoss_local.server.dialects.openai.responses_hosted import HostedTools
from gptoss_local.server.dialects.openai.tool_memory import RememberedCall

KINDS = ("web_search_call", "code_interpreter_call", "mcp_call", "mcp_list_tools")

Step = ToolRequest | tuple[str, str]
"""A call, or the id of a call with its result."""
RawItem = Mapping[str, Any]


class HostedHistory(NamedTuple):
    """Reads the items of calls that the server has run.

    Attributes:
        run_of: Returns the remembered call of an item by its id.
        hosted: The tools of this request.
    """

    run_of: Callable[[str], RememberedCall | None] = lambda _: None
    hosted: HostedTools | None = None

    def steps(self, item: RawItem) -> list[Step] | None:
        """Return the calls and results of an item; None if nothing of it can be read."""
        run = self.run_of(text_in(item, "id"))
        match item["type"]:
            case "mcp_list_tools":
                return []
            case "mcp_call":
                return self._called(item, run)
            case "code_interpreter_call":
                return _computed(item, run)
            case _:
                return [run.request, (run.request.id, run.text)] if run else None

    def _called(self, item: RawItem, run: RememberedCall | None) -> list[Step]:
        """Return the call of an MCP server's tool; it is the client's where it differs."""
        arguments, own = read_arguments(item.get("arguments")), text_in(item, "name")
        server, output = text_in(item, "server_label"), item.get("output")
        name = (self.hosted.name_of(server, own) if self.hosted else "") or own or "mcp"
        is_known = run is not None and run.request.arguments == arguments
        call = (
            run.request if run and is_known else ToolRequest(name, arguments, text_in(item, "id"))
        )
        if output is not None:
            return [call, (call.id, read_output(output))]
        return [call, (call.id, run.text if run else _error_in(item))]


def text_in(item: RawItem, name: str) -> str:
    value = item.get(name)
    return value if isinstance(value, str) else ""


def _computed(item: RawItem, run: RememberedCall | None) -> list[Step] | None:
    code, outputs = item.get("code"), item.get("outputs")
    if not isinstance(code, str):
        return [run.request, (run.request.id, run.text)] if run else None
    call = ToolRequest("python", {"code": code}, text_in(item, "id"))
    if run and run.request.arguments == call.arguments:
        call = run.request
    if isinstance(outputs, list) and outputs:
        return [call, (call.id, "\n".join(map(_log, outputs)))]
    return [call, (call.id, run.text if run else left_out("output"))]


def _log(output: Any) -> str:
    logs = output.get("logs") if isinstance(output, dict) else None
    return logs if isinstance(logs, str) else left_out("image")


def _error_in(item: RawItem) -> str:
    error = item.get("error")
    if isinstance(error, dict):
        error = error.get("content", error.get("message"))
    return f"Error: {read_output(error)}" if error else ""
