"""`gptoss tools`: the tools of the model, and the MCP servers of mcp.json. Needs no server."""

import asyncio
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from gptoss_local.base.errors import ToolError, UsageError
from gptoss_local.base.settings import Settings, load_settings
from gptoss_local.base.validation import in_words
from gptoss_local.cli._options import Json
from gptoss_local.cli._output import print_json, print_table, report, say, shortened
from gptoss_local.talk.tools import Group, RunnableTool, Toolbox, ToolSources
from gptoss_local.talk.tools.consent import Consents
from gptoss_local.talk.tools.mcp.config import add_server, new_entry, remove_server
from gptoss_local.talk.tools.mcp.server import McpServers
from gptoss_local.talk.tools.sources import taken_names


def tools(
    action: Annotated[
        Literal["ls", "add", "rm", "test"],
        typer.Argument(metavar="[ls|add|rm|test]", help="What to do."),
    ] = "ls",
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME] [TOOL | -- COMMAND]",
            help="A server, and the tool to test or the command that starts it.",
        ),
    ] = None,
    url: Annotated[str, typer.Option(help="Address of a server that is added.")] = "",
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Variable for the command that is added."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:VALUE", help="Header for the address that is added."),
    ] = None,
    args: Annotated[str, typer.Option(metavar="JSON", help="Arguments of the tested tool.")] = "{}",
    json: Json = False,
) -> None:
    """MCP servers are in mcp.json, next to config.toml. Values there can name variables as
    ${NAME}, so that the file needs no secrets.
    """
    given = words or []
    if action != "add" and (url or env or header):
        raise UsageError("--url, --env and --header belong to `gptoss tools add`")
    if action != "test" and args != "{}":
        raise UsageError("--args belongs to `gptoss tools test`")
    match action:
        case "ls":
            if given:
                raise UsageError(f"ls takes no name, and got '{given[0]}'")
            _list(load_settings(), json=json)
        case "add":
            _add(_name(given), given[1:], url, env or [], header or [], json=json)
        case "rm":
            for name in given or [_name(given)]:
                file = remove_server(name)
                report(f"Removed {name} from {file}.", as_json=json, file=file, removed=name)
        case "test":
            if len(given) > 2:
                raise UsageError(f"test takes a server and a tool, and got '{given[2]}'")
            _test(load_settings(), _name(given), given[1:], args, json=json)


def _name(words: list[str]) -> str:
    if not words:
        raise UsageError("name a server", hint="`gptoss tools` lists them.")
    return words[0]


def _add(
    name: str, command: list[str], url: str, env: list[str], headers: list[str], *, json: bool
) -> None:
    entry, settings = new_entry(command, url, env, headers), load_settings()
    added = add_server(name, entry, settings, taken_names(settings))
    text = f"Added {name} ({added.reached}) to {added.file}.\nTry it: gptoss tools test {name}"
    report(text, as_json=json, file=added.file, added=name)


def _list(settings: Settings, *, json: bool) -> None:
    async def groups() -> list[Group]:
        sources = ToolSources(settings, Path.cwd())
        toolbox = sources.toolbox()
        try:
            await toolbox.prepare()
            return toolbox.groups()
        finally:
            await toolbox.close()
            await sources.close()

    found = asyncio.run(groups())
    if json:
        print_json(sources=[_group_json(group) for group in found])
        return
    header = ("NAME", "WHAT", "STATE", "TOOLS")
    rows = [(g.name, shortened(_what(g)), _state(g), str(len(g.tools) or "-")) for g in found]
    print_table(header, rows)
    tools = [
        (tool.name, tool.source, shortened(tool.description)) for g in found for tool in g.tools
    ]
    if tools:
        print()
        print_table(("TOOL", "OF", "DESCRIPTION"), tools)
    for group in found:
        if group.problem:
            say(group.problem)


def _what(group: Group) -> str:
    return group.about.removeprefix("is ").removeprefix("an ").removeprefix("built in, and ")


def _state(group: Group) -> str:
    if not group.is_on:
        return "off"
    return "does not answer" if group.problem else "on"


def _group_json(group: Group) -> dict[str, Any]:
    facts = {"name": group.name, "about": group.about, "is_on": group.is_on}
    tools = [_tool_json(tool) for tool in group.tools]
    return facts | {"problem": group.problem or None, "tools": tools}


def _tool_json(tool: RunnableTool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


def _test(settings: Settings, name: str, tool: list[str], args: str, *, json: bool) -> None:
    try:
        arguments = msgspec.json.decode(args, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise UsageError(f"--args must be a JSON object: {in_words(error)}") from error
    asyncio.run(_tested(settings, name, tool[0] if tool else None, arguments, json=json))


async def _tested(
    settings: Settings, name: str, tool: str | None, arguments: dict[str, Any], *, json: bool
) -> None:
    servers = McpServers(settings, Path.cwd())
    try:
        sources = {source.name: source for source in servers.sources(taken_names(settings))}
        if name not in sources:
            there = (
                f"There are {', '.join(sources)}." if sources else "`gptoss tools add` adds one."
            )
            raise UsageError(f"there is no MCP server '{name}'", hint=there)
        source = sources[name]
        start_s = time.monotonic()
        await source.tools()  # raises errors that `prepare` would only report
        seconds = time.monotonic() - start_s
        toolbox = Toolbox([source], Consents(None))
        toolbox.on = {name}
        await toolbox.prepare()
        about = source.version
        if tool is None:
            _print_server(toolbox, about, seconds, json=json)
        else:
            await _call(toolbox, tool, arguments, json=json)
    finally:
        await servers.close()


def _print_server(toolbox: Toolbox, about: str, seconds: float, *, json: bool) -> None:
    tools = list(toolbox.tools.values())
    if json:
        print_json(server=about, seconds=round(seconds, 3), tools=[_tool_json(t) for t in tools])
        return
    say(f"{about or 'It'} answered after {seconds:.2f} s, and has {len(tools)} tools.")
    if tools:
        print_table(("TOOL", "DESCRIPTION"), [(t.name, shortened(t.description)) for t in tools])


async def _call(toolbox: Toolbox, tool: str, arguments: dict[str, Any], *, json: bool) -> None:
    if tool not in toolbox.tools:
        hint = f"There are {', '.join(toolbox.tools)}." if toolbox.tools else ""
        raise UsageError(f"there is no tool '{tool}'", hint=hint)
    result = await toolbox.run(tool, arguments)
    if json:
        print_json(
            tool=tool, seconds=round(result.seconds, 3), is_error=result.is_error, text=result.text
        )
    elif not result.is_error:
        print(result.text)
        say(f"It took {result.seconds:.2f} s.")
    if result.is_error:
        raise ToolError(f"{tool} failed: {result.text.removeprefix('Error: ')}")
