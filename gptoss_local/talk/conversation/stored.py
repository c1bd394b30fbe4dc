"""Say what is stored of an answer, while it streams and after it."""

from typing import Any

from gptoss_local.talk.conversation.answer import Answer
from gptoss_local.talk.history import TurnState

_STATES: dict[str, TurnState] = {"done": "done", "stopped": "stopped", "failed": "failed"}


def changes_of(answer: Answer, earlier: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of its turn as they are now, for `History.update`.

    Args:
        answer: As far as it is.
        earlier: The figures that its turn has.
    """
    error = {"error": answer.error} if answer.error else {}
    return {
        "content": answer.content,
        "reasoning": answer.reasoning,
        "state": _STATES.get(answer.phase, "streaming"),
        "stats": _stats_of(answer, earlier) | error,
        "tool_calls": answer.tool_calls,
    }


def _stats_of(answer: Answer, earlier: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of an answer; until its last frame, those of the part before are kept."""
    if answer.stats:
        return answer.stats
    kept = {name: value for name, value in earlier.items() if name != "error"}
    if not answer.n_frames:
        return kept
    kept = {name: value for name, value in kept.items() if name not in ("tokens", "done_reason")}
    return kept | (answer.measured if answer.reasoning else {})
