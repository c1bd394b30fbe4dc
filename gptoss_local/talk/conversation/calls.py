"""Results of calls of tools, alike wherever they run: terminal, page, command line."""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from gptoss_local.talk.history import Turn
from gptoss_local.talk.tools import Page, ToolResult
from gptoss_local.talk.tools.toolbox import Scope

NOT_RUN = "Not run."
"""The result of a call whose process died before it ran."""

INTERRUPTED = "This call was interrupted; it is not known how far it came."
"""The result of a call whose process died during it."""

ENDED = ToolResult("This call was stopped, as the server ended.", is_error=True)


class Decision(NamedTuple):
    """The user's answer to whether a call may run; no `scope` denies it."""

    scope: Scope | Literal["once"] | None
    reason: str = ""


def denied(reason: str = "") -> ToolResult:
    return ToolResult(f"The user denied this call. {reason}".strip(), is_error=True)


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
