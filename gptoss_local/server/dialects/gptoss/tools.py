"""The tools of a saved chat, for the web page to choose among, and its MCP servers.

Adding or testing a server runs any program, so only the owner and the owner's page may.
"""

import asyncio
import shlex
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gptoss_local.api.gptoss import TestedServer, ToolFacts, ToolGroup, ToolGroups
from gptoss_local.api.models import JobStatus
from gptoss_local.base.errors import ToolError, UsageError
from gptoss_local.server.chats import Answers
from gptoss_local.server.dialect import Endpoints
from gptoss_local.server.dialects.gptoss.chats import changed, chat_id_of, settled
from gptoss_local.server.dialects.named_model import read_named, settings_of
from gptoss_local.server.dialects.options import NUMBER, number_in
from gptoss_local.server.streaming import json_response, while_connected
from gptoss_local.talk.history import ChatSummary, History, Turn
from gptoss_local.talk.tools import Group, RunnableTool, Toolbox
from gptoss_local.talk.tools.mcp.config import (
    add_server,
    entry_of,
    mcp_path,
    new_entry,
    remove_server,
)
from gptoss_local.talk.tools.mcp.server import Server
from gptoss_local.talk.tools.sources import taken_names
from gptoss_local.talk.tools.work import PATCH

endpoints = Endpoints()
_TRY_ADDRESS = "Is the address right, and does it need a header?"
_TRY_COMMAND = "Try the command in a terminal of the server's machine. Is it installed there?"
_changing = asyncio.Lock()  # the file is read, and then written


class ServerBody(msgspec.Struct):
    """An MCP server.

    Attributes:
        reached: An address, or else a command line.
        values: Headers of the address (`NAME: VALUE`), or variables of the command (`NAME=VALUE`).
    """

    name: str = ""
    reached: str = ""
    values: list[str] = []

    def entry(self) -> dict[str, Any]:
        reached, values = self.reached.strip(), [each for each in self.values if each.strip()]
        if reached.startswith(("http://", "https://")):
            return new_entry([], reached, [], values)
        try:
            command = shlex.split(reached)
        except ValueError as error:
            raise UsageError(f"the command cannot be read: {error}") from error
        if not command:
            raise UsageError("a server needs a command or an address")
        return new_entry(command, "", values, [])


@endpoints.for_chat(
    "GET",
    "/api/gptoss/chats/tools",
    "What a chat may call",
    ToolGroups,
    queries={"chat": NUMBER, "start": {"enum": ["yes", "no"]}},
)
async def tools(request: Request) -> Response:
    """List the tools of a chat, or of a new one, started unless `start` is `no`."""
    number = number_in(request.query_params, "chat")
    async with await _toolbox(request.app.state.answers, number) as toolbox:
        if request.query_params.get("start") != "no":
            await toolbox.prepare()
        groups = [_group(toolbox, group) for group in toolbox.groups()]
    return json_response(ToolGroups(groups))


@endpoints.for_page(
    "POST", "/api/gptoss/chats/{chat_id:int}/undo", "Take back the last patch", Turn
)
async def undo(request: Request) -> Response:
    """Take back the last patch that was made in this chat since the server started."""
    chat_id = chat_id_of(request)

    def add(history: History) -> Turn:
        chat = history.chat(chat_id)
        for turn in history.branch(chat.leaf_id):
            settled(turn)
        return history.add(chat_id, chat.leaf_id, "tool", toolbox.undo(), tool_name=PATCH)

    async with await _toolbox(request.app.state.answers, chat_id) as toolbox:
        return json_response(await changed(request, add))


@endpoints.for_page(
    "POST",
    "/api/gptoss/mcp/test",
    "Start an MCP server, list its tools, and end it",
    TestedServer,
    ServerBody,
)
async def test_server(request: Request) -> Response:
    body, settings = await read_named(request, ServerBody), settings_of(request)
    entry = entry_of(body.name.strip(), body.entry(), mcp_path(), taken_names(settings))

    async def test() -> TestedServer:
        server, start_s = Server(entry, Path.home(), settings.log_dir), time.monotonic()
        try:
            tools = await server.tools()
            seconds = round(time.monotonic() - start_s, 3)
            return TestedServer(server.version, seconds, [tool.name for tool in tools])
        except ToolError as error:
            hint = _TRY_ADDRESS if entry.fields.url else _TRY_COMMAND
            raise ToolError(error.message, hint=f"{hint} {error.hint}".rstrip()) from error
        finally:
            await server.end()

    return json_response(await while_connected(request, test()))


@endpoints.for_page("POST", "/api/gptoss/mcp", "Add an MCP server", JobStatus, ServerBody)
async def post_server(request: Request) -> Response:
    body, settings = await read_named(request, ServerBody), settings_of(request)
    async with _changing:
        await asyncio.to_thread(
            add_server, body.name.strip(), body.entry(), settings, taken_names(settings)
        )
    await request.app.state.answers.toolboxes.renew()
    return json_response(JobStatus("success"))


@endpoints.for_page("DELETE", "/api/gptoss/mcp/{name:path}", "Remove an MCP server", JobStatus)
async def delete_server(request: Request) -> Response:
    async with _changing:
        await asyncio.to_thread(remove_server, request.path_params["name"])
    await request.app.state.answers.toolboxes.renew()
    return json_response(JobStatus("success"))


async def _toolbox(answers: Answers, number: int | None) -> AbstractAsyncContextManager[Toolbox]:
    if number is None:
        return answers.toolboxes.use_new()

    def read(history: History) -> tuple[ChatSummary, list[Turn]]:
        chat = history.chat(number)
        return chat, history.branch(chat.leaf_id)

    return answers.toolboxes.use(*await answers.store.call(read, number))


def _group(toolbox: Toolbox, group: Group) -> ToolGroup:
    facts = [ToolFacts(tool.name, tool.description, _trust(toolbox, tool)) for tool in group.tools]
    return ToolGroup(
        name=group.name,
        about=group.about,
        description=group.description,
        is_on=group.is_on,
        is_mcp=group.is_mcp,
        problem=group.problem,
        tools=facts,
    )


def _trust(toolbox: Toolbox, tool: RunnableTool) -> Literal["", "chat", "always"]:
    if tool.name in toolbox.trusted:
        return "chat"
    return "" if toolbox.needs_consent(tool) else "always"
