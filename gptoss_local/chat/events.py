"""What an answer consists of, in the order it happens. Every front end consumes these."""

from typing import Any

import msgspec

from gptoss_local.types import FinishReason, Usage


class ReasoningDelta(msgspec.Struct, frozen=True):
    """A piece of the analysis channel; never empty."""

    text: str


class ContentDelta(msgspec.Struct, frozen=True):
    """A piece of the answer (final channel, or a preamble before a tool call); never empty."""

    text: str


class ToolCall(msgspec.Struct, frozen=True):
    """A complete call of a function; `arguments` is a parsed JSON object.

    `index` counts the calls of one answer from 0.
    """

    index: int
    id: str
    name: str
    arguments: dict[str, Any]


class Done(msgspec.Struct, frozen=True):
    """Last event of every answer. `tokens` are prompt and answer, as the engine saw them."""

    reason: FinishReason
    usage: Usage
    tokens: list[int]


Delta = ReasoningDelta | ContentDelta | ToolCall
ChatEvent = Delta | Done
