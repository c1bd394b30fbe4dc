"""Defines the events of an answer, in the order they happen. Every front end consumes these."""

from typing import Any, Literal

import msgspec

from gptoss_local.types import FinishReason, Usage

GAP = "\n\n"
"""Between two messages of an answer that a client reads as one text."""


class Started(msgspec.Struct, frozen=True):
    """The prompt is rendered, fits, and goes to the engine; only Growing may come before it.

    `n_left_out` messages of the conversation are not in it, as the request allowed.
    """

    n_prompt: int
    n_left_out: int = 0


class Growing(msgspec.Struct, frozen=True):
    """The model is loaded again, with more context, as the prompt needs it.

    Comes before Started, and only for requests that ask for Prefilling.
    """

    n_prompt: int
    n_ctx: int
    n_ctx_before: int


class Prefilling(msgspec.Struct, frozen=True):
    """So many of the prompt's tokens are read; only for requests that ask for it."""

    n_done: int
    n_cached: int


class ReasoningDelta(msgspec.Struct, frozen=True):
    """A piece of the analysis channel; never empty.

    `is_next` says that another message begins: the text has a gap before what the model wrote.
    """

    text: str
    is_next: bool = False

    @property
    def own_text(self) -> str:
        """Return what the model wrote."""
        return self.text.removeprefix(GAP) if self.is_next else self.text


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
    """A piece of the answer, or of a preamble on the way to it; never empty.

    `logprobs` are those of the tokens that begin in it, if they were asked for; `is_next` is that
    of ReasoningDelta.
    """

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()
    is_next: bool = False
    is_preamble: bool = False

    @property
    def own_text(self) -> str:
        """Return what the model wrote."""
        return self.text.removeprefix(GAP) if self.is_next else self.text


class CallDelta(msgspec.Struct, frozen=True):
    """A piece of a call's arguments, for requests that ask for calls as they are written.

    The pieces of a call join to the beginning of what `ToolCall.arguments_json` returns; that event
    follows with the same `index` and `id`, unless the answer ends within the call for want of
    tokens.
    """

    index: int
    id: str
    name: str
    text: str


class ToolCall(msgspec.Struct, frozen=True):
    """A complete call of a function; `arguments` is a parsed JSON object.

    `index` counts the calls of one answer from 0.
    """

    index: int
    id: str
    name: str
    arguments: dict[str, Any]

    def arguments_json(self) -> str:
        """Return the arguments as the text of a JSON object."""
        return msgspec.json.encode(self.arguments).decode()


class Done(msgspec.Struct, frozen=True):
    """Last event of every answer.

    `tokens` are prompt and answer, as the engine saw them; `n_reasoning` of them are words of
    analysis. `stop_string` is the one that ended the answer, if one did. `joules` are what it took,
    by device, where that is known. `load_ns` passed until the model was ready, `total_ns` until the
    end.
    """

    reason: FinishReason
    usage: Usage
    tokens: list[int]
    n_reasoning: int = 0
    stop_string: str = ""
    joules: dict[str, float] = {}
    load_ns: int = 0
    total_ns: int = 0

    @property
    def end(self) -> Literal["stop", "length", "repetition"]:
        """Return the reason as clients are told it; a caller that cancels knows it."""
        return "stop" if self.reason == "cancelled" else self.reason


Delta = ReasoningDelta | ContentDelta | CallDelta | ToolCall
ChatEvent = Growing | Started | Prefilling | Delta | Done


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
        return _joined(self._reasoning)

    @property
    def content(self) -> str:
        return _joined(self._content)

    @property
    def done(self) -> Done:
        if self._done is None:
            raise RuntimeError("the answer is not over")
        return self._done


def _joined(pieces: list[str]) -> str:
    """Join pieces once, however often the text is read while it grows."""
    if len(pieces) != 1:
        pieces[:] = ["".join(pieces)]
    return pieces[0]
