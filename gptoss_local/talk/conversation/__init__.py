"""A branch of a saved chat as a request of `/api/chat`, and the frames of its answer as a turn."""

from gptoss_local.talk.conversation.calls import Decision, pages_of, result_stats
from gptoss_local.talk.conversation.request import messages_of, request_of, was_cut
from gptoss_local.talk.conversation.tool_choice import ToolChoice
from gptoss_local.talk.conversation.what_runs import what_runs

__all__ = [
    "Decision",
    "ToolChoice",
    "messages_of",
    "pages_of",
    "request_of",
    "result_stats",
    "was_cut",
    "what_runs",
]
