"""A branch of a saved chat as a request: its turns, the results of tools, and which are on."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from gptoss_local.talk.history import Turn
from gptoss_local.talk.tools import Page, Toolbox, ToolResult
from gptoss_local.talk.tools.work import WORK

TOOLS = "tools"
"""An option of chats: comma-separated sources; not there until the user has switched one."""

_NOT_RUN = "Not run."  # the result of a call whose process died before it ran

_INTERRUPTED = "This call was interrupted; it is not known how far it came."
"""The result of a call whose process died during it."""


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
                turn = replace(turn, content=_INTERRUPTED)
        else:
            sent += open_calls
            open_calls = [_not_run(turn, call) for call in turn.tool_calls]
        sent.append(turn if turn.tool_calls else replace(turn, reasoning=""))
    sent += open_calls
    return [*sent, begun] if begun is not None and (begun.content or begun.reasoning) else sent


def messages_of(turns: Iterable[Turn], begun: Turn | None = None) -> list[dict[str, Any]]:
    """Return `messages` of `/api/chat`; the model continues `begun`."""
    return list(map(_message, to_send(turns, begun)))


def instructed(turns: Sequence[Turn], more: str) -> Sequence[Turn]:
    """Return a branch whose instructions end with more of them, which are not stored."""
    if not (more and turns):
        return turns
    is_first = turns[0].role == "system"
    text = f"{turns[0].content}\n\n{more}" if is_first else more
    return [replace(turns[0], id=0, role="system", content=text), *turns[is_first:]]


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
    return replace(turn, role="tool", content=_NOT_RUN, reasoning="", tool_calls=(), tool_name=name)


def result_stats(result: ToolResult) -> dict[str, Any]:
    stats: dict[str, Any] = {"seconds": round(result.seconds, 3), "is_error": result.is_error}
    if result.pages:
        stats["pages"] = [list(page) for page in result.pages]
    return stats


def pages_of(turns: Iterable[Turn]) -> list[Page]:
    """Return the pages that answers after these turns may cite, oldest first."""
    found = []
    for turn in turns:
        listed = turn.stats.get("pages") if turn.role == "tool" else None
        for each in listed if isinstance(listed, list) else ():
            match each:  # an imported chat may have anything
                case [int(cursor), str(url), str(title)]:
                    found.append(Page(cursor, url, title))
    return found


class ToolChoice:
    """Joins a toolbox, at first with the tools of new chats, with the open chat's options."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox
        self._default = frozenset(toolbox.on)

    def take(self, options: Mapping[str, Any]) -> None:
        """Switch on the tools that the options of a chat name, or the default, and `--work`'s."""
        chosen = options.get(TOOLS)
        names = self._default if not isinstance(chosen, str) else names_in(chosen)
        self._toolbox.on = (set(names) | {WORK}) & self._known

    def text(self, options: Mapping[str, Any]) -> str:
        before = options.get(TOOLS)
        others = names_in(before) - self._known if isinstance(before, str) else set()
        return ",".join(sorted(self._toolbox.on | others))

    @property
    def _known(self) -> set[str]:
        return {group.name for group in self._toolbox.groups()}


def names_in(text: str) -> set[str]:
    return {name for part in text.split(",") if (name := part.strip())}


def without_tools(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != TOOLS}
