"""Request bodies of `/v1/messages` and its `count_tokens`. Source: Anthropic's API reference."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Literal

import msgspec

from gptoss_local.base.errors import ThreadNotFoundError, ThreadUnsupportedError, UsageError
from gptoss_local.base.types import Effort
from gptoss_local.harmony import GAP, ChatRequest, Message, Tool, ToolRequest
from gptoss_local.server.body import convert
from gptoss_local.server.dialects.history import (
    ContentPart,
    join_parts,
    last_of_user,
    message_of,
    read_arguments,
    read_output,
    unseal,
)
from gptoss_local.server.dialects.openai.parts import parse_effort
from gptoss_local.server.dialects.options import Sampling, ThinkBudget, first_limit
from gptoss_local.server.dialects.sent_format import read_format
from gptoss_local.server.dialects.sent_tools import (
    SentTool,
    check_names,
    name_in,
    read_tools,
    select_tools,
)

_ERROR = "[the tool reports an error]\n"


class AnthropicMessage(msgspec.Struct):
    role: str
    content: str | list[ContentPart] = ""

    @property
    def kind(self) -> str:
        """Return the role, or `tool` for a message with results of tools."""
        return "tool" if any(b.type == "tool_result" for b in self.blocks) else self.role

    @property
    def blocks(self) -> list[ContentPart]:
        return [ContentPart(text=self.content)] if isinstance(self.content, str) else self.content


def to_messages(wire: AnthropicMessage, *, is_new: bool) -> Iterator[Message]:
    """Make messages of one, results of tools first. Raises UsageError for a new non-text block."""
    blocks = wire.blocks
    match wire.role.lower():
        case "assistant":
            yield from _assistant(blocks)
        case "system" | "developer":
            said = [b for b in blocks if b.type not in ("tool_addition", "tool_removal")]
            if said or not blocks:
                yield message_of("system", join_parts(said, is_new=is_new))
        case role:
            results = [_result(b) for b in blocks if b.type == "tool_result"]
            yield from results
            said = [b for b in blocks if b.type != "tool_result"]
            if said or not results:
                text = join_parts(said, is_new=is_new)
                yield message_of(role, text)


def _assistant(blocks: Iterable[ContentPart]) -> Iterator[Message]:
    has_said = False
    for kind, group in itertools.groupby(blocks, _kind):
        if kind == "said":
            text = join_parts(list(group), gap="")
            if text := text.removeprefix(GAP) if has_said else text:
                yield Message(role="assistant", content=text)
            has_said = True
            continue
        for block in group:
            match kind:
                case "thinking" if thought := block.thinking or unseal(block.signature):
                    yield Message(role="assistant", reasoning=thought)
                case "call":
                    call = ToolRequest(block.name, read_arguments(block.input), block.id)
                    yield Message(role="assistant", tool_calls=(call,))
                case "result":
                    yield _result(block)


def _kind(block: ContentPart) -> str:
    if block.type.endswith("tool_use"):
        return "call"
    if block.type.endswith("tool_result"):
        return "result"
    return "thinking" if block.type in ("thinking", "redacted_thinking") else "said"


def _result(block: ContentPart) -> Message:
    content = read_output(block.content)
    content = _ERROR + content if block.is_error else content
    return Message(role="tool", content=content, tool_call_id=block.tool_use_id)


def _to_blocks(content: Any) -> list[ContentPart]:
    try:
        return convert(content, list[ContentPart]) if isinstance(content, list) else []
    except UsageError:
        return []


def offered_tools(
    declared: Iterable[SentTool], messages: Iterable[AnthropicMessage], chosen: str
) -> list[Tool]:
    """Return the tools to offer, as changed in `messages`; one may be `chosen`.

    Deferred tools count once found, or where Anthropic's own search would find them.
    """
    declared = list(declared)
    check_names(read_tools(declared))
    tools = {tool.label: tool for tool in declared}
    finds_none = any(tool.type.startswith("tool_search_tool_") for tool in declared)
    is_there = {t.label: finds_none or not t.defer_loading or t.label == chosen for t in declared}
    for block in _all_blocks(messages):
        match block.tool:
            case {"type": "tool_definition", "definition": dict(definition)}:
                tool = convert(definition, SentTool, "tool.definition.")
                name = tool.label
                tools[name] = tool
            case {"name": str(name)}:
                pass
            case _:
                name = block.tool_name
        if block.type in ("tool_reference", "tool_addition", "tool_removal"):
            is_there[name] = block.type != "tool_removal"
    return read_tools(tool for tool in tools.values() if is_there.get(tool.label))


def _all_blocks(messages: Iterable[AnthropicMessage]) -> Iterator[ContentPart]:
    for block in (block for message in messages for block in message.blocks):
        yield block
        if block.type.endswith("tool_result"):
            content = block.content
            if isinstance(content, dict):  # of Anthropic's own search
                content = content.get("tool_references")
            yield from _to_blocks(content)


class ThinkingConfig(msgspec.Struct):
    type: str = "adaptive"
    display: Literal["summarized", "omitted"] = "summarized"
    budget_tokens: ThinkBudget | None = None


class OutputConfig(msgspec.Struct):
    effort: str = ""
    format: str | dict[str, Any] = ""


class _Parallel(msgspec.Struct):
    disable_parallel_tool_use: bool = False


class MessagesBody(Sampling, kw_only=True):
    REQUIRED: ClassVar[tuple[str, ...]] = ("model", "messages")
    FORMAT: ClassVar[tuple[str, ...]] = ("output_config", "format")

    model: str = ""
    messages: list[AnthropicMessage] = msgspec.field(default_factory=list)
    max_tokens: int = 0
    system: str | list[ContentPart] = ""
    stop_sequences: list[str] = msgspec.field(default_factory=list)
    tools: list[SentTool] = msgspec.field(default_factory=list)
    tool_choice: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "auto"})
    thinking: ThinkingConfig = msgspec.field(default_factory=ThinkingConfig)
    output_config: OutputConfig = msgspec.field(default_factory=OutputConfig)
    stream: bool = False
    thread: dict[str, Any] | None = None

    def check_answerable(self) -> None:
        if self.max_tokens <= 0:
            raise UsageError("max_tokens is required and must be positive")

    def to_request(self) -> ChatRequest:
        self._check()
        newest = last_of_user(message.kind for message in self.messages)
        messages = [
            message
            for i, wire in enumerate(self.messages)
            for message in to_messages(wire, is_new=i >= newest)
        ]
        if text := join_parts(self.system):
            messages.insert(0, Message(role="system", content=text))
        effort, reasoning = self._effort()
        tools = offered_tools(self.tools, self.messages, name_in(self.tool_choice))
        one_call = convert(self.tool_choice, _Parallel, "tool_choice.").disable_parallel_tool_use
        return ChatRequest(
            streams_calls=self.stream,
            reports_prefill=self.stream,
            messages=tuple(messages),
            effort=effort,
            reasoning=reasoning,
            sampling=self.sampling(),
            max_tokens=first_limit(self.max_tokens),
            think_budget=first_limit(self.thinking.budget_tokens, self.think_budget),
            ends_repetition=self.repeat_guard,
            stop=tuple(self.stop_sequences),
            format=read_format(self.output_config.format or ""),
            **select_tools(tools, self.tool_choice, one_call=one_call),
        )

    def _check(self) -> None:
        match self.thread:
            case {"type": "continue", "previous_message_id": known}:
                raise ThreadNotFoundError(f"there is no thread with the message '{known}'")
            case dict():
                raise ThreadUnsupportedError("threads are not supported")
        if not self.messages:
            raise UsageError("messages is required")

    def _effort(self) -> tuple[Effort, bool]:
        effort, reasoning = parse_effort(self.output_config.effort)
        match self.thinking.type:
            case "disabled":
                return "low", False
            case "enabled" | "adaptive" | "between_tools":
                return effort, reasoning
            case other:
                raise UsageError(f"unknown thinking type '{other}'")
