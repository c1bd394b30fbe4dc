"""A conversation in the words of no HTTP dialect."""

from typing import Any, Literal

import msgspec

from gptoss_local.base.types import Effort, SamplingParams


class ToolRequest(msgspec.Struct, frozen=True):
    """A call in a history; old clients send no `id`. Broken `arguments` are the text as sent."""

    name: str
    arguments: dict[str, Any] | str
    id: str = ""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message; `system` carries the developer's instructions, `name` says which user's it is.

    `tool_name`, `tool_call_id` or the order of results shows the call that is answered. Reasoning,
    content and calls in another order come as several messages. A message that `is_preamble` was
    said on the way to an answer. `tokens` are all that the model wrote of it, if known.
    """

    role: Literal["system", "user", "assistant", "tool"]
    name: str = ""
    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolRequest, ...] = ()
    tool_name: str = ""
    tool_call_id: str = ""
    is_preamble: bool = False
    tokens: tuple[int, ...] = ()


class FreeText(msgspec.Struct, frozen=True):
    """Text that a tool takes as it is, with its grammar if it has one."""

    syntax: Literal["lark", "regex"] = "lark"
    definition: str = ""


class Tool(msgspec.Struct, frozen=True):
    """A function the model may call; `parameters` is a JSON schema of an object.

    The arguments of a `strict` one always match it. A `is_built_in` one is declared as in training:
    `python`, with `code` alone, or `browser.search`, `browser.open`, `browser.find`. One for
    `free_text` has the argument `input` alone.
    """

    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None
    strict: bool = False
    is_built_in: bool = False
    free_text: FreeText | None = None


class JsonFormat(msgspec.Struct, frozen=True):
    """The answer is JSON of this schema, by default any object; the prompt shows the schema."""

    schema: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object"})
    name: str = "response"
    description: str = ""


class RegexFormat(msgspec.Struct, frozen=True):
    """The answer is text that this regular expression matches from end to end."""

    pattern: str


AnswerFormat = JsonFormat | RegexFormat


class AnswerNow:
    """A user's wish for the answer, while the model reasons. Any thread may set it."""

    def __init__(self) -> None:
        self.is_wished = False


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    """Wishes for an answer; see ChatRequest."""

    tools: tuple[Tool, ...] = ()
    must_call: tuple[str, ...] = ()
    one_call: bool = False
    sampling: SamplingParams = SamplingParams()
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    format: AnswerFormat | None = None
    truncates: bool = False
    reports_prefill: bool = False
    n_logprobs: int | None = None
    priority: int = 0
    in_memory: bool = False
    think_budget: int | None = None
    answer_now: AnswerNow | None = None
    ends_repetition: bool = False


class RawRequest(_Request, frozen=True, kw_only=True):
    """A prompt without a template; the answer comes back with its harmony tags, or as tokens."""

    prompt: str | tuple[int, ...]


class ChatRequest(_Request, frozen=True, kw_only=True):
    """A conversation to answer, and how. The last message may be the beginning of the answer.

    `reasoning` False: no analysis is made or shown. `stop` and `format` concern the content only.
    `earlier_tokens` are of an earlier answer that this one continues. The answer calls one of
    `must_call`; with `one_call` it ends after a call. `has_next_turn`: it may come back in a longer
    conversation. `n_logprobs` asks for log-probabilities with so many alternatives. `truncates`
    leaves out the oldest turns of a prompt that does not fit; `may_grow` lets the server load a
    larger context instead. `reports_prefill` asks for Prefilling events, `streams_calls` for
    CallDelta events. What is remembered of an answer is for its `owner` only. The highest
    `priority` is answered first. `in_memory`: nothing is written to disk. `think_budget` tokens of
    analysis, or `answer_now`, lead to the answer; `ends_repetition` ends text that goes in circles.
    """

    messages: tuple[Message, ...]
    effort: Effort = "medium"
    reasoning: bool = True
    earlier_tokens: tuple[int, ...] = ()
    has_next_turn: bool = True
    may_grow: bool = True
    streams_calls: bool = False
    owner: str = ""
    ends_repetition: bool = True
