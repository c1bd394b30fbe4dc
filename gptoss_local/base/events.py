"""The events of an answer, in the order they happen; every front end consumes these."""

import re
from typing import Any, Literal

import msgspec

from gptoss_local.base.types import FinishReason, Usage

GAP = "\n\n"  # separates messages of an answer that a client reads as one text

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"?')


class Started(msgspec.Struct, frozen=True):
    """The prompt is rendered and goes to the engine, without the `n_left_out` oldest messages."""

    n_prompt: int
    n_left_out: int = 0


class Growing(msgspec.Struct, frozen=True):
    """The model is loaded again with more context, before Started; for requests for Prefilling."""

    n_prompt: int
    n_ctx: int
    n_ctx_before: int


class Prefilling(msgspec.Struct, frozen=True):
    """Progress through the prompt, in tokens; only for requests that ask for it."""

    n_done: int
    n_cached: int


class TokenLogprob(msgspec.Struct, frozen=True):
    """A token of an answer, and how likely it was."""

    data: bytes  # maybe only a part of a character
    logprob: float  # natural, before any sampling setting
    top: tuple[tuple[bytes, float], ...]  # the likeliest tokens in its place, likeliest first
    offset: int | None  # characters of content before it; None: it is not shown as content


Logprobs = tuple[TokenLogprob, ...]
"""Log-probabilities of the tokens since the event before; content has those that begin in it.
Pieces of calls have none, as the call has them all."""


class ReasoningDelta(msgspec.Struct, frozen=True):
    """A piece of reasoning, never empty; if `is_next`, it begins another message, after a gap."""

    text: str
    is_next: bool = False
    logprobs: Logprobs = ()

    @property
    def own_text(self) -> str:
        return self.text.removeprefix(GAP) if self.is_next else self.text


class ContentDelta(msgspec.Struct, frozen=True):
    """A piece of the answer or of a preamble, never empty; `is_next` as in ReasoningDelta."""

    text: str
    logprobs: Logprobs = ()
    is_next: bool = False
    is_preamble: bool = False

    @property
    def own_text(self) -> str:
        return self.text.removeprefix(GAP) if self.is_next else self.text


class CallDelta(msgspec.Struct, frozen=True):
    """A piece of a call's arguments, for requests that ask for calls as they are written.

    The pieces join to the beginning of `ToolCall.arguments_json()`; that event follows with the
    same `index` and `id`, unless the answer runs out of tokens within the call. Then the pieces
    come in any case, as one or more, maybe empty, and end inside a string.
    """

    index: int
    id: str
    name: str
    text: str

    @property
    def arguments(self) -> dict[str, Any]:
        ends: list[str] = []
        for character in _STRING.sub("", self.text):
            if character in "{[":
                ends.append("}" if character == "{" else "]")
            elif character in "}]":
                ends.pop()
        text = f'{self.text}"' if self.text else "{}"
        arguments: dict[str, Any] = msgspec.json.decode(text + "".join(reversed(ends)))
        return arguments


class ToolCall(msgspec.Struct, frozen=True):
    """A complete call, its `arguments` parsed; `index` counts those of an answer from 0."""

    index: int
    id: str
    name: str
    arguments: dict[str, Any]
    logprobs: Logprobs = ()

    def arguments_json(self) -> str:
        return msgspec.json.encode(self.arguments).decode()


class TokenDelta(msgspec.Struct, frozen=True):
    """A token as it was written, for callers that parse for themselves."""

    token: int


class Done(msgspec.Struct, frozen=True):
    """Last event of every answer.

    `tokens` are prompt and answer as the engine saw them, `n_reasoning` of them analysis without
    tags. `joules` are by device, where known. `load_ns` passed until the model was ready.
    """

    reason: FinishReason
    usage: Usage
    tokens: list[int]
    n_reasoning: int = 0
    stop_string: str = ""
    joules: dict[str, float] = {}
    load_ns: int = 0
    total_ns: int = 0
    logprobs: Logprobs = ()

    @property
    def end(self) -> Literal["stop", "length", "repetition"]:
        """Return the reason for clients; one that cancels needs none."""
        return "stop" if self.reason == "cancelled" else self.reason


Delta = ReasoningDelta | ContentDelta | CallDelta | ToolCall | TokenDelta
ChatEvent = Growing | Started | Prefilling | Delta | Done


class WholeAnswer:
    """The events of one answer put together."""

    def __init__(self) -> None:
        self._reasoning: list[str] = []
        self._content: list[str] = []
        self._done: Done | None = None
        self.calls: list[ToolCall] = []
        self.cut_call: CallDelta | None = None
        """The beginning of a call that the end of the answer cut."""
        self.logprobs: list[TokenLogprob] = []

    def add(self, event: ChatEvent) -> None:
        if isinstance(event, ReasoningDelta | ContentDelta | ToolCall | Done):
            self.logprobs += event.logprobs
        match event:
            case ReasoningDelta(text):
                self._reasoning.append(text)
            case ContentDelta(text):
                self._content.append(text)
            case CallDelta(index, call_id, name, text):
                before = self.cut_call.text if self.cut_call else ""
                self.cut_call = CallDelta(index, call_id, name, before + text)
            case ToolCall():
                self.calls.append(event)
                self.cut_call = None
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
    """Join pieces in place, so that reading a growing text stays cheap."""
    if len(pieces) != 1:
        pieces[:] = ["".join(pieces)]
    return pieces[0]
