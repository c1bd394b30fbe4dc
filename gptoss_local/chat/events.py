"""What an answer consists of, in the order it happens. Every front end consumes these."""

from typing import Any

import msgspec

from gptoss_local.types import FinishReason, Usage


class Started(msgspec.Struct, frozen=True):
    """First event of every answer: the prompt is rendered, fits, and goes to the engine.

    `n_left_out` messages of the conversation are not in it, as the request allowed.
    """

    n_prompt: int
    n_left_out: int = 0


class Prefilling(msgspec.Struct, frozen=True):
    """So many of the prompt's tokens are read; only for requests that ask for it."""

    n_done: int
    n_cached: int


class ReasoningDelta(msgspec.Struct, frozen=True):
    """A piece of the analysis channel; never empty."""

    text: str


class TokenLogprob(msgspec.Struct, frozen=True):
    """A token of the content, and how likely it was.

    Attributes:
        data: Its bytes, maybe a part of a character only.
        logprob: Natural logarithm of its probability, before any sampling setting.
        top: The likeliest tokens in its place, bytes and logarithm, likeliest first.
        offset: Characters of content before it.
    """

    data: bytes
    logprob: float
    top: tuple[tuple[bytes, float], ...]
    offset: int


class ContentDelta(msgspec.Struct, frozen=True):
    """A piece of the answer (final channel, or a preamble before a tool call); never empty.

    `logprobs` are those of the tokens that begin in it, if they were asked for.
    """

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


class ToolCall(msgspec.Struct, frozen=True):
    """A complete call of a function; `arguments` is a parsed JSON object.

    `index` counts the calls of one answer from 0.
    """

    index: int
    id: str
    name: str
    arguments: dict[str, Any]


class Done(msgspec.Struct, frozen=True):
    """Last event of every answer.

    `tokens` are prompt and answer, as the engine saw them; `n_reasoning` of them are words of
    analysis. `stop_string` is the one that ended the answer, if one did.
    """

    reason: FinishReason
    usage: Usage
    tokens: list[int]
    n_reasoning: int = 0
    stop_string: str = ""


Delta = ReasoningDelta | ContentDelta | ToolCall
ChatEvent = Started | Prefilling | Delta | Done


class WholeAnswer:
    """The events of one answer put together, for those who do not stream."""

    def __init__(self) -> None:
        self._reasoning: list[str] = []
        self._content: list[str] = []
        self._done: Done | None = None
        self.calls: list[ToolCall] = []
        self.logprobs: list[TokenLogprob] = []

    def add(self, event: ChatEvent) -> None:
        match event:
            case ReasoningDelta(text):
                self._reasoning.append(text)
            case ContentDelta(text, logprobs):
                self._content.append(text)
                self.logprobs += logprobs
            case ToolCall():
                self.calls.append(event)
            case Done():
                self._done = event

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    @property
    def content(self) -> str:
        return "".join(self._content)

    @property
    def done(self) -> Done:
        if self._done is None:
            raise RuntimeError("the answer is not over")
        return self._done
