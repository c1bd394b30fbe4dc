"""Items of a conversation about calls that the server has run, as the model wrote and read them.

Clients send back what they got. What an item has no place for is remembered, as long as it is.

Source: OpenAI's API reference (Responses, input items).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gptoss_local.errors import UsageError
from gptoss_local.harmony import ToolCall, ToolRequest
from gptoss_local.server.dialects.history import left_out, read_arguments, read_output
from gptoss_local.server.dialects.openai.tool_memory import Run

KINDS = frozenset(
    (
        *("web_search_call", "code_interpreter_call", "mcp_call"),
        *("mcp_list_tools", "mcp_approval_request", "mcp_approval_response"),
    )
)
_OF_MODEL = frozenset(("reasoning", "mcp_approval_request", "mcp_list_tools"))
_NOT_APPROVED = "Error: the user did not approve this call."

Step = ToolRequest | tuple[str, str]
"""A call, or the id of a call with its result."""
RawItem = Mapping[str, Any]


class HostedHistory:
    """The calls and results that the items of one conversation stand for.

    Args:
        items: All of them, in order; only the kinds above count.
        run_of: Finds what was run for an item, by its id.
        name_of: Finds the model's name for a tool of an MCP server, if that is offered.

    Attributes:
        approved: Calls that are to be run before the model continues, by the ids of the items that
            asked; their results are empty.
    """

    def __init__(
        self,
        items: Iterable[RawItem] = (),
        run_of: Callable[[str], Run | None] = lambda _: None,
        name_of: Callable[[str, str], str] | None = None,
    ) -> None:
        self._run_of = run_of
        self._name_of = name_of or (lambda _server, _name: "")
        self.approved: dict[str, ToolCall] = {}
        self._requests: dict[str, RawItem] = {}
        self._answers: dict[str, RawItem] = {}
        self._new: set[str] = set()  # answers that the model has not seen
        self._run_ids: set[str] = set()  # of requests whose calls were run
        for item in items:
            self._look_at(item)
        for request_id in self._new - self._requests.keys():
            raise UsageError(
                f"mcp_approval_response answers '{request_id}', which is not in the conversation",
                hint="Send previous_response_id, or all items.",
            )

    def _look_at(self, item: RawItem) -> None:
        kind, request_id = text_in(item, "type"), text_in(item, "approval_request_id")
        if kind == "mcp_approval_request" and (item_id := text_in(item, "id")):
            self._requests[item_id] = item
        elif kind == "mcp_approval_response":
            self._answers[request_id] = item
            self._new.add(request_id)
        elif kind == "mcp_call" and request_id:
            self._run_ids.add(request_id)
        if kind in _OF_MODEL or kind.endswith("_call") or item.get("role") == "assistant":
            self._new.clear()

    def steps(self, item: RawItem) -> list[Step] | None:
        """Return the calls and results of an item; None if nothing of it can be read."""
        run = self._run_of(text_in(item, "id"))
        match item["type"]:
            case "mcp_list_tools" | "mcp_approval_response":
                return []
            case "mcp_approval_request":
                return self._asked(item, run)
            case "mcp_call":
                return self._called(item, run)
            case "code_interpreter_call":
                return _computed(item, run)
            case _:
                return [run.request, (run.request.id, run.text or "")] if run else None

    def _asked(self, item: RawItem, run: Run | None) -> list[Step]:
        call, item_id = self._call(item, run), text_in(item, "id")
        if item_id in self._run_ids:
            return [call]
        answer = self._answers.get(item_id, {})
        reason = text_in(answer, "reason")
        if answer.get("approve") is True and item_id in self._new:
            self.approved[item_id] = self._approved(item, call)
            return [call, (call.id, "")]
        denied = "Error: the user denied this call."
        told = f"{denied} {reason}".strip() if answer.get("approve") is False else _NOT_APPROVED
        return [call, (call.id, told)]

    def _called(self, item: RawItem, run: Run | None) -> list[Step]:
        output = item.get("output")
        result = read_output(output) if output is not None else run and run.text
        result = _error_in(item) if result is None else result
        request_id = text_in(item, "approval_request_id")
        if request := self._requests.get(request_id):
            return [(self._call(request, self._run_of(request_id)).id, result)]
        call = self._call(item, run)
        return [call, (call.id, result)]

    def _call(self, item: RawItem, run: Run | None) -> ToolRequest:
        """Return the call of an item that names an MCP server; it is the client's if it differs."""
        arguments = read_arguments(item.get("arguments"))
        if run and run.request.arguments == arguments:
            return run.request
        own = text_in(item, "name")
        name = self._name_of(text_in(item, "server_label"), own) or own or "mcp"
        return ToolRequest(name, arguments, text_in(item, "id"))

    def _approved(self, item: RawItem, call: ToolRequest) -> ToolCall:
        """Return a call that is to be run now."""
        server, own = text_in(item, "server_label"), text_in(item, "name")
        name = self._name_of(server, own)
        if not name:
            raise UsageError(
                f"the approved call of '{own}' on '{server}' is of a tool that is not offered",
                hint="Send the same tools as before.",
            )
        if isinstance(call.arguments, str):
            raise UsageError("the arguments of an approved call must be a JSON object")
        return ToolCall(len(self.approved), call.id, name, call.arguments)


def text_in(item: RawItem, name: str) -> str:
    """Return a field that may be missing, or of another type."""
    value = item.get(name)
    return value if isinstance(value, str) else ""


def _computed(item: RawItem, run: Run | None) -> list[Step] | None:
    code, outputs = item.get("code"), item.get("outputs")
    if not isinstance(code, str):
        return [run.request, (run.request.id, run.text or "")] if run else None
    call = ToolRequest("python", {"code": code}, text_in(item, "id"))
    if run and run.request.arguments == call.arguments:
        call = run.request
    if isinstance(outputs, list) and outputs:
        return [call, (call.id, "\n".join(map(_log, outputs)))]
    known = run.text if run else None
    return [call, (call.id, left_out("output") if known is None else known)]


def _log(output: Any) -> str:
    logs = output.get("logs") if isinstance(output, dict) else None
    return logs if isinstance(logs, str) else left_out("image")


def _error_in(item: RawItem) -> str:
    error = item.get("error")
    if isinstance(error, dict):
        error = error.get("content", error.get("message"))
    return f"Error: {read_output(error)}" if error else ""
