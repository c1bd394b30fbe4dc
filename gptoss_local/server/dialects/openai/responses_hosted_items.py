"""Reads items about calls that the server has run. Source: OpenAI's API reference (input items).

Results without a place in an item are remembered; an approval runs the remembered call.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gptoss_local.errors import UsageError
from gptoss_local.harmony import ToolCall, ToolRequest
from gptoss_local.server.dialects.history import (
    ContentPart,
    join_parts,
    left_out,
    read_arguments,
    read_output,
)
from gptoss_local.server.dialects.openai.responses_hosted import HostedTools
from gptoss_local.server.dialects.openai.tool_memory import RememberedCall

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
_Content = str | list[ContentPart]


class HostedHistory:
    """The calls and results in one conversation's items; UsageError for an unknown approval.

    By the ids of asking items: `answered` has answers new to the model, `approved` calls to run.
    """

    def __init__(
        self,
        items: Iterable[RawItem] = (),
        run_of: Callable[[str], RememberedCall | None] = lambda _: None,
        hosted: HostedTools | None = None,
    ) -> None:
        self._run_of = run_of
        self._hosted = hosted
        self.answered: dict[str, RawItem] = {}
        self.approved: dict[str, ToolCall] = {}
        self._requests: dict[str, list[tuple[RawItem, _Content]]] = {}
        self._answers: dict[str, RawItem] = {}
        self._run_ids: set[str] = set()  # of requests with calls that were run
        self._question: _Content = ""
        for item in items:
            self._look_at(item)
        for request_id, answer in self.answered.items():
            run = self._asked_for(request_id)
            if answer.get("approve") is True:
                self.approved[request_id] = self._approved(run)
            elif answer.get("approve") is not False:
                raise UsageError(f"approve must be true or false in the answer to '{request_id}'")

    @property
    def question(self) -> int:
        """Return a hash of the user's last message, by which an approval knows its conversation."""
        return hash(join_parts(self._question))

    def _look_at(self, item: RawItem) -> None:
        kind, request_id = text_in(item, "type"), text_in(item, "approval_request_id")
        if kind == "message" and item["role"].lower() == "user":
            self._question = item["content"]
        elif kind == "mcp_approval_request" and (item_id := text_in(item, "id")):
            self._requests.setdefault(item_id, []).append((item, self._question))
        elif kind == "mcp_approval_response":
            if request_id in self.answered:
                raise UsageError(f"the request has two answers to the approval '{request_id}'")
            self._answers[request_id] = self.answered[request_id] = item
        elif kind == "mcp_call" and request_id:
            self._run_ids.add(request_id)
        if kind in _OF_MODEL or kind.endswith("_call") or item.get("role") == "assistant":
            self.answered.clear()

    def _asked_for(self, request_id: str) -> RememberedCall:
        run, what = self._run_of(request_id), f"mcp_approval_response answers '{request_id}', which"
        if request_id not in self._requests:
            raise UsageError(
                f"{what} is not in the conversation",
                hint="Send previous_response_id, or all items.",
            )
        if run is None:
            hint = "Leave the answer out, and the model may ask again."
            raise UsageError(f"{what} this server did not ask, or has forgotten", hint=hint)
        asked = run.tool.server, run.tool.name, run.request.arguments, run.question
        for item, question in self._requests[request_id]:
            server, name = text_in(item, "server_label"), text_in(item, "name")
            arguments = read_arguments(item.get("arguments"))
            if (server, name, arguments, hash(join_parts(question))) != asked:
                raise UsageError(f"{what} is not as the server asked it in this conversation")
        return run

    def _approved(self, run: RememberedCall) -> ToolCall:
        tool, arguments = run.tool, run.request.arguments
        assert isinstance(arguments, dict)  # of a call that the model has made
        name = self._name_of(tool.server, tool.name, tool.tool.identity)
        if not name:
            raise UsageError(
                f"the approved call of '{tool.name}' on '{tool.server}' is of a tool that is not "
                "offered",
                hint="Send the same tools as before.",
            )
        return ToolCall(len(self.approved), run.request.id, name, arguments)

    def _name_of(self, server: str, name: str, identity: str | None = None) -> str:
        return self._hosted.name_of(server, name, identity) if self._hosted else ""

    def steps(self, item: RawItem) -> list[Step] | None:
        """Return the calls and results of an item; None if it is unreadable."""
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

    def _asked(self, item: RawItem, run: RememberedCall | None) -> list[Step]:
        call, item_id = self._call(item, run), text_in(item, "id")
        if item_id in self.approved:
            return [call, (call.id, "")]
        if item_id in self._run_ids:
            return [call]
        answer = self._answers.get(item_id, {})
        denied = f"Error: the user denied this call. {text_in(answer, 'reason')}".strip()
        return [call, (call.id, denied if answer.get("approve") is False else _NOT_APPROVED)]

    def _called(self, item: RawItem, run: RememberedCall | None) -> list[Step]:
        output = item.get("output")
        result = read_output(output) if output is not None else run and run.text
        result = _error_in(item) if result is None else result
        request_id = text_in(item, "approval_request_id")
        if request_id in self._requests:
            request, _ = self._requests[request_id][0]
            return [(self._call(request, self._run_of(request_id)).id, result)]
        call = self._call(item, run)
        return [call, (call.id, result)]

    def _call(self, item: RawItem, run: RememberedCall | None) -> ToolRequest:
        """Return the call of an item that names an MCP server; it is the client's if it differs."""
        arguments = read_arguments(item.get("arguments"))
        if run and run.request.arguments == arguments:
            return run.request
        own = text_in(item, "name")
        name = self._name_of(text_in(item, "server_label"), own) or own or "mcp"
        return ToolRequest(name, arguments, text_in(item, "id"))


def text_in(item: RawItem, name: str) -> str:
    value = item.get(name)
    return value if isinstance(value, str) else ""


def _computed(item: RawItem, run: RememberedCall | None) -> list[Step] | None:
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
