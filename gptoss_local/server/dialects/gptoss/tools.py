"""The tools of a saved chat, for the web page to choose among."""

from contextlib import AbstractAsyncContextManager
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from gptoss_local.api.gptoss import ToolFacts, ToolGroup, ToolGroups
from gptoss_local.server.chats import Answers
from gptoss_local.server.dialects.bounds import number_in
from gptoss_local.server.streaming import json_response
from gptoss_local.talk.history import ChatSummary, History, Turn
from gptoss_local.talk.tools import Group, RunnableTool, Toolbox


async def tools(request: Request) -> Response:
    """List the tools of a chat, or else of a new one.

    Those that are on are started for it, unless `start` is `no`; then they have no details. The
    option `tools` of the chat switches them.
    """
    number = number_in(request.query_params, "chat")
    async with await _toolbox(request.app.state.answers, number) as toolbox:
        if request.query_params.get("start") != "no":
            await toolbox.prepare()
        groups = [_group(toolbox, group) for group in toolbox.groups()]
    return json_response(ToolGroups(groups))


async def _toolbox(answers: Answers, number: int | None) -> AbstractAsyncContextManager[Toolbox]:
    if number is None:
        return answers.toolboxes.use_new()

    def read(history: History) -> tuple[ChatSummary, list[Turn]]:
        chat = history.chat(number)
        return chat, history.branch(chat.leaf_id)

    return answers.toolboxes.use(*await answers.store.call(read, number))


def _group(toolbox: Toolbox, group: Group) -> ToolGroup:
    facts = [ToolFacts(tool.name, tool.description, _trust(toolbox, tool)) for tool in group.tools]
    return ToolGroup(group.name, group.about, group.description, group.is_on, group.problem, facts)


def _trust(toolbox: Toolbox, tool: RunnableTool) -> Literal["", "chat", "always"]:
    if tool.name in toolbox.trusted:
        return "chat"
    return "" if toolbox.needs_consent(tool) else "always"
