"""Input items of `/v1/responses` -> messages; items that only OpenAI runs keep their text.

Source: OpenAI's API reference (input items), requests of Codex and the Copilot command line.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from gptoss_local.base.errors import UsageError
from gptoss_local.harmony import Message, ToolRequest
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
from gptoss_local.server.dialects.openai.parts import new_id
from gptoss_local.server.dialects.openai.responses_hosted_items import KINDS, HostedHistory, Step
from gptoss_local.server.dialects.openai.responses_tools import SEARCH, ClientTools

_KINDS = frozenset(
    (
        *("message", "reasoning", "item_reference", "additional_tools", "configuration_update"),
        *("function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"),
        *("tool_search_call", "tool_search_output"),
    )
)
_SHELLS = ("shell_call", "local_shell_call")  # whose arguments are in `action`
_OF_ITEMS = frozenset(
    ("type", "id", "call_id", "status", "caller", "output")
)  # the rest is arguments


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

    @property
    def is_reference(self) -> bool:
        return self.kind == "item_reference"

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
    items: list[InputItem], toolbox: ClientTools, hosted: HostedHistory | None = None
) -> list[Message]:
    """Make messages of items, with `hosted` calls. UsageError: nonsense, or new non-text."""
    newest = last_of_user("tool" if item.kind.endswith("_output") else item.role for item in items)
    turns, hosted = _Turns(), hosted or HostedHistory()
    for i, item in enumerate(items):
        name = toolbox.name_of(item.namespace, item.name)
        match item.kind:
            case "message":
                turns.message(item, is_new=i >= newest)
            case "reasoning":
                turns.reasoning(_thought(item))
            case "function_call":
                turns.call(ToolRequest(name, read_arguments(item.arguments), item.call_id))
            case "custom_tool_call":
                turns.call(ToolRequest(name, {"input": item.input}, item.call_id))
            case "tool_search_call":
                turns.call(ToolRequest(SEARCH, read_arguments(item.arguments), item.call_id))
            case "function_call_output" | "custom_tool_call_output":
                turns.result(item.call_id, read_output(item.output), item.name and name)
            case "tool_search_output":
                names = ", ".join(tool.name for tool in ClientTools((), item.tools).tools)
                turns.result(item.call_id, f"Tools that can be called now: {names or 'none'}")
            case "item_reference" | "additional_tools" | "configuration_update":
                pass
            case "":
                raise UsageError("an item of input has neither a type nor a role")
            case "compaction_trigger":
                raise UsageError(
                    "compaction is not supported, which an item of type compaction_trigger asks for"
                )
            case "mcp_approval_response":
                raise UsageError(
                    "calls run without approval, so mcp_approval_response answers none"
                )
            case kind:
                steps = hosted.steps(item.raw) if kind in KINDS else None
                if steps is None:
                    turns.unknown(kind, item.raw)
                else:
                    turns.ran(steps)
    return turns.finish()


class _Turns:
    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._reasoning = ""
        self._content = ""
        self._is_preamble = False
        self._calls: list[ToolRequest] = []

    def message(self, item: InputItem, *, is_new: bool) -> None:
        role = item.role.lower()
        if role == "assistant":
            self.say(join_parts(item.content), is_preamble=item.phase == "commentary")
            return
        text = join_parts(item.content, is_new=is_new)
        match role:
            case "user":
                self._add(Message(role="user", content=text))
            case "system" | "developer":
                self._add(Message(role="system", content=text))
            case _:
                self._add(message_of(item.role, text))

    def say(self, text: str, *, is_preamble: bool) -> None:
        if self._content or self._calls:
            self._close()
        self._content, self._is_preamble = text, is_preamble

    def reasoning(self, text: str) -> None:
        if self._reasoning or self._content or self._calls:
            self._close()
        self._reasoning = text

    def call(self, call: ToolRequest) -> None:
        self._calls.append(call)

    def result(self, call_id: str, text: str, name: str = "") -> None:
        self._add(Message(role="tool", content=text, tool_call_id=call_id, tool_name=name))

    def ran(self, steps: Iterable[Step]) -> None:
        for step in steps:
            if isinstance(step, ToolRequest):
                self.call(step)
            else:
                self.result(*step)

    def unknown(self, kind: str, raw: dict[str, Any]) -> None:
        """Keep the readable part of an item: a call, its result, or a note that it was there."""
        call_id = raw.get("call_id", raw.get("id") if kind.endswith("_output") else None)
        call_id = call_id if isinstance(call_id, str) else ""
        output = raw.get("output")
        if kind.endswith("_output"):
            self.result(call_id, read_output(output))
        elif kind.endswith("_call") and (call_id or isinstance(output, str)):
            name = raw.get("name")
            action = raw.get("action")
            fields = action if isinstance(action, dict) and kind in _SHELLS else raw
            arguments = {
                k: v for k, v in fields.items() if k not in _OF_ITEMS and v not in (None, {})
            }
            given = read_arguments(raw["arguments"]) if "arguments" in raw else arguments
            called = name if isinstance(name, str) else kind.removesuffix("_call")
            self.call(ToolRequest(called, given, call_id))
            if isinstance(output, str):
                self.result(call_id, output)
        elif kind.endswith("_call"):
            self.say(left_out(kind), is_preamble=True)
        else:
            self._add(Message(role="user", content=left_out(kind)))

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
                    reasoning=self._reasoning,
                    content=self._content,
                    tool_calls=tuple(self._calls),
                    is_preamble=self._is_preamble,
                )
            )
        self._reasoning, self._content, self._calls, self._is_preamble = "", "", [], False


def _thought(item: InputItem) -> str:
    """Return the text of a reasoning item, from wherever a client kept it."""
    for found in (item.content, item.summary):
        text = found if isinstance(found, str) else "\n".join(part.text for part in found)
        if text:
            return text
    return unseal(item.encrypted_content or "")
