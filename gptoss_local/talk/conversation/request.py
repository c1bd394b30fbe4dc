"""Turns as a request of `/api/chat`."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from gptoss_local.talk.conversation.calls import INTERRUPTED, NOT_RUN
from gptoss_local.talk.conversation.tool_choice import without_tools
from gptoss_local.talk.history import Turn


def request_of(
    turns: Iterable[Turn],
    *,
    model: str,
    effort: str,
    options: Mapping[str, Any],
    begun: Turn | None = None,
) -> dict[str, Any]:
    """Return the body of `/api/chat` for a branch; the model continues `begun`."""
    messages = list(map(_message, to_send(turns, begun)))
    options = without_tools(options)
    truncate = {"truncate": True} if options.get("truncate") else {}
    return {
        "model": model,
        "messages": messages,
        "think": effort,
        "options": {key: value for key, value in options.items() if key != "truncate"},
        **truncate,
    }


def to_send(turns: Iterable[Turn], begun: Turn | None = None) -> list[Turn]:
    """Return turns as the model reads them: only answers with calls keep their reasoning.

    Calls without a result get one that says so. Empty and streaming turns are left out; one that is
    `begun` comes last.
    """
    sent: list[Turn] = []
    open_calls: list[Turn] = []  # results that are missing
    for turn in turns:
        is_begun = begun is not None and turn.id == begun.id  # failed once if it did not fit
        is_said = turn.content or turn.tool_calls or turn.tool_name
        if turn.state == "streaming" or is_begun or not is_said:
            continue
        if turn.role == "tool":
            open_calls = open_calls[1:]
            if turn.state == "stopped" and not turn.content:
                turn = replace(turn, content=INTERRUPTED)
        else:
            sent += open_calls
            open_calls = [_not_run(turn, call) for call in turn.tool_calls]
        sent.append(turn if turn.tool_calls else replace(turn, reasoning=""))
    sent += open_calls
    return [*sent, begun] if begun is not None and (begun.content or begun.reasoning) else sent


def messages_of(turns: Iterable[Turn]) -> list[dict[str, Any]]:
    return list(map(_message, to_send(turns)))


def was_cut(turn: Turn) -> bool:
    is_text = turn.role == "assistant" and bool(turn.content or turn.reasoning)
    is_at_limit = turn.state == "done" and turn.stats.get("done_reason") == "length"
    is_cut = turn.state in ("stopped", "failed") or is_at_limit
    return is_text and is_cut and not turn.tool_calls


def _message(turn: Turn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": turn.role, "content": turn.content}
    if turn.tool_calls:
        message["tool_calls"] = list(turn.tool_calls)
    if turn.reasoning:
        message["thinking"] = turn.reasoning
    if turn.tool_name:
        message["tool_name"] = turn.tool_name
    return message


def _not_run(turn: Turn, call: dict[str, Any]) -> Turn:
    function = call.get("function")
    name = str(function.get("name", "")) if isinstance(function, dict) else ""
    return replace(turn, role="tool", content=NOT_RUN, reasoning="", tool_calls=(), tool_name=name)
