"""A branch of a saved chat as a request of the model."""

from collections.abc import Sequence
from typing import Any, get_args

from gptoss_local.base.types import Effort
from gptoss_local.harmony import ChatRequest, Message, ToolRequest
from gptoss_local.models.store import ModelDefaults
from gptoss_local.server.body import convert
from gptoss_local.server.dialects.history import read_arguments
from gptoss_local.server.dialects.named_model import begin, fill_in
from gptoss_local.server.dialects.options import Options
from gptoss_local.server.dialects.sent_tools import offered
from gptoss_local.talk.conversation.request import to_send
from gptoss_local.talk.conversation.tool_choice import without_tools
from gptoss_local.talk.history import ChatSummary, Turn, is_temporary
from gptoss_local.talk.tools import Toolbox


def asked_of(
    chat: ChatSummary, branch: Sequence[Turn], toolbox: Toolbox, defaults: ModelDefaults
) -> tuple[ChatRequest, int | None]:
    """Return the request for a branch's last turn, and the context asked for."""
    given = without_tools(chat.options)
    options = convert(fill_in({"options": given}, defaults)["options"], Options)
    request = ChatRequest(
        messages=tuple(map(_message, to_send(branch, branch[-1]))),
        tools=tuple(map(offered, toolbox.offered())),
        effort=next((effort for effort in get_args(Effort) if effort == chat.effort), "medium"),
        truncates=bool(given.get("truncate")),
        may_grow=not given.get("truncate"),
        reports_prefill=True,
        in_memory=is_temporary(chat.id),
        **options.request_fields(),
    )
    return begin(request, defaults), options.n_ctx


def _message(turn: Turn) -> Message:
    return Message(
        role=turn.role,
        content=turn.content,
        reasoning=turn.reasoning,
        tool_calls=tuple(map(_tool_request, turn.tool_calls)),
        tool_name=turn.tool_name,
    )


def _tool_request(call: dict[str, Any]) -> ToolRequest:
    function = call["function"]
    arguments = read_arguments(function.get("arguments"))
    return ToolRequest(function["name"], arguments, str(call.get("id", "")))
