"""Frames of `/api/chat` as events, for clients of the server."""

from collections.abc import Iterator
from typing import Any

from gptoss_local.base.events import (
    ChatEvent,
    ContentDelta,
    Done,
    Growing,
    Prefilling,
    ReasoningDelta,
    Started,
    ToolCall,
)
from gptoss_local.base.types import FinishReason, Usage

_ENDS: dict[str | None, FinishReason] = {"length": "length", "repetition": "repetition"}


def events_of(frame: dict[str, Any]) -> Iterator[ChatEvent]:
    """Yield the events of one frame; each that says how far the prompt is read has Started."""
    if growth := frame.get("context_growth"):
        yield Growing(growth["prompt"], growth["to"], growth["from"])
    if progress := frame.get("prompt_progress"):
        yield Started(progress["total"], progress.get("left_out", 0))
        yield Prefilling(progress["processed"], progress["cache"])
    message = frame["message"]
    if thinking := message.get("thinking"):
        yield ReasoningDelta(thinking)
    if content := message.get("content"):
        yield ContentDelta(content)
    for n, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        index, name, arguments = function.get("index", n), function["name"], function["arguments"]
        yield ToolCall(index, call.get("id", ""), name, arguments)
    if frame["done"]:
        usage = Usage(
            n_prompt=frame.get("prompt_eval_count", 0),
            n_cached=frame.get("prompt_cached_count", 0),
            prefill_ns=frame.get("prompt_eval_duration", 0),
            n_generated=frame.get("eval_count", 0),
            decode_ns=frame.get("eval_duration", 0),
        )
        yield Done(
            _ENDS.get(frame.get("done_reason"), "stop"),
            usage,
            frame.get("tokens", []),
            joules=frame.get("joules", {}),
            load_ns=frame.get("load_duration", 0),
            total_ns=frame.get("total_duration", 0),
        )
