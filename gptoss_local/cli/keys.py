"""`gptoss keys`: API keys of other users, and the limits of each. Needs no server."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from gptoss_local.base.errors import ServerUnavailableError, UsageError
from gptoss_local.base.settings import Settings, config_path, load_settings
from gptoss_local.cli._options import Json
from gptoss_local.cli._output import print_json, print_list, report, say
from gptoss_local.server.keys import add_key, read_keys, remove_key


def keys(
    action: Annotated[
        Literal["ls", "add", "rm", "owner"],
        typer.Argument(metavar="[ls|add|rm|owner]", help="What to do."),
    ] = "ls",
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Whose key it is.")] = "",
    requests: Annotated[
        int | None, typer.Option(min=1, help="Most requests a minute of a key that is added.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(min=1, help="Most tokens a minute, of prompts and answers.")
    ] = None,
    priority: Annotated[
        int | None, typer.Option(min=-100, max=100, help="The highest is answered first.")
    ] = None,
    tools: Annotated[
        str,
        typer.Option(
            metavar="TOOL,...",
            help="What the server runs for its requests: web_search, mcp:SERVER:TOOL, ...",
        ),
    ] = "",
    json: Json = False,
) -> None:
    """The file that GPTOSS_API_KEYS_FILE names has them as hashes. A running server follows it.
    `gptoss web` adds the browsers that it lets in, and with --lan the phones.
    `owner` prints the key with which this account's own programs use the running server.
    """
    settings = load_settings()
    if action == "owner":
        _print_owner_key(settings, json=json)
        return
    path = settings.keys_path
    if action == "add" and settings.api_keys_file is None:
        raise UsageError(
            "there is no file of API keys",
            hint=f"Add api_keys_file = '{config_path().parent / 'keys.toml'}' to {config_path()}, "
            "or set GPTOSS_API_KEYS_FILE here and for the server.",
        )
    if action != "add" and (requests or tokens or tools or priority is not None):
        raise UsageError("limits, --priority and --tools belong to `gptoss keys add`")
    if (action == "ls") == bool(name):
        raise UsageError("ls takes no name" if name else f"whose key? gptoss keys {action} NAME")
    match action:
        case "ls":
            _list(path, json=json)
        case "add":
            key = add_key(
                path,
                name,
                requests_per_minute=requests,
                tokens_per_minute=tokens,
                priority=priority,
                tools=tuple(tool.strip() for tool in tools.split(",") if tool.strip()),
            )
            if json:
                print_json(name=name, key=key, file=path)
                return
            print(key)
            say(f"{path} has its hash. The key is shown this once.")
        case "rm":
            remove_key(path, name)
            report(f"Removed {name} from {path}.", as_json=json, removed=name, file=path)


def _print_owner_key(settings: Settings, *, json: bool) -> None:
    from gptoss_local.api.client import owner_key

    key = owner_key(settings)
    if not key:
        raise ServerUnavailableError(
            f"no server of this account runs on {settings.url}", hint="Start one: gptoss serve"
        )
    if json:
        print_json(key=key)
    else:
        print(key)


def _list(path: Path, *, json: bool) -> None:
    found = read_keys(path) if path.exists() else []
    rows = [
        (
            key.name,
            str(key.requests_per_minute or "-"),
            str(key.tokens_per_minute or "-"),
            str(key.priority),
            ",".join(key.tools) or "-",
            "chats"
            if key.chats
            else f"page until {key.browser_until}"
            if key.browser_until
            else "-",
            key.sha256[:12],
        )
        for key in found
    ]
    header = ("NAME", "REQUESTS/MIN", "TOKENS/MIN", "PRIORITY", "TOOLS", "OPENS", "HASH")
    print_list(header, rows, as_json=json, file=path, keys=found)
