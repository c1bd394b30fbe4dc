"""Request bodies of Ollama's API. Source: its api/types.go (ChatRequest, GenerateRequest)."""

from typing import Any, ClassVar

import msgspec

from gptoss_local.base.errors import UsageError
from gptoss_local.base.quantities import parse_keep_alive
from gptoss_local.base.types import Effort
from gptoss_local.harmony import ChatRequest, Message, RawRequest, Tool
from gptoss_local.harmony.built_in import built_in
from gptoss_local.server.dialects.history import SentMessage, last_of_user
from gptoss_local.server.dialects.options import MAX_TOP_LOGPROBS, Options, TokenId, TopCount
from gptoss_local.server.dialects.sent_format import read_format
from gptoss_local.server.dialects.sent_tools import SentTool, read_tools, select_tools

TEMPLATE = "{{/* harmony: gptoss renders messages, tools and thinking itself */}}"
"""The template of every model, which clients may send back."""

_EFFORTS: dict[str, Effort] = {"low": "low", "medium": "medium", "high": "high", "max": "high"}


class _Common(msgspec.Struct, kw_only=True):
    REQUIRED: ClassVar[tuple[str, ...]] = ("model",)
    FORMAT: ClassVar[tuple[str, ...]] = ("format",)

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
        return parse_think(self.think)

    @property
    def n_logprobs(self) -> int | None:
        """Return the alternatives of every token; None: no log-probabilities."""
        if not 0 <= self.top_logprobs <= MAX_TOP_LOGPROBS:
            raise UsageError(f"top_logprobs must be between 0 and {MAX_TOP_LOGPROBS}")
        if self.top_logprobs and not self.logprobs:
            raise UsageError("top_logprobs requires logprobs to be true")
        return self.top_logprobs if self.logprobs else None


class ChatBody(_Common, kw_only=True):
    messages: list[SentMessage] = []
    tools: list[SentTool] = []
    tool_choice: str | dict[str, Any] = "auto"
    truncate: bool | None = None
    return_progress: bool = False
    return_tokens: bool = False

    def to_request(self) -> ChatRequest:
        effort, reasoning = self.reasoning
        newest = last_of_user(m.role for m in self.messages)
        tools = list(map(_offered, read_tools(self.tools)))
        return ChatRequest(
            messages=tuple(m.to_message(is_new=i >= newest) for i, m in enumerate(self.messages)),
            effort=effort,
            reasoning=reasoning,
            format=read_format(self.format),
            n_logprobs=self.n_logprobs,
            truncates=self.truncate is True,
            may_grow=self.truncate is None,
            reports_prefill=self.return_progress and self.stream,
            **select_tools(tools, self.tool_choice),
            **self.options.request_fields(),
        )


class GenerateBody(_Common, kw_only=True):
    prompt: str = ""
    suffix: str = ""
    system: str = ""
    template: str = ""
    context: list[TokenId] = []
    raw: bool = False

    def to_request(self) -> ChatRequest | RawRequest:
        if self.suffix:
            raise UsageError(f"{self.model} does not support insert")
        if self.raw and (self.template or self.system or self.context):
            raise UsageError("raw mode does not support template, system, or context")
        if self.template not in ("", TEMPLATE):
            raise UsageError("gpt-oss has one prompt format; template cannot replace it")
        fields = self.options.request_fields()
        fields |= {"format": read_format(self.format), "n_logprobs": self.n_logprobs}
        if self.raw:
            del fields["ends_repetition"]  # raw answers may go in circles
            if fields.pop("think_budget") is not None or isinstance(self.think, str):
                raise UsageError("raw mode does not support an effort or think_budget")
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
            has_next_turn=False,  # the context comes back: its tokens as they are
            **fields,
        )


class ModelBody(msgspec.Struct):
    """A body that only names a model; some clients say `name`."""

    model: str = ""
    name: str = ""


class ShowBody(ModelBody):
    verbose: bool = False


def _offered(tool: Tool) -> Tool:
    """Return a tool; one that harmony has itself comes by its name alone, as with Ollama."""
    return (not tool.parameters and built_in(tool.name, tool.description)) or tool


def parse_think(think: object) -> tuple[Effort, bool]:
    """Return effort, and whether to reason. Absent and true mean medium; false means no."""
    match think:
        case None | True:
            return "medium", True
        case False:
            return "low", False
        case str() if think in _EFFORTS:
            return _EFFORTS[think], True
    allowed = '"high", "medium", "low", "max", true, or false'
    if isinstance(think, str):
        raise UsageError(f'invalid think value: "{think}" (must be {allowed})')
    raise UsageError(f"think must be a boolean or string ({allowed})")
