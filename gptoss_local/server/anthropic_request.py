"""Request bodies of `/v1/messages` and its `count_tokens`.

Source: Anthropic's API reference (Messages) and what Claude Code sends. Blocks and fields we do not
know are ignored, as Ollama's anthropic/anthropic.go does.
"""

from typing import Any

import msgspec

from gptoss_local.chat import ChatRequest, Message, Tool, ToolRequest
from gptoss_local.errors import UsageError
from gptoss_local.server.body import convert
from gptoss_local.server.bounds import MAX_INT, Temperature
from gptoss_local.server.openai_parts import (
    left_out,
    limit_tokens,
    offered,
    parse_effort,
    parse_format,
)
from gptoss_local.types import Effort, SamplingParams


class Block(msgspec.Struct):
    """Any content block; which fields count depends on `type`."""

    type: str = "text"
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] = {}
    tool_use_id: str = ""
    content: Any = ""


class WireMessage(msgspec.Struct):
    role: str
    content: str | list[Block] = ""


class WireTool(msgspec.Struct):
    """A tool; Anthropic's own, which have a `type` and no schema, are skipped."""

    name: str = ""
    type: str = "custom"
    description: str = ""
    input_schema: dict[str, Any] | None = None
    strict: bool = False


class Thinking(msgspec.Struct):
    type: str = "adaptive"


class OutputConfig(msgspec.Struct):
    effort: str = ""
    format: dict[str, Any] = {}


class MessagesBody(msgspec.Struct, kw_only=True):
    model: str = ""
    messages: list[WireMessage] = []
    max_tokens: int = 0
    system: str | list[Block] = ""
    stop_sequences: list[str] = []
    temperature: Temperature = 1.0
    top_p: float = 1.0
    top_k: int = 0
    tools: list[WireTool] = []
    tool_choice: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "auto"})
    thinking: Thinking = msgspec.field(default_factory=Thinking)
    output_config: OutputConfig = msgspec.field(default_factory=OutputConfig)
    output_format: dict[str, Any] = {}
    stream: bool = False

    def check_max_tokens(self) -> None:
        if self.max_tokens <= 0:
            raise UsageError("max_tokens is required and must be positive")

    def to_request(self) -> ChatRequest:
        """Raises UsageError for what gpt-oss or this version cannot do."""
        if not self.model:
            raise UsageError("model is required")
        if not self.messages:
            raise UsageError("messages is required")
        messages = [message for wire in self.messages for message in _messages(wire)]
        if system := _text(self.system):
            messages.insert(0, Message(role="system", content=system))
        effort, reasoning = self._effort()
        tools = [
            Tool(tool.name, tool.description, tool.input_schema, tool.strict)
            for tool in self.tools
            if tool.name and tool.input_schema is not None
        ]
        form = self.output_config.format or self.output_format
        return ChatRequest(
            messages=tuple(messages),
            effort=effort,
            reasoning=reasoning,
            sampling=SamplingParams(
                temperature=self.temperature,
                top_p=self.top_p,
                top_k=max(0, min(self.top_k, MAX_INT)),
            ),
            max_tokens=limit_tokens(self.max_tokens),
            stop=tuple(self.stop_sequences),
            format=parse_format(form, form.get("schema")),
            **offered(tools, self.tool_choice),
        )

    def _effort(self) -> tuple[Effort, bool]:
        """Thinking can be switched off; otherwise `output_config.effort` says how much."""
        effort, reasoning = parse_effort(self.output_config.effort)
        match self.thinking.type:
            case "disabled":
                return "low", False
            case "enabled" | "adaptive":
                return effort, reasoning
            case other:
                raise UsageError(f"unknown thinking type '{other}'")


def _messages(wire: WireMessage) -> list[Message]:
    """One message of ours or several: results of tools come before the user's words."""
    blocks = [Block(text=wire.content)] if isinstance(wire.content, str) else wire.content
    match wire.role.lower():
        case "system" | "developer":
            return [Message(role="system", content=_text(blocks))]
        case "user":
            results = [_result(block) for block in blocks if block.type == "tool_result"]
            if text := _text(blocks):
                return [*results, Message(role="user", content=text)]
            return results or [Message(role="user")]
        case "assistant":
            calls = (b for b in blocks if b.type == "tool_use")
            thinking = [b.thinking for b in blocks if b.type == "thinking" and b.thinking]
            return [
                Message(
                    role="assistant",
                    content=_text(blocks),
                    reasoning="\n".join(thinking),
                    tool_calls=tuple(ToolRequest(b.name, b.input, b.id) for b in calls),
                )
            ]
        case _:
            raise UsageError(f"unknown role '{wire.role}'")


def _result(block: Block) -> Message:
    content = block.content
    if not isinstance(content, str):
        content = _text(convert(content, list[Block]), is_result=True)
    return Message(role="tool", content=content, tool_call_id=block.tool_use_id)


def _text(blocks: str | list[Block], *, is_result: bool = False) -> str:
    """The text of content; raises UsageError for what cannot be read, unless a tool returned it."""
    if isinstance(blocks, str):
        return blocks
    texts = []
    for block in blocks:
        if block.type == "text":
            texts.append(block.text)
        elif block.type in ("image", "document"):
            if not is_result:
                raise UsageError(
                    f"gpt-oss reads text only, and the request has a block of type '{block.type}'"
                )
            texts.append(left_out(block.type))
    return "".join(texts)
