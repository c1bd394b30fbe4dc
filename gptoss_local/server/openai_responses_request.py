"""Request bodies of `/v1/responses`.

Source: OpenAI's API reference (Responses) and what Codex and the Copilot command line send. A
request brings the whole conversation, or says by ids what comes before it. Unknown items and fields
are ignored.
"""

from typing import Any

import msgspec

from gptoss_local.chat import ChatRequest, Message, Tool, ToolRequest
from gptoss_local.errors import UsageError
from gptoss_local.server.body import convert, parse_object
from gptoss_local.server.bounds import TopCount
from gptoss_local.server.logprobs import openai_count
from gptoss_local.server.openai_parts import (
    Part,
    Reasoning,
    Sampling,
    custom_tool,
    join_parts,
    limit_tokens,
    new_id,
    offered,
    parse_effort,
    parse_format,
)
from gptoss_local.server.response_store import ResponseStore

_LOGPROBS = "message.output_text.logprobs"
_ITEMS = frozenset(
    (
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "item_reference",
    )
)
_TOOLS = frozenset(("function", "custom"))
SEAL = "gptoss:"  # begins the encrypted_content we hand out, which is readable text


class Item(msgspec.Struct, omit_defaults=True):
    """Any input item; which fields count depends on `type`."""

    id: str = ""
    type: str = ""
    role: str = ""
    content: str | list[Part] = ""
    call_id: str = ""
    name: str = ""
    arguments: str | dict[str, Any] = ""
    input: str | dict[str, Any] = ""
    output: str | list[Part] = ""
    summary: str | list[Part] = ""
    encrypted_content: str | None = None

    @property
    def kind(self) -> str:
        """Its type, which messages and references need not have."""
        return self.type or ("message" if self.role else "item_reference" if self.id else "")

    @property
    def is_reference(self) -> bool:
        """Whether it stands for an item of an earlier answer."""
        return self.kind == "item_reference"

    def to_wire(self) -> dict[str, Any]:
        """The item as it is listed: with an id, and text in parts."""
        wire: dict[str, Any] = msgspec.to_builtins(self)
        wire |= {"type": self.kind, "id": self.id or new_id("item_")}
        if self.kind == "message":
            kind = "output_text" if self.role == "assistant" else "input_text"
            parts = [Part(text=self.content)] if isinstance(self.content, str) else self.content
            wire["content"] = [{"type": kind, "text": join_parts([part])} for part in parts]
            wire["status"] = "completed"
        elif self.kind == "reasoning":
            wire.setdefault("summary", [])
        return wire


class WireTool(msgspec.Struct):
    """A tool; kinds other than `function` and `custom`, and nameless ones, are skipped."""

    type: str = "function"
    name: str = ""
    description: str = ""
    parameters: dict[str, Any] | None = None
    strict: bool = False
    format: dict[str, Any] = msgspec.field(default_factory=dict)

    def to_tool(self) -> Tool:
        if self.type == "custom":
            return custom_tool(self.name, self.description, self.format)
        return Tool(self.name, self.description, self.parameters, self.strict)


class Text(msgspec.Struct):
    format: dict[str, Any] = msgspec.field(default_factory=dict)
    verbosity: str = "medium"


class ResponsesBody(Sampling, kw_only=True):
    model: str = ""
    input: str | list[Item] = ""
    instructions: str = ""
    max_output_tokens: int | None = None
    reasoning: Reasoning = msgspec.field(default_factory=Reasoning)
    text: Text = msgspec.field(default_factory=Text)
    tools: list[dict[str, Any]] = msgspec.field(default_factory=list)
    tool_choice: str | dict[str, Any] = "auto"
    stream: bool = False
    background: bool = False
    previous_response_id: str = ""
    store: bool = True
    conversation: str | dict[str, Any] = ""
    parallel_tool_calls: bool = True
    truncation: str = "disabled"
    include: list[str] = msgspec.field(default_factory=list)
    top_logprobs: TopCount = 0
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def custom_names(self) -> frozenset[str]:
        """Names of tools that take free text."""
        return frozenset(str(t.get("name")) for t in self.tools if t.get("type") == "custom")

    def items(self, remembered: ResponseStore) -> list[Item]:
        """The conversation: what comes before the request, and what it brings.

        Raises:
            ResponseNotFoundError: something that it refers to is not remembered.
            UsageError: an item has a field of the wrong type.
        """
        own = self.input
        if isinstance(own, str):
            own = [Item(type="message", role="user", content=own)] if own else []
        earlier: list[dict[str, Any]] = []
        if self.previous_response_id:
            earlier = remembered.conversation(self.previous_response_id)
        return convert(earlier, list[Item]) + [
            convert(remembered.output_item(item.id), Item) if item.is_reference else item
            for item in own
        ]

    def to_request(self, items: list[Item]) -> ChatRequest:
        """Make a request of the whole conversation.

        Raises UsageError for what gpt-oss or this version cannot do.
        """
        self._check()
        messages = _messages(items)
        if self.instructions:
            messages.insert(0, Message(role="system", content=self.instructions))
        if not messages:
            raise UsageError("input is required")
        effort, reasoning = parse_effort(self.reasoning.effort)
        known = (tool for tool in self.tools if tool.get("type", "function") in _TOOLS)
        tools = [w.to_tool() for w in (convert(tool, WireTool) for tool in known) if w.name]
        return ChatRequest(
            messages=tuple(messages),
            effort=effort,
            reasoning=reasoning,
            sampling=self.sampling,
            max_tokens=limit_tokens(self.max_output_tokens),
            truncates=self.truncation == "auto",
            format=parse_format(self.text.format, self.text.format.get("schema")),
            n_logprobs=openai_count(
                *("top_logprobs", self.top_logprobs),
                is_on=_LOGPROBS in self.include,
                needs=f"'include' has '{_LOGPROBS}'",
            ),
            **offered(tools, self.tool_choice),
        )

    def _check(self) -> None:
        if not self.model:
            raise UsageError("model is required")
        if self.conversation:
            raise UsageError(
                "conversations are not stored, so conversation names nothing",
                hint="Send previous_response_id, or the whole conversation as input.",
            )
        if self.background:
            raise UsageError("background answers are not supported")


def without_unknown(body: dict[str, Any]) -> dict[str, Any]:
    """A body of which unknown items have lost their fields: those may be of any type."""
    items = body.get("input")
    if not isinstance(items, list):
        return body

    def is_unknown(item: Any) -> bool:
        kind = item.get("type") if isinstance(item, dict) else None
        return isinstance(kind, str) and bool(kind) and kind not in _ITEMS

    kept = [{"type": item["type"]} if is_unknown(item) else item for item in items]
    return body | {"input": kept}


def _messages(items: list[Item]) -> list[Message]:
    """Items as messages: what the assistant thought, said and called in a row becomes one."""
    turns = _Turns()
    for item in items:
        match item.kind:
            case "message":
                turns.message(item)
            case "reasoning":
                turns.reasoning(_thought(item))
            case "function_call":
                turns.call(ToolRequest(item.name, _arguments(item), item.call_id))
            case "custom_tool_call":
                turns.call(ToolRequest(item.name, {"input": item.input}, item.call_id))
            case "function_call_output" | "custom_tool_call_output":
                turns.result(item)
            case "":
                raise UsageError("an item of input has neither a type nor a role")
    return turns.finish()


class _Turns:
    """Messages under construction; `_open` holds the assistant's pieces since its last message."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._reasoning: list[str] = []
        self._content: list[str] = []
        self._calls: list[ToolRequest] = []

    def message(self, item: Item) -> None:
        text = join_parts(item.content)
        match item.role.lower():
            case "assistant":
                if self._calls or self._content:
                    self._close()
                self._content.append(text)
            case "user":
                self._add(Message(role="user", content=text))
            case "system" | "developer":
                self._add(Message(role="system", content=text))
            case _:
                raise UsageError(f"unknown role '{item.role}'")

    def reasoning(self, text: str) -> None:
        if self._content or self._calls:
            self._close()
        self._reasoning.append(text)

    def call(self, call: ToolRequest) -> None:
        self._calls.append(call)

    def result(self, item: Item) -> None:
        output = join_parts(item.output, is_result=True)
        self._add(Message(role="tool", content=output, tool_call_id=item.call_id))

    def finish(self) -> list[Message]:
        self._close()
        return self._messages

    def _add(self, message: Message) -> None:
        self._close()
        self._messages.append(message)

    def _close(self) -> None:
        if self._reasoning or self._content or self._calls:
            self._messages.append(
                Message(
                    role="assistant",
                    reasoning="\n".join(filter(None, self._reasoning)),
                    content="".join(self._content),
                    tool_calls=tuple(self._calls),
                )
            )
        self._reasoning, self._content, self._calls = [], [], []


def _thought(item: Item) -> str:
    """Text of a reasoning item, from wherever a client kept it."""
    for found in (item.content, item.summary):
        text = found if isinstance(found, str) else "\n".join(part.text for part in found)
        if text:
            return text
    sealed = item.encrypted_content or ""
    return sealed.removeprefix(SEAL) if sealed.startswith(SEAL) else ""


def _arguments(item: Item) -> dict[str, Any]:
    if isinstance(item.arguments, dict):
        return item.arguments
    return parse_object(item.arguments, "tool call arguments")
