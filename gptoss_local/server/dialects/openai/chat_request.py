"""Request bodies of `/v1/chat/completions` and `/v1/completions`.

Source: OpenAI's API reference and Ollama's openai/openai.go.
"""

from typing import Any, ClassVar

import msgspec

from gptoss_local.base.errors import UsageError
from gptoss_local.harmony import ChatRequest, Message, RawRequest
from gptoss_local.harmony.vocabulary import STOP_TOKENS
from gptoss_local.server.dialects.history import SentMessage, last_of_user
from gptoss_local.server.dialects.openai.parts import SamplingFields, openai_count
from gptoss_local.server.dialects.options import TokenId, TopCount
from gptoss_local.server.dialects.sent_format import read_format
from gptoss_local.server.dialects.sent_tools import SentTool, read_tools, select_tools


class StreamOptions(msgspec.Struct):
    include_usage: bool = False


class TemplateArguments(msgspec.Struct):
    """Arguments of llama.cpp's and vLLM's templates."""

    reasoning_effort: str = ""
    enable_thinking: bool = True


class _Common(SamplingFields, kw_only=True):
    REQUIRED: ClassVar[tuple[str, ...]] = ("model",)
    FORMAT: ClassVar[tuple[str, ...]] = ("response_format",)

    model: str = ""
    stream: bool = False
    stream_options: StreamOptions = msgspec.field(default_factory=StreamOptions)
    stop: str | list[str] = ""
    reasoning_effort: str = ""
    response_format: str | dict[str, Any] = ""

    @property
    def stop_strings(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)


class ChatCompletionBody(_Common, kw_only=True):
    REQUIRED: ClassVar[tuple[str, ...]] = ("model", "messages")

    messages: list[SentMessage] = msgspec.field(default_factory=list)
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    tools: list[SentTool] = msgspec.field(default_factory=list)
    tool_choice: str | dict[str, Any] = "auto"
    parallel_tool_calls: bool = True
    logprobs: bool = False
    top_logprobs: TopCount = 0
    chat_template_kwargs: TemplateArguments = msgspec.field(default_factory=TemplateArguments)

    def to_request(self) -> ChatRequest:
        if not self.messages:
            raise UsageError("[] is too short - 'messages'")
        template = self.chat_template_kwargs
        in_template = template.reasoning_effort if template.enable_thinking else "none"
        effort = self.reasoning.effort or self.reasoning_effort or in_template
        newest = last_of_user(m.role for m in self.messages)
        return ChatRequest(
            streams_calls=self.stream,
            messages=tuple(m.to_message(is_new=i >= newest) for i, m in enumerate(self.messages)),
            **self.request_fields(effort, self.max_completion_tokens, self.max_tokens),
            stop=self.stop_strings,
            format=read_format(self.response_format or ""),
            n_logprobs=openai_count(
                *("top_logprobs", self.top_logprobs),
                is_on=self.logprobs,
                needs="'logprobs' is enabled",
            ),
            **select_tools(
                read_tools(self.tools), self.tool_choice, one_call=not self.parallel_tool_calls
            ),
        )


_NOT_WITH_IDS = (
    *("echo", "enable_thinking", "logprobs", "reasoning", "reasoning_budget", "reasoning_effort"),
    *("response_format", "stop", "think", "think_budget", "thinking_budget_tokens"),
)


class CompletionBody(_Common, kw_only=True):
    """A prompt that becomes a user's message, as gpt-oss only knows conversations.

    The answer has no place for reasoning, so there is none unless an effort is asked for. A prompt
    of token ids is read as it is, and answered with token ids, as vLLM does.
    """

    prompt: str | list[str | TokenId] = ""
    return_token_ids: bool = False
    stop_token_ids: list[int] = msgspec.field(default_factory=list)
    cache_salt: str = ""
    max_tokens: int | None = None
    logprobs: TopCount | bool = False
    echo: bool = False

    @property
    def text(self) -> str:
        return self.prompt if isinstance(self.prompt, str) else str(self.prompt[0])

    @property
    def token_ids(self) -> tuple[int, ...]:
        sent = [] if isinstance(self.prompt, str) else self.prompt
        return tuple(each for each in sent if isinstance(each, int))

    def to_request(self) -> ChatRequest | RawRequest:
        ids = self.token_ids
        if bool(ids) != self.return_token_ids or (ids and len(ids) != len(self.prompt)):
            raise UsageError("a prompt of token ids needs return_token_ids, and that such a prompt")
        if not set(self.stop_token_ids) <= set(STOP_TOKENS if ids else ()):
            raise UsageError(f"stop_token_ids end what they end anyway: {STOP_TOKENS}")
        if ids:
            plain = CompletionBody()
            if wrong := [n for n in _NOT_WITH_IDS if getattr(self, n) != getattr(plain, n)]:
                raise UsageError(f"a prompt of token ids is answered without {', '.join(wrong)}")
            fields = self.request_fields("", self.max_tokens)
            limits = {name: fields[name] for name in ("sampling", "max_tokens")}
            return RawRequest(prompt=ids, **limits)
        if isinstance(self.prompt, list) and len(self.prompt) != 1:
            raise UsageError("prompt must be one string; send a request for each prompt")
        if self.echo and self.logprobs is not False:
            raise UsageError(
                "echo with logprobs is not supported: gpt-oss reads the prompt inside a message",
                hint="Send logprobs without echo for those of the answer.",
            )
        default = "" if self.think else "none"
        effort = self.reasoning.effort or self.reasoning_effort or default
        return ChatRequest(
            messages=(Message(role="user", content=self.text),),
            has_next_turn=False,
            **self.request_fields(effort, self.max_tokens),
            stop=self.stop_strings,
            format=read_format(self.response_format or ""),
            n_logprobs=openai_count(
                *("logprobs", int(self.logprobs)), is_on=self.logprobs is not False, needs=""
            ),
        )
