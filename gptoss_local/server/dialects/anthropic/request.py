"""Request bodies of `/v1/messages` and its `count_tokens`. Source: Anthropic's API reference."""

from typing import Any

import msgspec

from gptoss_local.errors import ThreadNotFoundError, ThreadUnsupportedError, UsageError
from gptoss_local.harmony import ChatRequest, Message
from gptoss_local.server.dialects.anthropic.blocks import (
    AnthropicMessage,
    ContentBlock,
    offered_tools,
    read_blocks,
    to_messages,
)
from gptoss_local.server.dialects.bounds import (
    MAX_INT,
    Temperature,
    ThinkBudget,
    limit_tokens,
    think_budget,
)
from gptoss_local.server.dialects.history import last_of_user
from gptoss_local.server.dialects.openai.parts import parse_effort, parse_format
from gptoss_local.server.dialects.sent_tools import SentTool
from gptoss_local.server.dialects.tool_choice import name_in, select_tools
from gptoss_local.types import Effort, SamplingParams


class ThinkingConfig(msgspec.Struct):
    type: str = "adaptive"
    display: str = "summarized"
    budget_tokens: ThinkBudget | None = None


class OutputConfig(msgspec.Struct):
    effort: str = ""
    format: dict[str, Any] = {}


class MessagesBody(msgspec.Struct, kw_only=True):
    model: str = ""
    messages: list[AnthropicMessage] = []
    max_tokens: int = 0
    system: str | list[ContentBlock] = ""
    stop_sequences: list[str] = []
    temperature: Temperature = 1.0
    top_p: float = 1.0
    top_k: int = 0
    tools: list[SentTool] = []
    tool_choice: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "auto"})
    thinking: ThinkingConfig = msgspec.field(default_factory=ThinkingConfig)
    output_config: OutputConfig = msgspec.field(default_factory=OutputConfig)
    output_format: dict[str, Any] = {}
    think_budget: ThinkBudget | None = None
    repeat_guard: bool = True
    stream: bool = False
    thread: dict[str, Any] | None = None
    compaction: dict[str, Any] | None = None

    def check_answerable(self) -> None:
        """Raise UsageError for a field that an answer needs, and a count of tokens does not."""
        if self.compaction is not None:
            raise UsageError("compaction is not supported: ask for a summary as a message")
        if self.max_tokens <= 0:
            raise UsageError("max_tokens is required and must be positive")

    def to_request(self) -> ChatRequest:
        """Raises UsageError for demands that gpt-oss or this version cannot meet."""
        self._check()
        newest = last_of_user(message.kind for message in self.messages)
        messages = [
            message
            for i, wire in enumerate(self.messages)
            for message in to_messages(wire, is_new=i >= newest)
        ]
        system = [ContentBlock(text=self.system)] if isinstance(self.system, str) else self.system
        if text := read_blocks(system):
            messages.insert(0, Message(role="system", content=text))
        effort, reasoning = self._effort()
        tools = offered_tools(self.tools, self.messages, name_in(self.tool_choice))
        one_call = self.tool_choice.get("disable_parallel_tool_use") is True
        form = self.output_config.format or self.output_format
        return ChatRequest(
            streams_calls=self.stream,
            messages=tuple(messages),
            effort=effort,
            reasoning=reasoning,
            sampling=SamplingParams(
                temperature=self.temperature,
                top_p=self.top_p,
                top_k=max(0, min(self.top_k, MAX_INT)),
            ),
            max_tokens=limit_tokens(self.max_tokens),
            think_budget=think_budget(self.thinking.budget_tokens, self.think_budget),
            ends_repetition=self.repeat_guard,
            stop=tuple(self.stop_sequences),
            format=parse_format(form, form.get("schema")),
            **select_tools(tools, self.tool_choice, one_call=one_call),
        )

    def _check(self) -> None:
        if not self.model:
            raise UsageError("model is required")
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
