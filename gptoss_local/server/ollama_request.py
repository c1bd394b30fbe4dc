"""Request bodies of Ollama's API and their translation into chat requests.

Source: Ollama's api/types.go (ChatRequest, GenerateRequest). The wire's names stay in here.
"""

from typing import Any

import msgspec

from gptoss_local.chat import ChatRequest, JsonFormat, Message, RawRequest, Tool, ToolRequest
from gptoss_local.errors import UsageError
from gptoss_local.quantities import parse_keep_alive
from gptoss_local.server.body import parse_object
from gptoss_local.server.bounds import MAX_TOP_LOGPROBS, TokenId, TopCount
from gptoss_local.server.ollama_options import Options, parse_think
from gptoss_local.server.openai_parts import Part, join_parts, left_out, offered
from gptoss_local.types import Effort


class FunctionCall(msgspec.Struct):
    name: str
    arguments: dict[str, Any] | str = {}


class WireToolCall(msgspec.Struct):
    function: FunctionCall
    id: str = ""


class WireMessage(msgspec.Struct):
    role: str
    content: str | list[Part] = ""
    thinking: str = ""
    reasoning: str = ""
    reasoning_content: str = ""
    images: list[str] = []
    tool_calls: list[WireToolCall] = []
    tool_name: str = ""
    tool_call_id: str = ""


class Function(msgspec.Struct):
    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None
    strict: bool = False


class WireTool(msgspec.Struct):
    """A tool; kinds other than `function` have no function and are skipped."""

    type: str = "function"
    function: Function | None = None


class _Common(msgspec.Struct, kw_only=True):
    model: str = ""
    stream: bool = True
    options: Options = msgspec.field(default_factory=Options)
    think: bool | str | int | float | dict[str, Any] | list[Any] | None = None
    keep_alive: float | str | bool | None = None
    format: str | dict[str, Any] = ""
    logprobs: bool = False
    top_logprobs: TopCount = 0

    @property
    def keep_alive_s(self) -> float | None:
        return None if self.keep_alive is None else parse_keep_alive(self.keep_alive)

    @property
    def reasoning(self) -> tuple[Effort, bool]:
        """Effort, and whether to reason at all."""
        return parse_think(self.think)

    @property
    def n_logprobs(self) -> int | None:
        """Alternatives of every token; None: no log-probabilities."""
        if not 0 <= self.top_logprobs <= MAX_TOP_LOGPROBS:
            raise UsageError(f"top_logprobs must be between 0 and {MAX_TOP_LOGPROBS}")
        if self.top_logprobs and not self.logprobs:
            raise UsageError("top_logprobs requires logprobs to be true")
        return self.top_logprobs if self.logprobs else None

    @property
    def answer_format(self) -> JsonFormat | None:
        """What `format` asks for; "json" is any object, as which clients read it."""
        if isinstance(self.format, dict):
            return JsonFormat(self.format)
        if self.format not in ("", "json"):
            expected = 'expected "json" or a valid JSON Schema object'
            raise UsageError(f'invalid format: "{self.format}"; {expected}')
        return JsonFormat() if self.format else None

    def refuse_unsupported(self, images: list[str]) -> None:
        if images:
            raise UsageError("gpt-oss reads text only, and the request has images")


class ChatBody(_Common, kw_only=True):
    messages: list[WireMessage] = []
    tools: list[WireTool] = []
    tool_choice: str | dict[str, Any] = "auto"
    truncate: bool | None = None
    return_progress: bool = False
    return_tokens: bool = False

    def to_request(self) -> ChatRequest:
        """Raises UsageError for what gpt-oss or this version cannot do."""
        others = (m for m in self.messages if m.role.lower() != "tool")
        self.refuse_unsupported([image for m in others for image in m.images])
        effort, reasoning = self.reasoning
        functions = (tool.function for tool in self.tools if tool.function is not None)
        tools = [Tool(f.name, f.description, f.parameters, f.strict) for f in functions]
        return ChatRequest(
            messages=tuple(map(to_message, self.messages)),
            effort=effort,
            reasoning=reasoning,
            format=self.answer_format,
            n_logprobs=self.n_logprobs,
            truncates=self.truncate is True,
            may_grow=self.truncate is None,
            reports_prefill=self.return_progress and self.stream,
            **offered(tools, self.tool_choice),
            **self.options.request_fields(),
        )


class GenerateBody(_Common, kw_only=True):
    prompt: str = ""
    suffix: str = ""
    system: str = ""
    template: str = ""
    context: list[TokenId] = []
    raw: bool = False
    images: list[str] = []

    def to_request(self) -> ChatRequest | RawRequest:
        """Raises UsageError for what gpt-oss or this version cannot do."""
        self.refuse_unsupported(self.images)
        if self.suffix:
            raise UsageError(f"{self.model} does not support insert")
        if self.raw and (self.template or self.system or self.context):
            raise UsageError("raw mode does not support template, system, or context")
        if self.template:
            raise UsageError("gpt-oss has one prompt format; template cannot replace it")
        fields = self.options.request_fields()
        fields |= {"format": self.answer_format, "n_logprobs": self.n_logprobs}
        if self.raw:
            return RawRequest(prompt=self.prompt, **fields)
        effort, reasoning = self.reasoning
        messages = [Message(role="user", content=self.prompt)]
        if self.system:
            messages.insert(0, Message(role="system", content=self.system))
        return ChatRequest(
            messages=tuple(messages),
            effort=effort,
            reasoning=reasoning,
            earlier_tokens=tuple(self.context),
            has_next_turn=False,  # what comes back is the context: its tokens as they are
            **fields,
        )


class ModelBody(msgspec.Struct):
    """A body that only names a model; some clients say `name`."""

    model: str = ""
    name: str = ""


def to_message(wire: WireMessage) -> Message:
    """A message in our own words. Raises UsageError for what gpt-oss cannot read."""
    role = wire.role.lower()
    match role:
        case "developer":
            role = "system"
        case "system" | "user" | "assistant" | "tool":
            pass
        case _:
            raise UsageError(f"unknown role '{wire.role}'")
    content = join_parts(wire.content, is_result=role == "tool")
    return Message(
        role=role,  # type: ignore[arg-type]
        content=content + left_out("image") * len(wire.images),  # of others, images are refused
        reasoning=wire.thinking or wire.reasoning or wire.reasoning_content,
        tool_calls=tuple(map(_tool_request, wire.tool_calls)),
        tool_name=wire.tool_name,
        tool_call_id=wire.tool_call_id,
    )


def _tool_request(call: WireToolCall) -> ToolRequest:
    arguments = call.function.arguments
    if isinstance(arguments, str):
        arguments = parse_object(arguments, "tool call arguments")
    return ToolRequest(call.function.name, arguments, call.id)
