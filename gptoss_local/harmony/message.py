"""A conversation in the words of no HTTP dialect."""

from typing import Any, Literal

import msgspec

from gptoss_local.types import Effort, SamplingParams


class ToolRequest(msgspec.Struct, frozen=True):
    """A call in the history of a conversation. `id` may be empty: old clients send none.

    `arguments` that are not a JSON object are the text that was sent.
    """

    name: str
    arguments: dict[str, Any] | str
    id: str = ""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message.

    `system` carries the developer's instructions (harmony's own system message is ours to write).
    `reasoning` and `tool_calls` belong to an assistant, `tool_name` and `tool_call_id` to a tool
    result; either of them, or the order of results, shows which call is answered. What an assistant
    thought, said and called in another order than this comes as several messages. A message that
    `is_preamble` was said on the way to an answer. `tokens` are all that the model wrote of it,
    where that is known.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolRequest, ...] = ()
    tool_name: str = ""
    tool_call_id: str = ""
    is_preamble: bool = False
    tokens: tuple[int, ...] = ()


class FreeText(msgspec.Struct, frozen=True):
    """Text that a tool takes as it is, with the grammar that it keeps to, if there is one."""

    syntax: Literal["lark", "regex"] = "lark"
    definition: str = ""


class Tool(msgspec.Struct, frozen=True):
    """A function the model may call; `parameters` is a JSON schema of an object.

    The arguments of a `strict` one always keep to it. One that `is_built_in` is declared as the
    model was trained with it: `python`, whose only argument is `code`, or `browser.search`,
    `browser.open`, `browser.find`. One for `free_text` has the argument `input` alone.
    """

    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None
    strict: bool = False
    is_built_in: bool = False
    free_text: FreeText | None = None


class JsonFormat(msgspec.Struct, frozen=True):
    """The answer is JSON of this schema, by default any object.

    The prompt shows the model the schema under `name`, with the `description`.
    """

    schema: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object"})
    name: str = "response"
    description: str = ""


class RegexFormat(msgspec.Struct, frozen=True):
    """The answer is text that this regular expression matches from end to end."""

    pattern: str


AnswerFormat = JsonFormat | RegexFormat


class RawRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt as it is, with no template; the answer comes back with its harmony tags."""

    prompt: str
    sampling: SamplingParams = SamplingParams()
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    format: AnswerFormat | None = None
    n_logprobs: int | None = None
    priority: int = 0
    in_memory: bool = False


class AnswerNow:
    """A user's wish, while the model reasons, to have the answer now. Any thread may set it.

    Attributes:
        is_wished: It holds for the rest of the answer.
    """

    def __init__(self) -> None:
        self.is_wished = False


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation to answer, and how. The last message may be the beginning of the answer.

    `reasoning` False means that no analysis is made or shown. `stop` strings are looked for in
    content only. `format` binds the final message, never the reasoning. `earlier_tokens` are the
    tokens of an earlier answer that this one continues. `must_call` names tools of which the answer
    calls one; with `one_call` it ends after its first call. `has_next_turn` says that the answer
    may come back as a message of a longer conversation. `n_logprobs` asks for the log-probabilities
    of the content's tokens, each with so many alternatives. `truncates` leaves out the oldest turns
    where the prompt does not fit; `may_grow` is for the server, which may load a larger context
    then. `reports_prefill` asks for Prefilling events, `streams_calls` for CallDelta events.
    `owner` distinguishes callers: what is remembered of an answer is put back for its owner only.
    The highest `priority` is answered first. With `in_memory` nothing of it is written to disk.
    After `think_budget` tokens of analysis the model answers; and `answer_now` asks for that
    meanwhile; `ends_repetition` closes analysis that goes in circles, and ends such an answer.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    must_call: tuple[str, ...] = ()
    one_call: bool = False
    effort: Effort = "medium"
    reasoning: bool = True
    sampling: SamplingParams = SamplingParams()
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    format: AnswerFormat | None = None
    earlier_tokens: tuple[int, ...] = ()
    has_next_turn: bool = True
    truncates: bool = False
    may_grow: bool = True
    reports_prefill: bool = False
    streams_calls: bool = False
    n_logprobs: int | None = None
    owner: str = ""
    priority: int = 0
    in_memory: bool = False
    think_budget: int | None = None
    answer_now: AnswerNow | None = None
    ends_repetition: bool = True
