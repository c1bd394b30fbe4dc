"""Request bodies of `/v1/chat/completions` and `/v1/completions`.

Source: OpenAI's API reference and Ollama's openai/openai.go. Fields we do not know are ignored, as
clients send many.
"""

from typing import Any

import msgspec

from gptoss_local.chat import ChatRequest, Message, Tool, ToolRequest
from gptoss_local.errors import UsageError
from gptoss_local.server.body import parse_object
from gptoss_local.server.bounds import TopCount
from gptoss_local.server.logprobs import openai_count
from gptoss_local.server.openai_parts import (
    Part,
    Reasoning,
    Sampling,
    custom_tool,
    join_parts,
    limit_tokens,
    offered,
    parse_effort,
    parse_format,
)


class FunctionCall(msgspec.Struct):
    name: str = ""
    arguments: str | dict[str, Any] = ""


class CustomCall(msgspec.Struct):
    name: str = ""
    input: str | dict[str, Any] = ""


class WireToolCall(msgspec.Struct):
    id: str = ""
    function: FunctionCall | None = None
    custom: CustomCall | None = None


class WireMessage(msgspec.Struct):
    role: str
    content: str | list[Part] = ""
    reasoning: Any = ""
    reasoning_content: Any = ""
    tool_calls: list[WireToolCall] = []
    tool_call_id: str = ""
    name: str = ""


class Function(msgspec.Struct):
    name: str = ""
    description: str = ""
    parameters: dict[str, Any] | None = None
    strict: bool = False


class Custom(msgspec.Struct):
    name: str = ""
    description: str = ""
    format: dict[str, Any] = {}


class WireTool(msgspec.Struct):
    """A tool; kinds other than `function` and `custom` have neither and are skipped."""

    type: str = "function"
    function: Function | None = None
    custom: Custom | None = None

    def to_tool(self) -> Tool | None:
        if f := self.function:
            return Tool(f.name, f.description, f.parameters, f.strict) if f.name else None
        if c := self.custom:
            return custom_tool(c.name, c.description, c.format) if c.name else None
        return None


class StreamOptions(msgspec.Struct):
    include_usage: bool = False


class _Common(Sampling, kw_only=True):
    model: str = ""
    stream: bool = False
    stream_options: StreamOptions = msgspec.field(default_factory=StreamOptions)
    stop: str | list[str] = ""
    reasoning: Reasoning = msgspec.field(default_factory=Reasoning)
    reasoning_effort: str = ""
    n: int = 1

    @property
    def stop_strings(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def check(self) -> None:
        if not self.model:
            raise UsageError("model is required")
        if self.n != 1:
            raise UsageError("n must be 1; send the request again for another answer")


class ChatCompletionBody(_Common, kw_only=True):
    messages: list[WireMessage] = msgspec.field(default_factory=list)
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    response_format: dict[str, Any] = msgspec.field(default_factory=dict)
    tools: list[WireTool] = msgspec.field(default_factory=list)
    tool_choice: str | dict[str, Any] = "auto"
    logprobs: bool = False
    top_logprobs: TopCount = 0

    @property
    def custom_names(self) -> frozenset[str]:
        """Names of tools that take free text."""
        return frozenset(tool.custom.name for tool in self.tools if tool.custom)

    def to_request(self) -> ChatRequest:
        """Raises UsageError for what gpt-oss or this version cannot do."""
        self.check()
        if not self.messages:
            raise UsageError("[] is too short - 'messages'")
        effort, reasoning = parse_effort(self.reasoning.effort or self.reasoning_effort)
        limits = (self.max_completion_tokens, self.max_tokens)
        json_schema = self.response_format.get("json_schema")
        schema = json_schema.get("schema") if isinstance(json_schema, dict) else None
        tools = [made for tool in self.tools if (made := tool.to_tool())]
        return ChatRequest(
            messages=tuple(map(_message, self.messages)),
            effort=effort,
            reasoning=reasoning,
            sampling=self.sampling,
            max_tokens=limit_tokens(next((n for n in limits if n is not None), None)),
            stop=self.stop_strings,
            format=parse_format(self.response_format, schema),
            n_logprobs=openai_count(
                *("top_logprobs", self.top_logprobs),
                is_on=self.logprobs,
                needs="'logprobs' is enabled",
            ),
            **offered(tools, self.tool_choice),
        )


class CompletionBody(_Common, kw_only=True):
    """A prompt that becomes a user's message, as gpt-oss only knows conversations.

    The answer has no place for reasoning, so there is none unless an effort is asked for.
    """

    prompt: str | list[str] = ""
    suffix: str = ""
    max_tokens: int | None = None
    logprobs: TopCount | bool = False

    def to_request(self) -> ChatRequest:
        """Raises UsageError for what gpt-oss or this version cannot do."""
        self.check()
        if self.suffix:
            raise UsageError(f"{self.model} does not support insert")
        if isinstance(self.prompt, list) and len(self.prompt) != 1:
            raise UsageError("prompt must be one string; send a request for each prompt")
        prompt = self.prompt if isinstance(self.prompt, str) else self.prompt[0]
        effort, reasoning = parse_effort(self.reasoning.effort or self.reasoning_effort or "none")
        return ChatRequest(
            messages=(Message(role="user", content=prompt),),
            has_next_turn=False,
            effort=effort,
            reasoning=reasoning,
            sampling=self.sampling,
            max_tokens=limit_tokens(self.max_tokens),
            stop=self.stop_strings,
            n_logprobs=openai_count(
                *("logprobs", int(self.logprobs)), is_on=self.logprobs is not False, needs=""
            ),
        )


def _message(wire: WireMessage) -> Message:
    role = wire.role.lower()
    content = join_parts(wire.content, is_result=role in ("tool", "function"))
    match role:
        case "system" | "developer":
            return Message(role="system", content=content)
        case "user":
            return Message(role="user", content=content)
        case "assistant":
            texts = (wire.reasoning, wire.reasoning_content)
            return Message(
                role="assistant",
                content=content,
                reasoning=next((t for t in texts if t and isinstance(t, str)), ""),
                tool_calls=tuple(map(_tool_request, wire.tool_calls)),
            )
        case "tool" | "function":
            return Message(
                role="tool",
                content=content,
                tool_name=wire.name,
                tool_call_id=wire.tool_call_id,
            )
        case _:
            raise UsageError(f"unknown role '{wire.role}'")


def _tool_request(call: WireToolCall) -> ToolRequest:
    if call.function is None:
        custom = call.custom or CustomCall()
        return ToolRequest(custom.name, {"input": custom.input}, call.id)
    arguments = call.function.arguments
    if isinstance(arguments, str):
        arguments = parse_object(arguments, "tool call arguments")
    return ToolRequest(call.function.name, arguments, call.id)
