"""Request bodies of `/v1/responses`. Source: OpenAI's API reference (Responses)."""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from gptoss_local.base.errors import UsageError
from gptoss_local.harmony import ChatRequest, Message, ToolRequest
from gptoss_local.server.body import convert
from gptoss_local.server.dialects.history import (
    ContentPart,
    join_parts,
    last_of_user,
    left_out,
    message_of,
    read_arguments,
    read_output,
    unseal,
)
from gptoss_local.server.dialects.openai.parts import (
    Reasoning,
    SamplingFields,
    new_id,
    openai_count,
)
from gptoss_local.server.dialects.openai.responses_memory import RememberedCall, ResponseStore
from gptoss_local.server.dialects.openai.responses_tools import SEARCH, ClientTools, HostedTools
from gptoss_local.server.dialects.options import TopCount
from gptoss_local.server.dialects.sent_format import read_format
from gptoss_local.server.dialects.sent_tools import SentTool, select_tools

_KINDS = frozenset(
    (
        *("message", "reasoning", "item_reference", "additional_tools", "configuration_update"),
        *("function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"),
        *("tool_search_call", "tool_search_output"),
    )
)
_REFUSED = {
    "compaction_trigger": "compaction is not supported, which an item of type compaction_trigger "
    "asks for",
    "mcp_approval_response": "calls run without approval, so mcp_approval_response answers none",
}
_SHELLS = ("shell_call", "local_shell_call")  # whose arguments are in `action`
_OF_ITEMS = frozenset(
    ("type", "id", "call_id", "status", "caller", "output")
)  # the rest is arguments

RawItem = Mapping[str, Any]


class InputItem(msgspec.Struct, omit_defaults=True):
    """Any input item; which fields count depends on `type`. One of another kind is `raw`."""

    id: str = ""
    type: str = ""
    role: str = ""
    content: str | list[ContentPart] = ""
    phase: str = ""
    call_id: str = ""
    name: str = ""
    namespace: str = ""
    arguments: Any = None
    input: Any = None
    output: Any = None
    tools: list[dict[str, Any]] = msgspec.field(default_factory=list)
    summary: str | list[ContentPart] = ""
    encrypted_content: str | None = None
    execution: str = ""
    reasoning: Any = None
    text: Any = None
    raw: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Return its type, which messages and references need not have."""
        return self.type or ("message" if self.role else "item_reference" if self.id else "")

    def to_wire(self) -> dict[str, Any]:
        """Return the item as it is listed: with an id, and text in parts."""
        if self.raw:
            known = self.raw.get("id")
            return self.raw | {"id": known if isinstance(known, str) else new_id("item_")}
        wire: dict[str, Any] = msgspec.to_builtins(self)
        wire |= {"type": self.kind, "id": self.id or new_id("item_")}
        match self.kind:
            case "message":
                wire |= {"content": self._content(), "status": "completed"}
            case "reasoning":
                wire.setdefault("summary", [])
            case "function_call" | "function_call_output":
                wire.setdefault("status", "completed")
        return wire

    def _content(self) -> list[dict[str, Any]]:
        parts = [ContentPart(text=self.content)] if isinstance(self.content, str) else self.content
        texts = [join_parts([part]) for part in parts]
        if self.role == "assistant":
            return [{"type": "output_text", "text": text, "annotations": []} for text in texts]
        return [{"type": "input_text", "text": text} for text in texts]


def with_unknown_aside(body: dict[str, Any]) -> dict[str, Any]:
    """Return a body with items of unknown kinds as `raw`: their fields may be of any type."""
    items = body.get("input")
    if not isinstance(items, list):
        return body
    return body | {"input": list(map(aside, items))}


def aside(item: Any) -> Any:
    """Return an item, in `raw` if its kind is unknown; a client's own `raw` is dropped."""
    if not isinstance(item, dict):
        return item
    kind = item.get("type")
    is_unknown = isinstance(kind, str) and kind and kind not in _KINDS
    return {"type": kind, "raw": item} if is_unknown else item | {"raw": {}}


def to_messages(
    items: list[InputItem],
    toolbox: ClientTools,
    run_of: Callable[[str], RememberedCall | None] = lambda _: None,
) -> list[Message]:
    """Make messages of items; `run_of` returns a call that the server ran by its item's id.

    Raises UsageError for nonsense, or a new part that is not text.
    """
    newest = last_of_user("tool" if item.kind.endswith("_output") else item.role for item in items)
    made = (
        message
        for i, item in enumerate(items)
        for message in _read(item, toolbox, run_of, is_new=i >= newest)
    )
    return [m for m in made if m.role != "assistant" or m.content or m.reasoning or m.tool_calls]


def _read(
    item: InputItem,
    toolbox: ClientTools,
    run_of: Callable[[str], RememberedCall | None],
    *,
    is_new: bool,
) -> Iterator[Message]:
    name = toolbox.name_of(item.namespace, item.name)
    match item.kind:
        case "message" if item.role.lower() == "assistant":
            is_preamble = item.phase == "commentary"
            text = join_parts(item.content, gap="")
            yield Message(role="assistant", content=text, is_preamble=is_preamble)
        case "message":
            yield message_of(item.role, join_parts(item.content, is_new=is_new), item.name)
        case "reasoning":
            yield Message(role="assistant", reasoning=_thought(item))
        case "function_call":
            yield _call(name, read_arguments(item.arguments), item.call_id)
        case "custom_tool_call":
            yield _call(name, {"input": item.input}, item.call_id)
        case "tool_search_call":
            yield _call(SEARCH, read_arguments(item.arguments), item.call_id)
        case "function_call_output" | "custom_tool_call_output":
            yield _result(item.call_id, read_output(item.output), item.name and name)
        case "tool_search_output":
            names = ", ".join(tool.name for tool in ClientTools((), item.tools).tools)
            yield _result(item.call_id, f"Tools that can be called now: {names or 'none'}")
        case "item_reference" | "additional_tools" | "configuration_update" | "mcp_list_tools":
            pass
        case "web_search_call" | "code_interpreter_call" | "mcp_call":
            yield from _ran(item.raw, run_of(text_in(item.raw, "id")), toolbox)
        case "":
            raise UsageError("an item of input has neither a type nor a role")
        case kind if kind in _REFUSED:
            raise UsageError(_REFUSED[kind])
        case kind:
            yield from _unknown(kind, item.raw)


def _call(name: str, arguments: dict[str, Any] | str, call_id: str) -> Message:
    return Message(role="assistant", tool_calls=(ToolRequest(name, arguments, call_id),))


def _result(call_id: str, text: str, name: str = "") -> Message:
    return Message(role="tool", content=text, tool_call_id=call_id, tool_name=name)


def _ran(raw: RawItem, run: RememberedCall | None, toolbox: ClientTools) -> Iterator[Message]:
    """Yield a call that the server ran, as the model made it if that is known, and its result."""
    output, missing, code = None, "", raw.get("code")
    if raw["type"] == "mcp_call":
        name = toolbox.name_on(text_in(raw, "server_label"), text_in(raw, "name"))
        call = ToolRequest(name, read_arguments(raw.get("arguments")), text_in(raw, "id"))
        output, missing = raw.get("output"), _error_in(raw)
    elif raw["type"] == "code_interpreter_call" and isinstance(code, str):
        call = ToolRequest("python", {"code": code}, text_in(raw, "id"))
        outputs, missing = raw.get("outputs"), left_out("output")
        if isinstance(outputs, list) and outputs:
            output = "\n".join(map(_log, outputs))
    elif run:
        call = run.request
    else:
        yield from _unknown(raw["type"], raw)
        return
    if run and run.request.arguments == call.arguments:
        call = run.request
    if output is None:
        output = run.text if run else missing
    yield Message(role="assistant", tool_calls=(call,))
    yield _result(call.id, read_output(output))


def _unknown(kind: str, raw: RawItem) -> Iterator[Message]:
    """Yield the readable part of an item: a call, its result, or a note that it was there."""
    call_id = text_in(raw, "call_id")
    output = raw.get("output")
    if kind.endswith("_output"):
        yield _result(call_id or text_in(raw, "id"), read_output(output))
    elif kind.endswith("_call") and (call_id or isinstance(output, str)):
        action = raw.get("action")
        fields = action if isinstance(action, dict) and kind in _SHELLS else raw
        arguments = {k: v for k, v in fields.items() if k not in _OF_ITEMS and v not in (None, {})}
        given = read_arguments(raw["arguments"]) if "arguments" in raw else arguments
        yield _call(text_in(raw, "name") or kind.removesuffix("_call"), given, call_id)
        if isinstance(output, str):
            yield _result(call_id, output)
    elif kind.endswith("_call"):
        yield Message(role="assistant", content=left_out(kind), is_preamble=True)
    else:
        content = raw.get("content")
        yield Message(role="user", content=read_output(content) if content else left_out(kind))


def _thought(item: InputItem) -> str:
    """Return the text of a reasoning item, from wherever a client kept it."""
    for found in (item.content, item.summary):
        text = found if isinstance(found, str) else "\n".join(part.text for part in found)
        if text:
            return text
    return unseal(item.encrypted_content or "")


def text_in(item: RawItem, name: str) -> str:
    value = item.get(name)
    return value if isinstance(value, str) else ""


def _log(output: Any) -> str:
    logs = output.get("logs") if isinstance(output, dict) else None
    return logs if isinstance(logs, str) else left_out("image")


def _error_in(item: RawItem) -> str:
    error = item.get("error")
    if isinstance(error, dict):
        error = error.get("content", error.get("message"))
    return f"Error: {read_output(error)}" if error else ""


_LOGPROBS = "message.output_text.logprobs"


class Text(msgspec.Struct):
    format: str | dict[str, Any] = ""


class ResponsesBody(SamplingFields, kw_only=True):
    REQUIRED: ClassVar[tuple[str, ...]] = ("model",)
    FORMAT: ClassVar[tuple[str, ...]] = ("text", "format")
    READ_LATER: ClassVar[dict[str, type[msgspec.Struct]]] = {"tools": SentTool}

    model: str = ""
    input: str | list[InputItem] = ""
    instructions: str = ""
    max_output_tokens: int | None = None
    text: Text = msgspec.field(default_factory=Text)
    tools: list[dict[str, Any]] = msgspec.field(default_factory=list)
    tool_choice: str | dict[str, Any] = "auto"
    stream: bool = False
    previous_response_id: str = ""
    store: bool = True
    parallel_tool_calls: bool = True
    truncation: Literal["auto", "disabled"] = "disabled"
    include: list[str] = msgspec.field(default_factory=list)
    max_tool_calls: Annotated[int, msgspec.Meta(ge=0)] | None = None
    top_logprobs: TopCount = 0
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)

    def items(self, remembered: ResponseStore, owner: str) -> list[InputItem]:
        own = self.input
        if isinstance(own, str):
            own = [InputItem(type="message", role="user", content=own)] if own else []
        earlier: list[dict[str, Any]] = []
        if self.previous_response_id:
            earlier = remembered.conversation(owner, self.previous_response_id)
        return convert(list(map(aside, earlier)), list[InputItem]) + [
            convert(aside(remembered.output_item(owner, item.id)), InputItem)
            if item.kind == "item_reference"
            else item
            for item in own
        ]

    def toolbox(self, items: list[InputItem], hosted: HostedTools | None = None) -> ClientTools:
        return ClientTools(self.tools, (tool for item in items for tool in item.tools), hosted)

    def to_request(
        self,
        items: list[InputItem],
        toolbox: ClientTools,
        run_of: Callable[[str], RememberedCall | None],
    ) -> ChatRequest:
        """Make a request of the whole conversation; `run_of` as for `to_messages`."""
        messages = to_messages(items, toolbox, run_of)
        if self.instructions:
            messages.insert(0, Message(role="system", content=self.instructions))
        if not messages:
            raise UsageError("input is required")
        effort, form = self._configuration(items)
        return ChatRequest(
            streams_calls=self.stream,
            messages=tuple(messages),
            **self.request_fields(effort, self.max_output_tokens),
            truncates=self.truncation == "auto",
            format=read_format(form or ""),
            n_logprobs=openai_count(
                *("top_logprobs", self.top_logprobs),
                is_on=_LOGPROBS in self.include,
                needs=f"'include' has '{_LOGPROBS}'",
            ),
            **select_tools(
                toolbox.tools,
                self.tool_choice,
                resolve=toolbox.resolve,
                one_call=not self.parallel_tool_calls,
            ),
        )

    def _configuration(self, items: list[InputItem]) -> tuple[str, str | dict[str, Any]]:
        """Return effort and format, from the last item that sets them or the request itself."""
        effort, form = self.reasoning.effort, self.text.format
        for item in items:
            if item.kind == "configuration_update":
                effort = convert(item.reasoning or {}, Reasoning, "reasoning.").effort or effort
                form = convert(item.text or {}, Text, "text.").format or form
        return effort, form
