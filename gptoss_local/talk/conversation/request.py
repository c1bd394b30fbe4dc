"""Turns as a request of `/api/chat`."""

from collections.abc import Iterable, Mapping
from typing import Any

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
    """Return the body of `/api/chat` for a branch, without the answer that begins now.

    Args:
        turns: The branch; what streams in it is left out.
        model: Its name.
        effort: How long to think.
        options: Of the chat; `truncate` and `tools` may be among them.
        begun: The answer, if a part of it is there: the model continues it.
    """
    begun_id = begun.id if begun is not None else None  # failed once if it did not fit
    messages = messages_of(t for t in turns if t.state != "streaming" and t.id != begun_id)
    if begun is not None and (begun.content or begun.reasoning):
        messages.append(_message(begun) | {"thinking": begun.reasoning})
    options = without_tools(options)
    truncate = {"truncate": True} if options.get("truncate") else {}
    return {
        "model": model,
        "messages": messages,
        "think": effort,
        "options": {key: value for key, value in options.items() if key != "truncate"},
        **truncate,
    }


def messages_of(turns: Iterable[Turn]) -> list[dict[str, Any]]:
    """Return turns as messages of `/api/chat`, without answers that said nothing.

    A call whose result is missing gets one that says so: the model expects one for each.
    """
    messages: list[dict[str, Any]] = []
    waiting: list[str] = []  # names of calls without a result
    for turn in turns:
        if not (turn.content or turn.tool_calls or turn.tool_name):
            continue
        if turn.role != "tool":
            messages += map(_not_run, waiting)
        waiting = waiting[1:] if turn.role == "tool" else list(map(_name_of, turn.tool_calls))
        messages.append(_message(turn))
    return [*messages, *map(_not_run, waiting)]


def was_cut(turn: Turn) -> bool:
    """Return whether there is a part of an answer that could be continued."""
    is_text = turn.role == "assistant" and bool(turn.content or turn.reasoning)
    is_at_limit = turn.state == "done" and turn.stats.get("done_reason") == "length"
    is_cut = turn.state in ("stopped", "failed") or is_at_limit
    return is_text and is_cut and not turn.tool_calls


def _message(turn: Turn) -> dict[str, Any]:
    is_interrupted = turn.role == "tool" and turn.state == "stopped" and not turn.content
    content = INTERRUPTED if is_interrupted else turn.content
    message: dict[str, Any] = {"role": turn.role, "content": content}
    if turn.tool_calls:
        message |= {"tool_calls": list(turn.tool_calls), "thinking": turn.reasoning}
    if turn.tool_name:
        message["tool_name"] = turn.tool_name
    return message


def _not_run(name: str) -> dict[str, Any]:
    return {"role": "tool", "content": NOT_RUN, "tool_name": name}


def _name_of(call: dict[str, Any]) -> str:
    function = call.get("function")
    return str(function.get("name", "")) if isinstance(function, dict) else ""
